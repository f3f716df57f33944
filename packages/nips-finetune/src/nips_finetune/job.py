"""A run with all that can be checked before weights are loaded: config, tokenizer or image processor, data."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import nn
from transformers import PretrainedConfig

from nips_finetune.arguments import AdapterArguments, FinetuneArguments, JobArguments
from nips_finetune.examples import Columns, class_names, make_examples
from nips_finetune.method import AdapterMethod
from nips_finetune.pretrained import check_generates, load_config, load_image_processor, load_tokenizer, longest_text
from nips_finetune.records import read_records
from nips_finetune.targets import adapted_model
from nips_finetune.tasks import LONGEST_TEXT, Collator, Task, head_modules, make_collator

if TYPE_CHECKING:
    from datasets import Dataset


# Of the training arguments, those that a checkpoint carries in its optimizer, schedule and order of batches: changed on
# resuming they would be ignored or mix two runs. How long the run is may change.
RECORDED = (
    "seed",
    "learning_rate",
    "head_learning_rate",
    "weight_decay",
    "warmup_steps",
    "lr_scheduler_type",
    "optim",
    "per_device_train_batch_size",
    "gradient_accumulation_steps",
)


@dataclass(frozen=True)
class Job:
    """A run with all that is checked and read before weights are loaded."""

    method: AdapterMethod
    arguments: JobArguments
    adapter: AdapterArguments
    training: FinetuneArguments
    task: Task
    config: PretrainedConfig
    processor: Any
    columns: Columns
    max_length: int
    train_rows: Dataset
    eval_rows: Dataset | None

    @property
    def output(self) -> Path:
        """The folder to write to."""
        return Path(self.training.output_dir)

    @property
    def collator(self) -> Collator:
        """What makes batches; lengths in half precision are multiples of 8, which tensor cores like."""
        return make_collator(
            self.task, self.processor, self.max_length, 8 if self.training.bf16 or self.training.fp16 else None
        )

    def record(self) -> dict[str, Any]:
        """What makes two runs the same, apart from how long they are, as JSON values."""
        about = {name: value for name, value in asdict(self.arguments).items() if not name.endswith("_column")}
        shared = {entry.name for entry in fields(FinetuneArguments)}
        own = [entry.name for entry in fields(self.training) if entry.name not in shared]
        return {
            "kind": f"{self.method.name} training",
            "format_version": 1,
            **about,
            "columns": self.columns.used(),
            "max_length": self.max_length,
            "adapter": asdict(self.adapter),
            **{name: getattr(self.training, name) for name in (*own, *RECORDED)},
        }

    def steps(self) -> dict[str, int]:
        """Rows, rows a step over all processes, and steps, as the Trainer counts them."""
        args = self.training
        batches = math.ceil(len(self.train_rows) / (args.train_batch_size * args.world_size))
        each_epoch = max(math.ceil(batches / args.gradient_accumulation_steps), 1)
        total = args.max_steps if args.max_steps > 0 else math.ceil(args.num_train_epochs * each_epoch)
        rows = args.train_batch_size * args.world_size * args.gradient_accumulation_steps
        return {
            "train_rows": len(self.train_rows),
            "eval_rows": 0 if self.eval_rows is None else len(self.eval_rows),
            "rows_a_step": rows,
            "steps_an_epoch": each_epoch,
            "steps": total,
        }


def prepare(
    method: AdapterMethod, arguments: JobArguments, adapter: AdapterArguments, training: FinetuneArguments
) -> Job:
    """Read config, tokenizer or image processor, and data, and check that they fit; nothing is written.

    Args:
        method: The method.
        arguments: What is trained on what; these three are what :func:`nips_finetune.parse` gives.
        adapter: Settings of the adapter.
        training: Settings of the training.

    Raises:
        ValueError, OSError, ImportError: Something is missing or does not fit, in one line that names it.
    """
    task, columns = arguments.find_task(), arguments.find_columns()
    config = load_config(arguments.model)
    if task.name == "causal_lm":
        check_generates(config, arguments.model)
    train_rows = _rows(arguments, arguments.train_data, arguments.train_split, arguments.max_train_samples)
    eval_source = arguments.eval_data or (arguments.train_data if arguments.eval_split else None)
    eval_rows = None
    if eval_source is not None:
        split = arguments.eval_split or "train"
        eval_rows = _rows(arguments, eval_source, split, arguments.max_eval_samples)
    elif training.eval_strategy != "no" or arguments.max_eval_samples is not None:
        name = "eval_strategy" if training.eval_strategy != "no" else "max_eval_samples"
        raise ValueError(f"--{name} needs --eval_data or --eval_split")
    names: tuple[str, ...] = ()
    if task.classifies:
        columns.check(train_rows, arguments.train_data)
        names = _set_labels(config, train_rows, columns.label or "", arguments)
    processor = load_tokenizer(arguments.model) if task.reads_text else load_image_processor(arguments.model)
    if task.reads_text and getattr(config, "pad_token_id", None) is None:
        config.pad_token_id = processor.pad_token_id
    return Job(
        method,
        arguments,
        adapter,
        training,
        task,
        config,
        processor,
        columns,
        _max_length(arguments, config, processor) if task.reads_text else 0,
        make_examples(train_rows, columns, arguments.train_data, names, arguments.regression),
        None
        if eval_rows is None or eval_source is None
        else make_examples(eval_rows, columns, eval_source, names, arguments.regression),
    )


def _rows(arguments: JobArguments, source: str, split: str, most: int | None) -> Dataset:
    rows = read_records(source, split, arguments.data_config)
    return rows if most is None else rows.select(range(min(most, len(rows))))


def _set_labels(config: PretrainedConfig, rows: Dataset, column: str, arguments: JobArguments) -> tuple[str, ...]:
    """Write the labels into the config that the model is made with; returns the names of the classes."""
    if arguments.regression:
        config.num_labels, config.problem_type = 1, "regression"
        return ()
    names = class_names(rows, column, arguments.train_data)
    config.num_labels = len(names)
    config.id2label, config.label2id = dict(enumerate(names)), {name: index for index, name in enumerate(names)}
    config.problem_type = "single_label_classification"
    return names


def _max_length(arguments: JobArguments, config: PretrainedConfig, tokenizer: Any) -> int:
    limit = longest_text(config, tokenizer)
    if arguments.max_length is None:
        return min(LONGEST_TEXT, limit or LONGEST_TEXT)
    if limit is not None and arguments.max_length > limit:
        raise ValueError(
            f"--max_length must be at most {limit}, which {arguments.model} takes, got {arguments.max_length}"
        )
    return arguments.max_length


def adapt(job: Job, model: nn.Module) -> nn.Module:
    """The model with its adapter, frozen but for that and the head; what trains is in float32.

    Raises:
        ValueError: As :func:`nips_finetune.targets.adapted_model`.
    """
    head = head_modules(model) if job.task.classifies else []
    adapted: nn.Module = adapted_model(model, job.adapter.make_config(job.task, head), job.arguments.model)
    for parameter in adapted.parameters():
        if parameter.requires_grad:
            parameter.data = parameter.data.float()
    return adapted
