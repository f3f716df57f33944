"""The training script of a method: model and data in, a peft folder out, with metrics and a plot of the loss.

The loop is transformers' Trainer, so that torchrun and `accelerate launch` work as with any script of Hugging Face.
"""

from __future__ import annotations

import json
import logging
import math
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import torch
from transformers import set_seed

from nips_common.cli import user_errors
from nips_finetune.checkpoints import checkpoint_step
from nips_finetune.count import count_parameters
from nips_finetune.dry_run import plan
from nips_finetune.job import Job, adapt, prepare
from nips_finetune.method import AdapterMethod
from nips_finetune.parsing import parse
from nips_finetune.pretrained import load_model, model_on_meta
from nips_finetune.run_folder import check_output, find_checkpoint, finished_report, save, start_folder
from nips_finetune.tasks import measure

log = logging.getLogger(__name__)


def train(job: Job) -> dict[str, Any]:
    """Train and write the peft folder, ``metrics.json`` and ``loss.png``; a finished run is left as it is.

    Args:
        job: As :func:`prepare` gives it.

    Returns:
        The metrics, which are also in ``metrics.json``.

    Raises:
        ValueError: As :func:`check_output`, :func:`adapt` and `load_model`; before any step.
    """
    args = job.training
    check_output(job)
    finished = finished_report(job)
    if finished is not None:
        return finished
    checkpoint = find_checkpoint(job)
    adapt(job, model_on_meta(job.task.auto_class, job.config))  # a wrong target shows before weights are read
    set_seed(args.seed)
    dtype = getattr(torch, job.arguments.dtype)
    model = adapt(
        job, load_model(job.task.auto_class, job.arguments.model, job.config, dtype, _new_head(job, checkpoint))
    )
    counts = count_parameters(model)
    log.info("training %(trainable)d of %(total)d parameters (%(trainable_percent).3f %%)", counts)
    trainer = job.method.trainer(
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
    args.distributed_state.wait_for_everyone()  # all have looked at the folder before one writes to it
    if args.should_save:
        start_folder(job, checkpoint)
    args.distributed_state.wait_for_everyone()
    metrics: dict[str, Any] = {}
    if checkpoint is not None and checkpoint_step(checkpoint) >= job.steps()["steps"]:
        trainer.restore(checkpoint)  # the Trainer would take one step more
    else:
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
    save(job, trainer, report)
    return report


def _new_head(job: Job, checkpoint: Path | None) -> Literal["told", "expected", "refused"]:
    """What a head without pre-trained weights means for this run."""
    if checkpoint is not None:
        return "expected"
    return "told" if job.task.classifies or job.adapter.modules_to_save else "refused"


def _finite(value: Any) -> Any:
    """JSON has no infinity: a run that diverged says null."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _metrics(job: Job) -> Any:
    def compute(prediction: Any) -> dict[str, float]:
        found = prediction.predictions
        logits = found[0] if isinstance(found, tuple) else found
        return measure(logits, prediction.label_ids, job.arguments.regression)

    return compute


def run(method: AdapterMethod, argv: Sequence[str]) -> None:
    """Parse, train or plan, and print the outcome as JSON."""
    job = prepare(method, *parse(method, argv))
    if job.training.dry_run:
        check_output(job)
        outcome = plan(job)
    else:
        outcome = train(job)
    if job.training.process_index == 0:
        print(json.dumps(outcome, indent=2))


def train_main(method: AdapterMethod, argv: Sequence[str] | None = None) -> None:
    """The program of ``python -m PACKAGE.train``, for torchrun and `accelerate launch` too.

    Args:
        method: The method.
        argv: Its arguments; None: the process's.

    Raises:
        SystemExit: With 2 after a user's mistake, which is told in one line on standard error.
    """
    logging.basicConfig(format="%(levelname)s %(name)s: %(message)s")
    level = "INFO" if int(os.environ.get("RANK", "0")) == 0 else "WARNING"
    for name in ("nips_finetune", method.import_name):
        logging.getLogger(name).setLevel(level)
    with user_errors(method.command):
        run(method, sys.argv[1:] if argv is None else argv)
