"""The folder of a run: never over an earlier one unasked, and whole or not there at all."""

from __future__ import annotations

import json
import logging
import os
import shutil
from pathlib import Path
from typing import Any

from nips_common.artifacts import read_json, write_json
from nips_finetune.checkpoints import WEIGHTS, checkpoint_fault, checkpoint_step, is_whole_safetensors, last_checkpoint
from nips_finetune.job import Job
from nips_finetune.loss_plot import plot_loss
from nips_finetune.model_card import write_model_card
from nips_finetune.trainer import FinetuneTrainer

log = logging.getLogger(__name__)

RECORD = "training.json"  # what a run leaves: model, task, columns, settings
METRICS = "metrics.json"  # written behind the adapter: it tells of a finished run
# the config with the labels; as config.json, transformers would take the folder for one with a whole model
LABELLED_CONFIG = "labelled_config.json"
UNFINISHED = ".unfinished"


def check_output(job: Job) -> None:
    """Check that the job may write to its output_dir, and that there is what it shall continue from.

    Raises:
        ValueError: output_dir holds a run, and neither --resume nor --overwrite is given; a run of another job.
    """
    if job.output.exists() and not job.output.is_dir():
        raise ValueError(f"--output_dir {job.output} is a file")
    record = job.output / RECORD
    if job.training.resume_from_checkpoint is not None:
        chosen = Path(job.training.resume_from_checkpoint)
        if fault := checkpoint_fault(chosen, _is_sharded(job)):
            raise ValueError(
                f"--resume_from_checkpoint {chosen}: no whole checkpoint ({fault}); --resume finds the last one"
            )
    elif not job.training.resume:
        taken = record.exists() or (job.output / "adapter_config.json").exists() or any(job.output.glob("checkpoint-*"))
        if taken and not job.training.overwrite:
            raise ValueError(
                f"--output_dir {job.output} holds a run; add --resume to continue it or --overwrite to lose it"
            )
    elif record.exists():
        changed = _differences(read_json(record), json.loads(json.dumps(job.record())))
        if changed:
            raise ValueError(
                f"--resume: {record} is of another run, which differs in {', '.join(changed)}; "
                "train into another --output_dir, or give --overwrite for --resume to lose the run"
            )


def _differences(before: dict[str, Any], now: dict[str, Any], prefix: str = "") -> list[str]:
    """The settings that differ, those within others by both names."""
    found = []
    for key in sorted(before.keys() | now.keys()):
        old, new = before.get(key), now.get(key)
        if isinstance(old, dict) and isinstance(new, dict):
            found += _differences(old, new, f"{prefix}{key}.")
        elif old != new:
            found.append(f"{prefix}{key} ({old!r}, now {new!r})")
    return found


def _is_sharded(job: Job) -> bool:
    return bool(job.training.fsdp or job.training.deepspeed)


def finished_report(job: Job) -> dict[str, Any] | None:
    """The metrics of a run that --resume finds finished, with as many steps as the job wants; None where there is more.

    To be called behind :func:`check_output`.
    """
    if not job.training.resume or not is_whole_safetensors(job.output / WEIGHTS):
        return None
    try:
        report: dict[str, Any] = json.loads((job.output / METRICS).read_text("utf-8"))
        done, wanted = int(report["steps"]), job.steps()["steps"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    if done < wanted:
        return None
    log.info("%s holds the finished run, %d of %d steps: nothing to do", job.output, done, wanted)
    return report


def find_checkpoint(job: Job) -> Path | None:
    """The checkpoint to continue from, or None to start; to be called behind :func:`check_output`."""
    if job.training.resume_from_checkpoint is not None:
        checkpoint: Path | None = Path(job.training.resume_from_checkpoint)
    elif job.training.resume:
        checkpoint = last_checkpoint(job.output, _is_sharded(job))
    else:
        return None
    if checkpoint is None:
        log.info("%s has no whole checkpoint: starting at the first step", job.output)
    else:
        log.info("continuing from %s, step %d of %d", checkpoint, checkpoint_step(checkpoint), job.steps()["steps"])
    return checkpoint


def start_folder(job: Job, checkpoint: Path | None) -> None:
    """Make the folder with its record; without a checkpoint to resume from, those of an earlier run go."""
    job.output.mkdir(parents=True, exist_ok=True)
    if checkpoint is None:
        for stale in job.output.glob("checkpoint-*"):  # of the run that is overwritten, or not whole
            shutil.rmtree(stale)
        (job.output / METRICS).unlink(missing_ok=True)  # it would tell that this run is finished
    shutil.rmtree(job.output / UNFINISHED, ignore_errors=True)
    write_json(job.output / RECORD, job.record())


def save(job: Job, trainer: FinetuneTrainer, report: dict[str, Any]) -> None:
    """Write everything into a folder within the output, move it out, the adapter last, and push it where asked to."""
    unfinished = job.output / UNFINISHED
    trainer.save_model(str(unfinished), _internal_call=True)  # all processes: sharded weights are gathered
    if trainer.args.should_save:
        job.config.to_json_file(unfinished / LABELLED_CONFIG)
        write_model_card(unfinished / "README.md", job, report)
        for file in sorted(unfinished.iterdir(), key=lambda file: (file.name.startswith("adapter_"), file.name)):
            if file.is_dir() and (job.output / file.name).is_dir():
                shutil.rmtree(job.output / file.name)
            os.replace(file, job.output / file.name)
        unfinished.rmdir()
        write_json(job.output / METRICS, report)
        plot_loss(trainer.state.log_history, job.output / "loss.png", f"{job.task.name}, {job.arguments.model}")
    trainer.args.distributed_state.wait_for_everyone()
    if trainer.args.push_to_hub:
        trainer.push_to_hub(commit_message="End of training")
