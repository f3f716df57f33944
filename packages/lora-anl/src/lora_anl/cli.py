"""The command `lora-anl`: train, count, merge, gap."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn

import typer

from nips_common import cli

app = cli.make_app("lora-anl", "lora-anl", "AuroRA: LoRA with an adaptive nonlinear layer, as a peft method.")

Adapter = Annotated[Path, typer.Argument(help="Folder of the adapter, as peft saves it.")]
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


@app.command(
    "train", context_settings={"allow_extra_args": True, "ignore_unknown_options": True}, add_help_option=False
)
def train_command(context: typer.Context) -> None:
    """Train an adapter: flags, or a YAML or JSON file and flags; `lora-anl train --help` lists them."""
    from nips_common.runtime import require

    require("accelerate", "lora-anl[train]")
    from lora_anl import train

    train.run(context.args)


@app.command("count")
def count_command(
    model: Annotated[str, typer.Option(help="A folder, a config.json or a hub id; weights are not read.")],
    targets: Annotated[
        str | None, typer.Option(help="Layers to adapt, by commas, or all-linear.  [default: by model]")
    ] = None,
    r: Annotated[int, typer.Option(help="Compressed rank.")] = 2,
    grid_size: Annotated[int, typer.Option(help="Intervals of the spline's grid.")] = 5,
    spline_order: Annotated[int, typer.Option(help="Degree of the spline.")] = 3,
    use_fixed: Annotated[bool, typer.Option(help="Keep the fixed part.")] = True,
    use_spline: Annotated[bool, typer.Option(help="Keep the spline.")] = True,
    by_module: Annotated[bool, typer.Option(help="List every adapted layer.")] = True,
) -> None:
    """Count what an adapter would train, layer by layer, without training; prints JSON.

    `lora_same_rank` is what LoRA of the same rank on the same layers trains. Heads of classifiers are not counted.
    """
    from peft import get_peft_model

    from lora_anl.config import AuroraConfig
    from lora_anl.estimate import count_parameters
    from lora_anl.pretrained import load_config, model_on_meta

    names: Any = targets if targets in (None, "all-linear") else [name.strip() for name in str(targets).split(",")]
    settings = AuroraConfig(
        r=r,
        target_modules=names,
        grid_size=grid_size,
        spline_order=spline_order,
        use_fixed=use_fixed,
        use_spline=use_spline,
    )
    config = load_config(model)
    built = model_on_meta("AutoModelForCausalLM" if _generates(config) else "AutoModel", config)
    try:
        counts = count_parameters(get_peft_model(built, settings))
    except TypeError as error:
        raise ValueError(f"--targets {targets}: {error}") from error
    layers = counts["modules"].values()
    report = {
        "model": model,
        "model_type": config.model_type,
        "r": r,
        "adapter": counts["adapter"],
        "base": counts["total"] - counts["trainable"],
        "percent_of_base": 100 * counts["adapter"] / (counts["total"] - counts["trainable"]),
        "layers": len(counts["modules"]),
        "lora_same_rank": sum(layer["rank"] * (layer["in_features"] + layer["out_features"]) for layer in layers),
    }
    _print(report | ({"modules": counts["modules"]} if by_module else {}))


def _generates(config: Any) -> bool:
    return any("CausalLM" in name for name in config.architectures or [])


@app.command("gap")
def gap_command(
    adapter: Adapter,
    data: Annotated[str, typer.Option(help="Rows to measure on, in the forms that train takes.")],
    base: Base = None,
    task: TaskName = None,
    split: Split = "train",
    text_column: TextColumn = None,
    text_pair_column: PairColumn = None,
    prompt_column: PromptColumn = None,
    image_column: ImageColumn = None,
    limit: Limit = 256,
    batch_size: BatchSize = None,
    device: Device = "auto",
    dtype: Dtype = "float32",
) -> None:
    """Measure on your data what the paper's static merge would change; the adapter is not changed; prints JSON.

    `relative_gap` is the change relative to all that the adapter does: near 0 the merge is harmless, around 1 and above
    the merged adapter is unrelated to the trained one.
    """
    from lora_anl.gap import measure_merge_gap
    from lora_anl.saved_adapter import SavedAdapter
    from nips_common.runtime import resolve_device, resolve_dtype

    place = resolve_device(device)
    saved = SavedAdapter.read(adapter, base, task)
    columns = saved.columns(text=text_column, text_pair=text_pair_column, prompt=prompt_column, image=image_column)
    batches = saved.batches(data, columns, split, limit, batch_size)
    model = saved.load(place, resolve_dtype(dtype, place))
    found = measure_merge_gap(model, cli.progress(batches, "measuring", len(batches)))
    gaps = {key: value if math.isfinite(value) else None for key, value in found.items()}
    _print({"adapter": str(adapter), "forward_mode": saved.config.forward_mode, "rows": len(batches.examples), **gaps})


@app.command("merge")
def merge_command(
    adapter: Adapter,
    out: Annotated[Path, typer.Option("--out", "-o", help="New folder for the merged model.")],
    policy: Annotated[
        Literal["exact", "static", "calibrated"],
        typer.Option(
            help="exact: only adapters trained with forward_mode=static. static: the paper's merge of a dynamic one, "
            "another function. calibrated: the linear map nearest to it on --data."
        ),
    ] = "exact",
    data: Annotated[str | None, typer.Option(help="Rows to calibrate on and to compare before and after on.")] = None,
    base: Base = None,
    task: TaskName = None,
    split: Split = "train",
    text_column: TextColumn = None,
    text_pair_column: PairColumn = None,
    prompt_column: PromptColumn = None,
    image_column: ImageColumn = None,
    limit: Limit = 256,
    batch_size: BatchSize = None,
    eps: Annotated[float, typer.Option(help="Ridge of the calibrated merge.")] = 1e-4,
    device: Device = "auto",
    dtype: Dtype = "float32",
) -> None:
    """Merge an adapter into its base model and save that as a plain transformers model; prints JSON.

    A dynamic adapter, B s(A x), is nonlinear in x, so no weight computes the same: merging it is refused unless a
    policy accepts another function. With --data the outcome says how much changed.
    """
    from lora_anl.merge_export import merge_and_save
    from lora_anl.saved_adapter import SavedAdapter
    from nips_common.runtime import resolve_device, resolve_dtype

    place = resolve_device(device)
    saved = SavedAdapter.read(adapter, base, task)
    batches = None
    if data is not None:
        columns = saved.columns(text=text_column, text_pair=text_pair_column, prompt=prompt_column, image=image_column)
        batches = saved.batches(data, columns, split, limit, batch_size)
    _print(merge_and_save(saved, out, policy, batches, place, resolve_dtype(dtype, place), eps))


def _print(report: dict[str, Any]) -> None:
    typer.echo(json.dumps(report, indent=2, allow_nan=False))


def main() -> NoReturn:
    """The console command."""
    cli.run(app)
