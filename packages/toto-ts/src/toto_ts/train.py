"""Fine-tune a checkpoint, or pre-train a new model: `toto-ts finetune`, `python -m toto_ts.train`, torchrun.

Series in files, a folder out that `Toto.from_pretrained` reads, with the log as JSON lines and a plot of the loss.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import os
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NoReturn

import torch
import yaml
from transformers import HfArgumentParser, set_seed

from nips_common.artifacts import atomic_file, read_json, write_json
from nips_common.cli import user_errors
from nips_common.runtime import require
from toto_ts.config import TotoConfig
from toto_ts.finetune import FinetuneConfig, prepare_data
from toto_ts.model import Toto
from toto_ts.plots import plot_loss
from toto_ts.resume import METRICS, finished_report, last_checkpoint
from toto_ts.series_files import SeriesColumns, read_series_files
from toto_ts.trainer import run_training, training_arguments
from toto_ts.windows import SeriesInput

log = logging.getLogger(__name__)

RECORD = "training.json"


@dataclass(frozen=True)
class JobArguments:
    """The model and the data of a run."""

    model: str | None = field(default=None, metadata={"help": "checkpoint to fine-tune: a folder or a hub id"})
    model_config: str | None = field(
        default=None, metadata={"help": "config.json of a new model to pre-train, instead of --model"}
    )
    train_data: list[str] = field(
        default_factory=list,
        metadata={"help": "CSV or Parquet files with --target_columns; or Parquet, Arrow with a series a row"},
    )
    id_column: str | None = field(default=None, metadata={"help": "column of ids (default: one series a file)"})
    timestamp_column: str = field(default="timestamp", metadata={"help": "column of timestamps"})
    target_columns: list[str] = field(default_factory=list, metadata={"help": "columns to forecast"})
    exogenous_columns: list[str] = field(default_factory=list, metadata={"help": "columns whose future is known"})
    freq: str | None = field(default=None, metadata={"help": "frequency of the stamps (default: inferred)"})
    resume: bool = field(default=False, metadata={"help": "go on from the last checkpoint in output_dir"})
    overwrite: bool = field(default=False, metadata={"help": "train again into an output_dir that holds a run"})
    dry_run: bool = field(default=False, metadata={"help": "check everything, print what would be done, and stop"})

    def __post_init__(self) -> None:
        if (self.model is None) == (self.model_config is None):
            raise ValueError("give either --model (to fine-tune) or --model_config (to pre-train)")
        if not self.train_data:
            raise ValueError("--train_data must name at least one file or folder")
        if self.resume and self.overwrite:
            raise ValueError("--resume and --overwrite exclude each other")

    @property
    def columns(self) -> SeriesColumns:
        """Where the series are."""
        return SeriesColumns(
            self.id_column,
            self.timestamp_column,
            tuple(self.target_columns),
            tuple(self.exogenous_columns),
            self.freq,
        )


class _Parser(HfArgumentParser):
    """argparse that raises instead of printing its usage and exiting."""

    def error(self, message: str) -> NoReturn:
        raise ValueError(f"{message} (see --help)")


def parse(argv: Sequence[str]) -> tuple[JobArguments, FinetuneConfig]:
    """Arguments from flags; a YAML file, first or after --config, gives defaults that flags override.

    Raises:
        ValueError: an unknown name, a value of another kind or out of range.
        FileNotFoundError: no such YAML file.
    """
    parser = _Parser(
        (JobArguments, FinetuneConfig),
        prog="toto-ts finetune",
        usage="toto-ts finetune [--config CONFIG.yaml] --model MODEL --train_data FILE... --output_dir FOLDER [...]",
        description="Fine-tune or pre-train Toto; every name can also stand in a YAML file.",
        allow_abbrev=False,
    )
    given = list(argv)
    if given[:1] == ["--config"]:
        given = given[1:]
        if not given:
            raise ValueError("--config must be followed by a YAML file")
    if given and not given[0].startswith("-"):
        parser.set_defaults(**_yaml_values(Path(given.pop(0)), parser))
    job, recipe, rest = parser.parse_args_into_dataclasses(
        given, return_remaining_strings=True, look_for_args_file=False
    )
    if rest:
        raise ValueError(f"unknown arguments: {' '.join(rest)} (see --help)")
    if recipe.output_dir is None:
        raise ValueError("--output_dir must name the folder to write to")
    return job, recipe


def _yaml_values(path: Path, parser: HfArgumentParser) -> dict[str, Any]:
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file")
    try:
        values = yaml.safe_load(path.read_text("utf-8"))
    except (ValueError, yaml.YAMLError) as error:
        raise ValueError(f"{path}: cannot be read: {' '.join(str(error).split())}") from error
    if not isinstance(values, dict):
        raise ValueError(f"{path}: expected names with values, got {type(values).__name__}")
    known = [entry.name for kind in (JobArguments, FinetuneConfig) for entry in dataclasses.fields(kind)]
    for name in values:
        if name not in known:
            near = get_close_matches(str(name), known, n=1)
            raise ValueError(f"{path}: unknown name {name!r}" + (f"; did you mean {near[0]}?" if near else ""))
    # YAML reads 4e-5 as text; argparse turns defaults that are text into what a flag would be
    return values


def check_output(job: JobArguments, recipe: FinetuneConfig) -> Path | None:
    """The checkpoint to go on from, or None to start.

    Raises:
        ValueError: output_dir holds a run and neither --resume nor --overwrite is given; or it is of another run.
    """
    folder = Path(recipe.output_dir or "")
    taken = (folder / RECORD).exists() or (folder / "model.safetensors").exists()
    if not job.resume:
        if taken and not job.overwrite and _is_main():  # the main process may write while others look
            raise ValueError(f"{folder} holds a run; add --resume to continue it or --overwrite to lose it")
        return None
    if (folder / RECORD).is_file():
        before, now = read_json(folder / RECORD), record(job, recipe)
        changed = sorted(key for key in before.keys() | now.keys() if before.get(key) != now.get(key))
        if changed:
            told = ", ".join(f"{key} ({before.get(key)!r}, now {now.get(key)!r})" for key in changed)
            raise ValueError(f"--resume: {folder / RECORD} is of another run, which differs in {told}")
    options: Any = recipe.trainer_options or {}  # read from its JSON by the recipe
    return last_checkpoint(folder, sharded=bool(options.get("fsdp") or options.get("deepspeed")))


def record(job: JobArguments, recipe: FinetuneConfig) -> dict[str, Any]:
    """What makes two runs the same, as JSON values."""
    settings = {**dataclasses.asdict(job), **dataclasses.asdict(recipe)}
    for name in ("resume", "overwrite", "dry_run", "output_dir", "logging_steps", "dataloader_workers"):
        del settings[name]
    same: dict[str, Any] = json.loads(json.dumps(settings))
    return same


def make_model(job: JobArguments, seed: int) -> Toto:
    """The checkpoint, or a new model with random weights."""
    if job.model is not None:
        return Toto.from_pretrained(job.model)
    set_seed(seed)
    return Toto(TotoConfig.from_json(str(job.model_config)))


def plan(job: JobArguments, recipe: FinetuneConfig, series: Sequence[SeriesInput]) -> dict[str, Any]:
    """What a run would do: parameters, series, windows, and memory of weights, gradients and moments."""
    with torch.device("meta"):
        model = make_model(job, recipe.seed)
    data = prepare_data(series, model.config.patch_size, recipe)
    parameters = sum(p.numel() for p in model.parameters())
    return {
        "parameters": parameters,
        "series": len(data.split.series),
        "series_too_short": data.split.dropped,
        "context_length": data.split.context_length,
        "num_exogenous": data.num_exogenous,
        "windows_a_step": recipe.train_batch_size * recipe.gradient_accumulation_steps,
        "steps": recipe.max_steps,
        "gib_of_weights_gradients_and_moments": round(16 * parameters / 2**30, 3),
    }


def train(job: JobArguments, recipe: FinetuneConfig) -> dict[str, Any]:
    """Train and write the model, ``metrics.jsonl``, ``metrics.json`` and ``loss.png``; a finished run is left as it is.

    Returns:
        What is in ``metrics.json``.

    Raises:
        ValueError, OSError: something is missing or does not fit; before any step.
    """
    require("matplotlib", "toto-ts[train]")  # before hours of training, not after
    checkpoint = check_output(job, recipe)
    series = read_series_files(job.train_data, job.columns)
    if job.dry_run:
        return plan(job, recipe, series)
    folder = Path(recipe.output_dir or "")
    finished = finished_report(folder, recipe.max_steps) if job.resume else None
    if finished is not None:
        log.info("%s holds the finished run of %d steps: nothing to do", folder, recipe.max_steps)
        return finished
    model = make_model(job, recipe.seed)
    training_arguments(recipe, folder)  # refuse before the folder is touched
    prepare_data(series, model.config.patch_size, recipe)
    if _is_main():
        folder.mkdir(parents=True, exist_ok=True)
        if checkpoint is None:
            for stale in folder.glob("checkpoint-*"):  # of the run that is overwritten, or not whole
                shutil.rmtree(stale)
        (folder / METRICS).unlink(missing_ok=True)  # it would tell that this run is finished
        write_json(folder / RECORD, record(job, recipe))
    result = run_training(model, series, recipe, checkpoint=checkpoint)
    report = {
        "best_val_loss": result.best_val_loss,
        "steps": recipe.max_steps,
        "parameters": sum(p.numel() for p in result.model.parameters()),
        "resumed_from": None if checkpoint is None else checkpoint.name,
    }
    if _is_main():
        with atomic_file(folder / "metrics.jsonl") as temporary:
            temporary.write_text("".join(json.dumps(entry) + "\n" for entry in result.history), "utf-8")
        plot_loss(result.history, folder / "loss.png", f"{recipe.max_steps} steps")
        write_json(folder / METRICS, report)
    return report


def _is_main() -> bool:
    """Whether this is the process that writes; the others of `torchrun` have ranks above 0."""
    return int(os.environ.get("RANK", "0")) == 0


def run(argv: Sequence[str]) -> None:
    """Parse, train, print the report as JSON."""
    job, recipe = parse(argv)
    report = train(job, recipe)
    if _is_main():
        print(json.dumps(report, indent=2))


def main() -> None:
    """Be the program `python -m toto_ts.train`."""
    logging.basicConfig(format="%(levelname)s %(name)s: %(message)s")
    logging.getLogger("toto_ts").setLevel("INFO")
    with user_errors("toto_ts.train"):
        run(sys.argv[1:])


if __name__ == "__main__":
    main()
