"""Train an AuroRA adapter: `lora-anl train`, `python -m lora_anl.train`, torchrun, accelerate launch.

Model and data in, a peft folder out, with metrics and a plot of the loss. The loop is transformers' Trainer.
"""

from __future__ import annotations

import json
import logging
import math
import os
import shutil
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from peft import get_peft_model
from torch import nn
from transformers import PretrainedConfig, set_seed

from lora_anl.arguments import AdapterArguments, AuroraTrainingArguments, JobArguments, parse
from lora_anl.estimate import count_parameters, estimate_memory
from lora_anl.examples import Columns, class_names, make_examples
from lora_anl.loss_plot import plot_loss
from lora_anl.model_card import write_model_card
from lora_anl.pretrained import (
    load_config,
    load_image_processor,
    load_model,
    load_tokenizer,
    longest_text,
    model_on_meta,
)
from lora_anl.records import read_records
from lora_anl.saved_adapter import LONGEST_TEXT, RECORD
from lora_anl.tasks import Collator, Task, head_modules, make_collator, measure
from lora_anl.trainer import AuroraTrainer, last_checkpoint
from nips_common.artifacts import read_json, write_json
from nips_common.cli import user_errors
from nips_common.runtime import require

if TYPE_CHECKING:
    from datasets import Dataset

log = logging.getLogger(__name__)

KIND = {"kind": "lora-anl training", "format_version": 1}


@dataclass(frozen=True)
class Job:
    """A run with all that is checked and read before weights are loaded."""

    arguments: JobArguments
    adapter: AdapterArguments
    training: AuroraTrainingArguments
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
        return {
            **KIND,
            **about,
            "columns": self.columns.used(),
            "max_length": self.max_length,
            "adapter": asdict(self.adapter),
            "seed": self.training.seed,
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


def prepare(arguments: JobArguments, adapter: AdapterArguments, training: AuroraTrainingArguments) -> Job:
    """Read config, tokenizer or image processor, and data, and check that they fit; nothing is written.

    Raises:
        ValueError, OSError, ImportError: Something is missing or does not fit, in one line that names it.
    """
    task, columns = arguments.find_task(), arguments.find_columns()
    config = load_config(arguments.model)
    train_rows = _rows(arguments, arguments.train_data, arguments.train_split, arguments.max_train_samples)
    eval_source = arguments.eval_data or (arguments.train_data if arguments.eval_split else None)
    eval_rows = None
    if eval_source is not None:
        split = arguments.eval_split or arguments.train_split
        eval_rows = _rows(arguments, eval_source, split, arguments.max_eval_samples)
    elif training.eval_strategy != "no":
        raise ValueError("--eval_strategy needs --eval_data or --eval_split")
    names: tuple[str, ...] = ()
    if task.classifies:
        columns.check(train_rows, arguments.train_data)
        names = _set_labels(config, train_rows, columns.label or "", arguments)
    processor = load_tokenizer(arguments.model) if task.reads_text else load_image_processor(arguments.model)
    if task.reads_text and config.pad_token_id is None:
        config.pad_token_id = processor.pad_token_id
    return Job(
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
        ValueError: No such target modules, or none known for this kind of model.
    """
    head = head_modules(model) if job.task.classifies else []
    linear = dict.fromkeys(name.rpartition(".")[2] for name, m in model.named_modules() if isinstance(m, nn.Linear))
    try:
        adapted: nn.Module = get_peft_model(model, job.adapter.make_config(job.task, head))
    except (ValueError, TypeError) as error:
        raise ValueError(
            f"cannot adapt {job.arguments.model} with --target_modules {job.adapter.target_modules}: {error}; "
            f"its linear layers end in {', '.join(linear)}"
        ) from error
    for parameter in adapted.parameters():
        if parameter.requires_grad:
            parameter.data = parameter.data.float()
    return adapted


def plan(job: Job) -> dict[str, Any]:
    """What `--dry-run` says: parameters, steps and a memory estimate, without loading weights."""
    half = torch.bfloat16 if job.training.bf16 else torch.float16 if job.training.fp16 else None
    base_dtype = getattr(torch, job.arguments.dtype)
    adapted = adapt(job, model_on_meta(job.task.auto_class, job.config, half or base_dtype))
    counts = count_parameters(adapted)
    adapted = adapted.to(half or base_dtype)  # there is no autocast on meta
    memory = estimate_memory(adapted, _meta_batch(job, half or base_dtype), job.training.gradient_checkpointing)
    if half is not None and base_dtype != half:  # autocast: weights stay in float32
        extra = memory["weights"]
        memory |= {"weights": 2 * extra, "total_gib": round(memory["total_gib"] + extra / 2**30, 3)}
    del counts["modules"]
    return {"parameters": counts, **job.steps(), "memory": memory}


def _meta_batch(job: Job, dtype: torch.dtype) -> dict[str, torch.Tensor]:
    """A batch of the largest size: real images, or texts of max_length."""
    size = job.training.per_device_train_batch_size
    if not job.task.reads_text:
        batch = job.collator([job.train_rows[0]] * size)
        return {
            name: value.to("meta", dtype if value.is_floating_point() else value.dtype) for name, value in batch.items()
        }
    ids = torch.zeros(size, job.max_length, dtype=torch.long, device="meta")
    labels = ids[:, 0] if job.task.classifies else ids
    return {"input_ids": ids, "labels": labels.to(dtype) if job.arguments.regression else labels}


def check_output(job: Job) -> Path | None:
    """The checkpoint to resume from, or None to start.

    Raises:
        ValueError: output_dir holds a run, and neither --resume nor --overwrite is given; a run of another job.
    """
    record = job.output / RECORD
    if job.output.exists() and not job.output.is_dir():
        raise ValueError(f"--output_dir {job.output} is a file")
    taken = record.exists() or (job.output / "adapter_config.json").exists() or any(job.output.glob("checkpoint-*"))
    if job.training.resume_from_checkpoint is not None:
        chosen = Path(job.training.resume_from_checkpoint)
        if not (chosen / "trainer_state.json").is_file():
            raise ValueError(f"--resume_from_checkpoint {chosen}: no whole checkpoint; --resume finds the last one")
        return chosen
    if not job.training.resume:
        if taken and not job.training.overwrite:
            raise ValueError(
                f"--output_dir {job.output} holds a run; add --resume to continue it or --overwrite to lose it"
            )
        return None
    if record.exists():
        before, now = read_json(record), json.loads(json.dumps(job.record()))
        changed = sorted(key for key in before.keys() | now.keys() if before.get(key) != now.get(key))
        if changed:
            raise ValueError(
                f"--resume: {record} is of another run, which differs in "
                + ", ".join(f"{key} ({before.get(key)!r}, now {now.get(key)!r})" for key in changed)
            )
    checkpoint = last_checkpoint(job.output)
    if checkpoint is None:
        log.info("%s has no checkpoint yet: starting at the first step", job.output)
    return checkpoint


def train(job: Job) -> dict[str, Any]:
    """Train and write the peft folder, ``metrics.json`` and ``loss.png``.

    Args:
        job: As :func:`prepare` gives it.

    Returns:
        The metrics, which are also in ``metrics.json``.

    Raises:
        ValueError: As :func:`check_output`, :func:`adapt` and `load_model`; before any step.
    """
    require("matplotlib", "lora-anl[train]")  # before hours of training, not after
    args = job.training
    checkpoint = check_output(job)
    adapt(job, model_on_meta(job.task.auto_class, job.config))  # a wrong target shows before weights are read
    set_seed(args.seed)
    dtype = getattr(torch, job.arguments.dtype)
    model = adapt(job, load_model(job.task.auto_class, job.arguments.model, job.config, dtype))
    counts = count_parameters(model)
    log.info("training %(trainable)d of %(total)d parameters (%(trainable_percent).3f %%)", counts)
    trainer = AuroraTrainer(
        model=model,
        args=args,
        train_dataset=job.train_rows,
        eval_dataset=job.eval_rows,
        data_collator=job.collator,
        processing_class=job.processor,
        compute_metrics=_metrics(job) if job.task.classifies else None,
    )
    if job.task.classifies:
        trainer.average_over_accumulation()
    if args.should_save:
        _start_folder(job, checkpoint)
    args.distributed_state.wait_for_everyone()
    outcome = trainer.train(resume_from_checkpoint=None if checkpoint is None else str(checkpoint))
    metrics = {key: value for key, value in outcome.metrics.items() if key != "total_flos"}
    if job.eval_rows is not None:
        metrics |= trainer.evaluate()
        if not job.task.classifies:
            metrics["eval_perplexity"] = math.exp(min(metrics["eval_loss"], 700))
    del counts["modules"]
    report = {
        "task": job.task.name,
        "model": job.arguments.model,
        "parameters": counts,
        **job.steps(),
        "steps": trainer.state.global_step,
        "resumed_from": None if checkpoint is None else checkpoint.name,
        **{key: _finite(value) for key, value in metrics.items()},
    }
    _save(job, trainer, report)
    return report


def _finite(value: Any) -> Any:
    """JSON has no infinity: a run that diverged says null."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _metrics(job: Job) -> Any:
    def compute(prediction: Any) -> dict[str, float]:
        found = prediction.predictions
        logits = found[0] if isinstance(found, tuple) else found
        return measure(logits, prediction.label_ids, job.arguments.regression)

    return compute


def _start_folder(job: Job, checkpoint: Path | None) -> None:
    job.output.mkdir(parents=True, exist_ok=True)
    if checkpoint is None:
        for stale in job.output.glob("checkpoint-*"):  # of the run that is overwritten, or not whole
            shutil.rmtree(stale)
    write_json(job.output / RECORD, job.record())


def _save(job: Job, trainer: AuroraTrainer, report: dict[str, Any]) -> None:
    """Write everything beside the output and move it in, the adapter last."""
    unfinished = job.output / ".unfinished"
    trainer.save_model(str(unfinished))  # all processes: sharded weights are gathered
    if trainer.args.should_save:
        job.config.save_pretrained(unfinished)
        write_model_card(unfinished / "README.md", job.record(), report, job.config)
        (unfinished / "training_args.bin").unlink(missing_ok=True)  # a pickle, which nothing here reads
        for file in sorted(unfinished.iterdir(), key=lambda file: (file.name.startswith("adapter_"), file.name)):
            os.replace(file, job.output / file.name)
        unfinished.rmdir()
        write_json(job.output / "metrics.json", report)
        plot_loss(trainer.state.log_history, job.output / "loss.png", f"{job.task.name}, {job.arguments.model}")
    trainer.args.distributed_state.wait_for_everyone()


def run(argv: Sequence[str]) -> None:
    """Parse, train or plan, and print the outcome as JSON."""
    require("accelerate", "lora-anl[train]")
    job = prepare(*parse(argv))
    if job.training.dry_run:
        check_output(job)
        outcome = plan(job)
    else:
        outcome = train(job)
    if job.training.process_index == 0:
        print(json.dumps(outcome, indent=2))


def main(argv: Sequence[str] | None = None) -> None:
    """`python -m lora_anl.train`."""
    logging.basicConfig(format="%(levelname)s %(name)s: %(message)s")
    logging.getLogger("lora_anl").setLevel("INFO" if int(os.environ.get("RANK", "0")) == 0 else "WARNING")
    with user_errors("lora-anl train"):
        run(sys.argv[1:] if argv is None else argv)


if __name__ == "__main__":
    main()
