"""The folder of a run: never over an earlier one unasked, and whole or not there at all."""

from __future__ import annotations

import json
import logging
import os
import shutil
from pathlib import Path
from typing import Any

from nips_common.artifacts import read_json, write_json
from nips_finetune.job import Job
from nips_finetune.loss_plot import plot_loss
from nips_finetune.model_card import write_model_card
from nips_finetune.trainer import FinetuneTrainer, last_checkpoint

log = logging.getLogger(__name__)

RECORD = "training.json"  # what a run leaves: model, task, columns, settings
UNFINISHED = ".unfinished"


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


def start_folder(job: Job, checkpoint: Path | None) -> None:
    """Make the folder with its record; without a checkpoint to resume from, those of an earlier run go."""
    job.output.mkdir(parents=True, exist_ok=True)
    if checkpoint is None:
        for stale in job.output.glob("checkpoint-*"):  # of the run that is overwritten, or not whole
            shutil.rmtree(stale)
    shutil.rmtree(job.output / UNFINISHED, ignore_errors=True)
    write_json(job.output / RECORD, job.record())


def save(job: Job, trainer: FinetuneTrainer, report: dict[str, Any]) -> None:
    """Write everything into a folder within the output, move it out, the adapter last, and push it where asked to."""
    unfinished = job.output / UNFINISHED
    trainer.save_model(str(unfinished), _internal_call=True)  # all processes: sharded weights are gathered
    if trainer.args.should_save:
        job.config.save_pretrained(unfinished)
        write_model_card(unfinished / "README.md", job, report)
        for file in sorted(unfinished.iterdir(), key=lambda file: (file.name.startswith("adapter_"), file.name)):
            if file.is_dir() and (job.output / file.name).is_dir():
                shutil.rmtree(job.output / file.name)
            os.replace(file, job.output / file.name)
        unfinished.rmdir()
        write_json(job.output / "metrics.json", report)
        plot_loss(trainer.state.log_history, job.output / "loss.png", f"{job.task.name}, {job.arguments.model}")
    trainer.args.distributed_state.wait_for_everyone()
    if trainer.args.push_to_hub:
        trainer.push_to_hub(commit_message="End of training")
