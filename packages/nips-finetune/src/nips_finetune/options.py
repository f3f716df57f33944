"""What the commands of all methods have in common: the command `train` and the options of `merge` and its like."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from nips_finetune.method import AdapterMethod
from nips_finetune.saved_adapter import Batches, SavedAdapter
from nips_finetune.train import run

Model = Annotated[str, typer.Option(help="A folder, a config.json or a hub id; weights are not read.")]
Targets = Annotated[str | None, typer.Option(help="Layers to adapt, by commas, or all-linear.  [default: by model]")]
ByModule = Annotated[bool, typer.Option(help="List every adapted layer.")]
Adapter = Annotated[Path, typer.Argument(help="Folder of the adapter, as peft saves it.")]
Out = Annotated[Path, typer.Option("--out", "-o", help="New folder for the merged model.")]
Base = Annotated[str | None, typer.Option(help="Base model, where the adapter names another place.")]
TaskName = Annotated[str | None, typer.Option(help="The task, where the folder does not say it.")]
Split = Annotated[str, typer.Option(help="Split, of data with several.")]
TextColumn = Annotated[str | None, typer.Option(help="Column of the text.  [default: as trained]")]
PairColumn = Annotated[str | None, typer.Option(help="Column of the second text.")]
PromptColumn = Annotated[str | None, typer.Option(help="Column of the prompt.")]
ImageColumn = Annotated[str | None, typer.Option(help="Column of the image or its path.")]
Limit = Annotated[int, typer.Option(min=1, help="Use only the first so many rows.")]
BatchSize = Annotated[int | None, typer.Option(min=1, help="Rows at once.  [default: 1 text, or 16 images]")]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:N or mps.")]
Dtype = Annotated[str, typer.Option(help="auto, float32, bfloat16, float16 or float64.")]


def add_train_command(app: typer.Typer, method: AdapterMethod) -> None:
    """Give a command line the command ``train``, which hands all its arguments to the training script."""
    anything = {"allow_extra_args": True, "ignore_unknown_options": True}
    about = f"Train an adapter: flags, or a YAML or JSON file and flags; `{method.command} --help` lists them."

    @app.command("train", context_settings=anything, add_help_option=False, help=about)
    def train_command(context: typer.Context) -> None:
        logging.getLogger("nips_finetune").setLevel(logging.getLogger(method.import_name).level)  # as --quiet says
        run(method, context.args)


def target_modules(targets: str | None) -> Any:
    """The option ``--targets`` as configs of peft take it."""
    return targets if targets in (None, "all-linear") else [name.strip() for name in str(targets).split(",")]


def find_batches(
    saved: SavedAdapter,
    data: str,
    split: str = "train",
    limit: int | None = None,
    batch_size: int | None = None,
    **columns: str | None,
) -> Batches:
    """Rows for a saved adapter; ``columns`` are ``text``, ``text_pair``, ``prompt`` and ``image``, None as trained."""
    return saved.batches(data, saved.columns(**columns), split, limit, batch_size)


def print_report(report: Mapping[str, Any]) -> None:
    """Print JSON to standard output."""
    typer.echo(json.dumps(report, indent=2, allow_nan=False))
