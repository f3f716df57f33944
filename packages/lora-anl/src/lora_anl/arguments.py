"""The arguments of training as dataclasses, from flags or from a YAML or JSON file with the same names."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from pathlib import Path
from typing import Literal, NoReturn

import yaml  # type: ignore[import-untyped]
from transformers import HfArgumentParser, TrainingArguments

from lora_anl.config import AuroraConfig
from lora_anl.examples import Columns
from lora_anl.tasks import Task, find_task

ENDINGS = (".yaml", ".yml", ".json")


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
        default=None, metadata={"help": "split of the evaluation rows; alone, a split of --train_data"}
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
class AdapterArguments:
    """The adapter; :class:`lora_anl.AuroraConfig` explains the settings."""

    r: int = field(default=2, metadata={"help": "compressed rank"})
    aurora_alpha: float = field(default=4.0, metadata={"help": "the update is scaled by aurora_alpha / r"})
    target_modules: list[str] | None = field(
        default=None,
        metadata={"help": "layers to adapt, by the endings of their names, or all-linear (default: by model)"},
    )
    exclude_modules: list[str] | None = field(default=None, metadata={"help": "layers to leave alone"})
    layers_to_transform: list[int] | None = field(
        default=None, metadata={"help": "indices of the only layers to adapt"}
    )
    aurora_dropout: float = field(default=0.0, metadata={"help": "dropout on the adapter's input"})
    activation: Literal["tanh", "leaky_relu", "sigmoid", "relu"] = field(
        default="tanh", metadata={"help": "activation of the fixed part"}
    )
    use_fixed: bool = field(default=True, metadata={"help": "keep the fixed part"})
    use_spline: bool = field(default=True, metadata={"help": "keep the spline"})
    grid_size: int = field(default=5, metadata={"help": "intervals of the spline's grid"})
    spline_order: int = field(default=3, metadata={"help": "degree of the spline"})
    grid_range: list[float] = field(
        default_factory=lambda: [-1.0, 1.0], metadata={"help": "where the grid begins and ends"}
    )
    spline_mode: Literal["pooled", "per_channel"] = field(
        default="pooled", metadata={"help": "as the paper prints it, or a spline a coordinate"}
    )
    spline_init_scale: float = field(default=0.1, metadata={"help": "spline weights start uniform in +- this"})
    forward_mode: Literal["dynamic", "static"] = field(
        default="dynamic", metadata={"help": "static can be merged exactly"}
    )
    modules_to_save: list[str] | None = field(
        default=None, metadata={"help": "further modules to train in full (a classification head always is)"}
    )

    def __post_init__(self) -> None:
        self.make_config(find_task("causal_lm"))

    def make_config(self, task: Task, head: Sequence[str] = ()) -> AuroraConfig:
        """The config for a task whose head has these modules; ValueError for a setting out of range."""
        settings = {entry.name: getattr(self, entry.name) for entry in fields(self)}
        if self.target_modules == ["all-linear"]:
            settings["target_modules"] = "all-linear"
        settings["grid_range"] = tuple(self.grid_range)
        settings["modules_to_save"] = list(dict.fromkeys([*head, *(self.modules_to_save or [])])) or None
        return AuroraConfig(task_type=task.peft_type, **settings)


@dataclass
class AuroraTrainingArguments(TrainingArguments):
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
    report_to: str | list[str] | None = field(
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


class _Parser(HfArgumentParser):
    """argparse that raises instead of printing its usage and exiting."""

    def error(self, message: str) -> NoReturn:
        raise ValueError(f"{message} (see --help)")


def parse(argv: Sequence[str]) -> tuple[JobArguments, AdapterArguments, AuroraTrainingArguments]:
    """Arguments from flags, or from a file that comes first and flags that override it.

    Args:
        argv: ``--name value`` in any order; first may come a .yaml, .yml or .json file.

    Raises:
        ValueError: An unknown or missing name, a value of another kind or out of range, a file that cannot be read.
    """
    classes = (JobArguments, AdapterArguments, AuroraTrainingArguments)
    parser = _Parser(
        classes,
        prog="lora-anl train",
        usage="lora-anl train [CONFIG.yaml] --model MODEL --train_data DATA --output_dir FOLDER [--NAME VALUE ...]",
        description="Train an AuroRA adapter; every name can also stand in a YAML or JSON file, given first.",
        allow_abbrev=False,
    )
    given = list(argv)
    if given and given[0].lower().endswith(ENDINGS):
        known = [entry.name for kind in classes for entry in fields(kind) if entry.init]
        given = [*_flags_of_file(Path(given[0]), known), *given[1:]]
    *found, rest = parser.parse_args_into_dataclasses(given, return_remaining_strings=True, look_for_args_file=False)
    if rest:
        raise ValueError(f"unknown arguments: {' '.join(rest)} (see --help)")
    job, adapter, training = found
    if training.head_learning_rate is not None and not (job.find_task().classifies or adapter.modules_to_save):
        raise ValueError(f"--head_learning_rate has no head to apply to: the task {job.task} trains none")
    if job.dtype != "float32" and not (training.bf16 or training.fp16):
        raise ValueError(
            f"--dtype {job.dtype} holds the base weights in half precision; add --bf16 or --fp16, so that what is "
            "trained stays in float32"
        )
    return job, adapter, training


def _flags_of_file(path: Path, known: Sequence[str]) -> Iterator[str]:
    """The entries of a file as flags, so that both are checked alike."""
    try:
        text = path.read_text("utf-8")
        entries = json.loads(text) if path.suffix.lower() == ".json" else yaml.safe_load(text)
    except FileNotFoundError:
        raise FileNotFoundError(f"{path}: no such file") from None
    except (ValueError, yaml.YAMLError) as error:
        raise ValueError(f"{path}: cannot be read: {error}") from error
    if not isinstance(entries, dict):
        raise ValueError(f"{path}: expected names with values, got {type(entries).__name__}")
    for key, value in entries.items():
        name = str(key).replace("-", "_")
        if name not in known:
            near = get_close_matches(name, known, n=1)
            raise ValueError(
                f"{path}: unknown name {key!r}" + (f"; did you mean {near[0]}?" if near else " (see --help)")
            )
        if isinstance(value, list):
            yield from (f"--{name}", *map(str, value))
        elif value is not None:
            yield f"--{name}={json.dumps(value) if isinstance(value, dict) else value}"
