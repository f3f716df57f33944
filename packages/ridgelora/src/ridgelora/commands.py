"""The subcommands: train, count, merge."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from nips_common import cli
from nips_common.runtime import resolve_device, resolve_dtype
from nips_finetune import SavedAdapter, count_report, options
from ridgelora.arguments import METHOD
from ridgelora.config import RidgeLoraConfig
from ridgelora.merge_export import merge_exactly

app = cli.make_app("ridgelora", "ridgelora", "RidgeLoRA: a peft adapter of full rank that merges exactly.")
options.add_train_command(app, METHOD)


@app.command("count")
def count_command(
    model: options.Model,
    targets: options.Targets = None,
    r: Annotated[int, typer.Option(help="Rank.")] = 8,
    connection: Annotated[
        Literal["series", "parallel"], typer.Option(help="The ridge in front of the weight or beside it.")
    ] = "series",
    by_module: options.ByModule = True,
) -> None:
    """Count what an adapter would train, layer by layer, without training; prints JSON.

    `lora_same_rank` is what LoRA of the same rank on the same layers trains. Heads of classifiers are not counted.
    """
    adapter = RidgeLoraConfig(r=r, connection=connection, target_modules=options.target_modules(targets))
    report = count_report(model, adapter)
    if not by_module:
        del report["modules"]
    options.print_report({"r": r, "connection": connection, **report})


@app.command("merge")
def merge_command(
    adapter: options.Adapter,
    out: options.Out,
    data: Annotated[str | None, typer.Option(help="Rows to compare before and after on.")] = None,
    safe: Annotated[bool, typer.Option(help="Refuse merged weights that are NaN or infinite.")] = True,
    base: options.Base = None,
    task: options.TaskName = None,
    split: options.Split = "train",
    text_column: options.TextColumn = None,
    text_pair_column: options.PairColumn = None,
    prompt_column: options.PromptColumn = None,
    image_column: options.ImageColumn = None,
    limit: options.Limit = 256,
    batch_size: options.BatchSize = None,
    device: options.Device = "auto",
    dtype: options.Dtype = "float32",
) -> None:
    """Merge an adapter into its base model and save that as a plain transformers model; prints JSON.

    The merge is exact: computed in float32, then rounded to --dtype. With --data the outcome says how much changed.
    """
    place = resolve_device(device)
    saved = SavedAdapter.read(METHOD, adapter, base, task)
    batches = None
    if data is not None:
        columns = {"text": text_column, "text_pair": text_pair_column, "prompt": prompt_column, "image": image_column}
        batches = options.find_batches(saved, data, split, limit, batch_size, **columns)
    options.print_report(merge_exactly(saved, out, batches, place, resolve_dtype(dtype, place), safe))
