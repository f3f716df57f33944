"""The command `toto-ts`: forecast, finetune, backtest, inspect."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from nips_common import cli

app = cli.make_app("toto-ts", "toto-ts", "Toto: zero-shot forecasts of many related metrics, with uncertainty.")

Checkpoint = Annotated[str, typer.Option(help="Folder of config.json and model.safetensors, or a hub id.")]


@app.command("forecast")
def forecast_command(
    checkpoint: Checkpoint,
    input: Annotated[Path, typer.Option(help="CSV, TSV or Parquet, one row a stamp (and id).")],  # noqa: A002
    output: Annotated[Path, typer.Option("--output", "-o", help="CSV, TSV or Parquet to write.")],
    targets: Annotated[str, typer.Option(help="Columns to forecast together, by commas.")],
    horizon: Annotated[int, typer.Option(help="Steps to forecast.")],
    timestamp: Annotated[str, typer.Option(help="Column of timestamps.")] = "timestamp",
    id: Annotated[str | None, typer.Option(help="Column of ids.  [default: one series]")] = None,  # noqa: A002
    freq: Annotated[str | None, typer.Option(help="Frequency of the stamps.  [default: inferred]")] = None,
    future_exog: Annotated[
        Path | None, typer.Option(help="Table of known futures; its other columns are exogenous.")
    ] = None,
    exogenous: Annotated[
        str | None, typer.Option(help="Exogenous columns, by commas.  [default: all of --future-exog]")
    ] = None,
    quantiles: Annotated[str, typer.Option(help="Levels, by commas.")] = "0.1,0.5,0.9",
    samples: Annotated[int, typer.Option(help="Samples of each series; 0 forecasts the mean alone.")] = 256,
    context: Annotated[int | None, typer.Option(min=1, help="Last steps to use.  [default: all]")] = None,
    fill: Annotated[str, typer.Option(help="What stands at missing points: mean, zero or last.")] = "mean",
    plot: Annotated[Path | None, typer.Option(help="PNG of the first series, with bands.")] = None,
    seed: Annotated[int | None, typer.Option(help="Of the samples.")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:N or mps.")] = "auto",
    dtype: Annotated[str, typer.Option(help="auto, float32, bfloat16 or float16.")] = "float32",
) -> None:
    """Forecast the series of a table; prints what was written as JSON."""
    from nips_common.runtime import resolve_device, resolve_dtype
    from toto_ts.forecast_file import ForecastJob, as_columns, as_levels, forecast_file
    from toto_ts.forecaster import TotoForecaster
    from toto_ts.model import Toto
    from toto_ts.series_files import SeriesColumns

    columns = SeriesColumns(id, timestamp, tuple(as_columns(targets)), tuple(as_columns(exogenous)), freq)
    job = ForecastJob(
        input, output, columns, horizon, as_levels(quantiles), samples or None, context, future_exog, plot, seed
    )
    place = resolve_device(device)
    model = Toto.from_pretrained(checkpoint, map_location=place, dtype=resolve_dtype(dtype, place))
    _print(forecast_file(TotoForecaster(model, fill=fill), job))  # type: ignore[arg-type]


@app.command(
    "finetune", context_settings={"allow_extra_args": True, "ignore_unknown_options": True}, add_help_option=False
)
def finetune_command(context: typer.Context) -> None:
    """Fine-tune or pre-train: flags, or --config FILE.yaml and flags; `toto-ts finetune --help` lists them."""
    from nips_common.runtime import require

    for module in ("accelerate", "transformers", "yaml"):
        require(module, "toto-ts[train]")
    from toto_ts import train

    train.run(context.args)


@app.command("backtest")
def backtest_command(
    checkpoint: Checkpoint,
    data: Annotated[Path, typer.Option(help="CSV, Parquet or Arrow file, or a folder of series.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder of the results; a second run goes on in it.")],
    targets: Annotated[str | None, typer.Option(help="Tables: the variates, by commas.  [default: all]")] = None,
    timestamp: Annotated[str, typer.Option(help="Tables: column of timestamps.")] = "timestamp",
    id: Annotated[str, typer.Option(help="Tables: column of ids.")] = "item_id",  # noqa: A002
    freq: Annotated[str | None, typer.Option(help="Tables: frequency of the stamps.  [default: inferred]")] = None,
    terms: Annotated[str | None, typer.Option(help="short, medium, long, by commas.  [default: that fit]")] = None,
    horizon: Annotated[int | None, typer.Option(help="Steps, in place of the frequency's.")] = None,
    season: Annotated[int | None, typer.Option(help="Steps of a season, in place of the frequency's.")] = None,
    context: Annotated[int, typer.Option(min=1, help="Last steps to use.")] = 4096,
    samples: Annotated[int, typer.Option(min=1, help="Samples of each window.")] = 256,
    samples_per_batch: Annotated[int | None, typer.Option(min=1, help="Samples at a time.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Only so many configurations.")] = None,
    seed: Annotated[int, typer.Option(help="Of the samples.")] = 0,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:N or mps.")] = "auto",
    dtype: Annotated[str, typer.Option(help="auto, float32, bfloat16 or float16.")] = "float32",
) -> None:
    """Score a checkpoint on your own series by the BOOM protocol, beside seasonal naive; prints JSON."""
    from nips_common.runtime import require, resolve_device, resolve_dtype

    require("boom_bench", "toto-ts[backtest]")
    from toto_ts.backtest import BacktestJob, backtest
    from toto_ts.forecast_file import as_columns
    from toto_ts.forecaster import TotoForecaster
    from toto_ts.model import Toto

    columns = {"id_column": id, "timestamp_column": timestamp, "freq": freq}
    if targets is not None:
        columns["target_columns"] = as_columns(targets)  # type: ignore[assignment]
    chosen = None if terms is None else tuple(as_columns(terms))
    job = BacktestJob(
        data, out, columns, chosen, horizon, season, context, samples, samples_per_batch, seed, limit, checkpoint
    )
    place = resolve_device(device)
    model = Toto.from_pretrained(checkpoint, map_location=place, dtype=resolve_dtype(dtype, place))
    _print(backtest(TotoForecaster(model), job))


@app.command("inspect")
def inspect_command(checkpoint: Checkpoint) -> None:
    """Config, parameters and names of a checkpoint, with those that do not fit; prints JSON."""
    from toto_ts.inspection import inspect_checkpoint

    _print(inspect_checkpoint(checkpoint))


def _print(report: object) -> None:
    typer.echo(json.dumps(report, indent=2, allow_nan=False))


def main() -> NoReturn:
    """The console command."""
    cli.run(app)
