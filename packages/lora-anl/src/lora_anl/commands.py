"""The subcommands: train, count, merge, gap."""

from __future__ import annotations

import math
from typing import Annotated, Literal

import typer

from lora_anl.arguments import METHOD
from lora_anl.config import AuroraConfig
from lora_anl.gap import measure_merge_gap
from lora_anl.merge_export import merge_by_policy
from nips_common import cli
from nips_common.runtime import resolve_device, resolve_dtype
from nips_finetune import SavedAdapter, count_report, options

app = cli.make_app("lora-anl", "lora-anl", "AuroRA: LoRA with an adaptive nonlinear layer, as a peft method.")
options.add_train_command(app, METHOD)


@app.command("count")
def count_command(
    model: options.Model,
    targets: options.Targets = None,
    r: Annotated[int, typer.Option(help="Compressed rank.")] = 2,
    grid_size: Annotated[int, typer.Option(help="Intervals of the spline's grid.")] = 5,
    spline_order: Annotated[int, typer.Option(help="Degree of the spline.")] = 3,
    use_fixed: Annotated[bool, typer.Option(help="Keep the fixed part.")] = True,
    use_spline: Annotated[bool, typer.Option(help="Keep the spline.")] = True,
    by_module: options.ByModule = True,
) -> None:
    """Count what an adapter would train, layer by layer, without training; prints JSON.

    `lora_same_rank` is what LoRA of the same rank on the same layers trains. Heads of classifiers are not counted.
    """
    adapter = AuroraConfig(
        r=r,
        target_modules=options.target_modules(targets),
        grid_size=grid_size,
        spline_order=spline_order,
        use_fixed=use_fixed,
        use_spline=use_spline,
    )
    report = count_report(model, adapter)
    if not by_module:
        del report["modules"]
    options.print_report({"r": r, **report})


@app.command("gap")
def gap_command(
    adapter: options.Adapter,
    data: Annotated[str, typer.Option(help="Rows to measure on, in the forms that train takes.")],
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
    """Measure on your data what the paper's static merge would change; the adapter is not changed; prints JSON.

    `relative_gap` is the change relative to all that the adapter does: near 0 the merge is harmless, around 1 and above
    the merged adapter is unrelated to the trained one.
    """
    place = resolve_device(device)
    saved = SavedAdapter.read(METHOD, adapter, base, task)
    columns = {"text": text_column, "text_pair": text_pair_column, "prompt": prompt_column, "image": image_column}
    batches = options.find_batches(saved, data, split, limit, batch_size, **columns)
    model = saved.load(place, resolve_dtype(dtype, place))
    found = measure_merge_gap(model, cli.progress(batches, "measuring", len(batches)))
    gaps = {key: value if math.isfinite(value) else None for key, value in found.items()}
    options.print_report(
        {"adapter": str(adapter), "forward_mode": saved.config.forward_mode, "rows": len(batches.examples), **gaps}
    )


@app.command("merge")
def merge_command(
    adapter: options.Adapter,
    out: options.Out,
    policy: Annotated[
        Literal["exact", "static", "calibrated"],
        typer.Option(
            help="exact: only adapters trained with forward_mode=static. static: the paper's merge of a dynamic one, "
            "another function. calibrated: the linear map nearest to it on --data."
        ),
    ] = "exact",
    data: Annotated[str | None, typer.Option(help="Rows to calibrate on and to compare before and after on.")] = None,
    base: options.Base = None,
    task: options.TaskName = None,
    split: options.Split = "train",
    text_column: options.TextColumn = None,
    text_pair_column: options.PairColumn = None,
    prompt_column: options.PromptColumn = None,
    image_column: options.ImageColumn = None,
    limit: options.Limit = 256,
    batch_size: options.BatchSize = None,
    eps: Annotated[float, typer.Option(help="Ridge of the calibrated merge.")] = 1e-4,
    device: options.Device = "auto",
    dtype: options.Dtype = "float32",
) -> None:
    """Merge an adapter into its base model and save that as a plain transformers model; prints JSON.

    A dynamic adapter, B s(A x), is nonlinear in x, so no weight computes the same: merging it is refused unless a
    policy accepts another function. With --data the outcome says how much changed.
    """
    place = resolve_device(device)
    saved = SavedAdapter.read(METHOD, adapter, base, task)
    batches = None
    if data is not None:
        columns = {"text": text_column, "text_pair": text_pair_column, "prompt": prompt_column, "image": image_column}
        batches = options.find_batches(saved, data, split, limit, batch_size, **columns)
    options.print_report(merge_by_policy(saved, out, policy, batches, place, resolve_dtype(dtype, place), eps))
