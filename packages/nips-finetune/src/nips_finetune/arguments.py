"""The arguments of training as dataclasses: what is trained on what, which adapter, and how."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Literal

from peft import PeftConfig
from transformers import TrainingArguments

from nips_finetune.examples import Columns
from nips_finetune.tasks import Task, find_task


@dataclass
class JobArguments:
    """What is trained on what."""

    model: str = field(metadata={"help": "base model: a local folder or a hub id"})
    train_data: str = field(
        metadata={
            "help": "training rows: .csv, .tsv, .json, .jsonl, .parquet, a folder of datasets.save_to_disk, a folder "
            "with a folder of images for each class, or a hub id"
        }
    )
    task: Literal["causal_lm", "sequence_classification", "image_classification"] = field(
        default="causal_lm", metadata={"help": "the task"}
    )
    eval_data: str | None = field(
        default=None, metadata={"help": "rows to evaluate on, in the same forms; or give --eval_split"}
    )
    train_split: str = field(default="train", metadata={"help": "split of the training rows, where there are several"})
    eval_split: str | None = field(
        default=None, metadata={"help": "split of the evaluation rows (default: train); alone, a split of --train_data"}
    )
    data_config: str | None = field(
        default=None, metadata={"help": "configuration of a hub data set, such as sst2 of glue"}
    )
    text_column: str | None = field(default=None, metadata={"help": "column of the text (default: text)"})
    text_pair_column: str | None = field(
        default=None, metadata={"help": "column of a second text to classify with the first"}
    )
    prompt_column: str | None = field(
        default=None, metadata={"help": "causal_lm: column of what precedes the text, without a loss on it"}
    )
    label_column: str | None = field(default=None, metadata={"help": "column of the label (default: label)"})
    image_column: str | None = field(
        default=None, metadata={"help": "column of the image or its path (default: image)"}
    )
    regression: bool = field(
        default=False, metadata={"help": "sequence_classification: labels are numbers to predict, not classes"}
    )
    max_length: int | None = field(
        default=None, metadata={"help": "cut texts after so many tokens (default: 512, or what the model takes)"}
    )
    max_train_samples: int | None = field(default=None, metadata={"help": "use only the first so many training rows"})
    max_eval_samples: int | None = field(default=None, metadata={"help": "use only the first so many evaluation rows"})
    dtype: Literal["float32", "bfloat16", "float16"] = field(
        default="float32", metadata={"help": "of the frozen base weights"}
    )

    def __post_init__(self) -> None:
        self.find_columns()
        if self.regression and self.task != "sequence_classification":
            raise ValueError(f"--regression belongs to the task sequence_classification, not to {self.task}")
        for name in ("max_length", "max_train_samples", "max_eval_samples"):
            least, value = 2 if name == "max_length" else 1, getattr(self, name)
            if value is not None and value < least:
                raise ValueError(f"--{name} must be at least {least}, got {value}")

    def find_task(self) -> Task:
        """The task."""
        return find_task(self.task)

    def find_columns(self) -> Columns:
        """The columns of the task; ValueError for one that it does not use."""
        roles = [entry.name for entry in fields(Columns)]
        return self.find_task().columns(**{role: getattr(self, f"{role}_column") for role in roles})


@dataclass
class AdapterArguments(ABC):
    """The adapter: what all methods have. A method adds its own settings as fields, and says how to make its config."""

    target_modules: list[str] | None = field(
        default=None,
        metadata={"help": "layers to adapt, by the endings of their names, or all-linear (default: by model)"},
    )
    exclude_modules: list[str] | None = field(default=None, metadata={"help": "layers to leave alone"})
    layers_to_transform: list[int] | None = field(
        default=None, metadata={"help": "indices of the only layers to adapt"}
    )
    modules_to_save: list[str] | None = field(
        default=None, metadata={"help": "further modules to train in full (a classification head always is)"}
    )

    def __post_init__(self) -> None:
        self.make_config(find_task("causal_lm"))  # so that a setting out of range shows before anything is read

    @abstractmethod
    def make_config(self, task: Task, head: Sequence[str] = ()) -> PeftConfig:
        """The config for a task whose head has these modules.

        Args:
            task: The task, whose ``peft_type`` is the config's ``task_type``.
            head: Modules to train in full and save with the adapter.

        Raises:
            ValueError: A setting out of range.
        """

    def settings(self, task: Task, head: Sequence[str] = ()) -> dict[str, Any]:
        """All fields under their names, as most configs of peft take them: what :meth:`make_config` starts from."""
        settings = {entry.name: getattr(self, entry.name) for entry in fields(self)}
        if self.target_modules == ["all-linear"]:
            settings["target_modules"] = "all-linear"
        settings["modules_to_save"] = list(dict.fromkeys([*head, *(self.modules_to_save or [])])) or None
        return {"task_type": task.peft_type, **settings}

    def card_note(self) -> str:
        """What the model card of an adapter with these settings should tell, such as whether it can be merged."""
        return ""


@dataclass
class FinetuneArguments(TrainingArguments):
    """Those of transformers, with other defaults and four more."""

    learning_rate: float = field(default=5e-4, metadata={"help": "learning rate of the adapter"})
    head_learning_rate: float | None = field(
        default=None, metadata={"help": "learning rate of modules trained in full (default: learning_rate)"}
    )
    warmup_steps: float = field(
        default=0.06, metadata={"help": "steps of linear warm-up, or below 1 their share of all"}
    )
    logging_steps: float = field(
        default=10, metadata={"help": "steps between two logs of the loss, or below 1 their share of all"}
    )
    report_to: None | str | list[str] = field(  # noqa: RUF036 - the order that HfArgumentParser reads
        default="none", metadata={"help": "where to report to, such as tensorboard or wandb"}
    )
    disable_tqdm: bool | None = field(
        default=None, metadata={"help": "no progress bars (default: none where stderr is no terminal)"}
    )
    resume: bool = field(
        default=False,
        metadata={"help": "continue from the last checkpoint in output_dir; start where there is none yet"},
    )
    overwrite: bool = field(default=False, metadata={"help": "train again into an output_dir that holds a run"})
    dry_run: bool = field(
        default=False, metadata={"help": "check everything, print parameters, steps and a memory estimate, and stop"}
    )

    def __post_init__(self) -> None:
        if not self.output_dir:
            raise ValueError("--output_dir must name the folder to write to")
        for name in ("learning_rate", "head_learning_rate"):
            value = getattr(self, name)
            if value is not None and not 0 < value < float("inf"):
                raise ValueError(f"--{name} must be a finite number above 0, got {value}")
        for name in ("per_device_train_batch_size", "per_device_eval_batch_size", "gradient_accumulation_steps"):
            if getattr(self, name) < 1:
                raise ValueError(f"--{name} must be at least 1, got {getattr(self, name)}")
        if self.max_steps <= 0 and not 0 < self.num_train_epochs < float("inf"):
            raise ValueError(f"--num_train_epochs must be above 0, got {self.num_train_epochs}")
        self._set_checkpointing()
        self.disable_tqdm = not sys.stderr.isatty() if self.disable_tqdm is None else self.disable_tqdm
        super().__post_init__()
        self.label_names = ["labels"]
        self.remove_unused_columns = False  # the collator uses them

    def _set_checkpointing(self) -> None:
        """Without re-entrance, which works with frozen embeddings, and under the newest name that transformers has."""
        name = "activation_checkpointing" if hasattr(self, "activation_checkpointing") else "gradient_checkpointing"
        if self.gradient_checkpointing and getattr(self, name) is None:
            setattr(self, name, True)
        if getattr(self, name) and self.gradient_checkpointing_kwargs is getattr(self, f"{name}_kwargs") is None:
            setattr(self, f"{name}_kwargs", {"use_reentrant": False})
