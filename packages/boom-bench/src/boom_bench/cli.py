"""The command `boom-bench`: run, leaderboard, breakdown, describe."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Annotated, Any, NoReturn

import pandas as pd
import typer

from boom_bench import run
from boom_bench.config import BASELINE, MASE
from boom_bench.data import official_results, open_data, published_models
from boom_bench.description import describe
from boom_bench.leaderboard import (
    bootstrap_ci,
    breakdown,
    format_table,
    leaderboard,
    load_results,
    scale_by_baseline,
    split_degenerate,
    to_csv,
    to_html,
    to_markdown,
)
from boom_bench.leaderboard.degenerate import is_own_data
from boom_bench.leaderboard.groups import Properties
from boom_bench.leaderboard.table import only_boomlet
from boom_bench.running.shown_windows import read_windows
from nips_common import cli
from nips_common.artifacts import atomic_file, read_json

log = logging.getLogger(__name__)
FORMATS = ("text", "md", "csv", "html")
app = cli.make_app(
    "boom-bench",
    "boom-bench",
    "The BOOM protocol (arXiv 2505.14766) for any forecaster, on BOOM and on your own metrics.",
)
app.command("run")(run.command)

Results = Annotated[
    Path | None, typer.Argument(help="Folder with <model>/all_results.csv; without it, the published results.")
]
Baseline = Annotated[str, typer.Option(help="The model that scores are divided by.")]
Boomlet = Annotated[bool, typer.Option("--boomlet", help="Only BOOMLET's 32 series.")]
WithPublished = Annotated[bool, typer.Option("--with-published", help="Rank the results among the published ones.")]
PropertiesFile = Annotated[
    Path | None, typer.Option("--properties", help="JSON: series id to domain, type and so on, for your own series.")
]
Format = Annotated[str, typer.Option("--format", help="text, md, csv or html.")]
Output = Annotated[Path | None, typer.Option("--output", "-o", help="File; default: printed.")]
InvalidValues = Annotated[str, typer.Option(help="NaN and infinite values: column_mean, worst or drop.")]


def _names(text: str | None) -> list[str] | None:
    return None if text is None else [part.strip() for part in text.split(",") if part.strip()]


def _read(folder: Path | None, models: list[str] | None, with_published: bool, boomlet: bool) -> pd.DataFrame:
    if folder is None:
        results = official_results()
        if models is not None:
            if absent := [model for model in models if model not in published_models()]:
                raise ValueError(f"--models: no published results of {absent[0]!r}; see boom-bench leaderboard")
            results = results[results["model"].isin(models)]
    else:
        results = load_results(folder, models)
        if with_published:
            results = _among_published(results)
    return only_boomlet(results) if boomlet else results


def _among_published(results: pd.DataFrame) -> pd.DataFrame:
    published = official_results()
    if is_own_data(results):
        raise ValueError("--with-published: none of these results is of a series of BOOM")
    own = set(results["model"].unique())
    known = published[~published["model"].isin(own)]
    if len(known) < len(published):
        log.warning("your own results stand for %s", ", ".join(sorted(own & set(published["model"]))))
    return pd.concat([known, results], ignore_index=True)


def _write(text: str, output: Path | None) -> None:
    if output is None:
        typer.echo(text, nl=False)
        return
    with atomic_file(output) as temporary:
        temporary.write_text(text, "utf-8")
    log.info("wrote %s", output)


def _check_format(name: str, accepted: tuple[str, ...] = FORMATS) -> None:
    if name not in accepted:
        raise ValueError(f"--format must be one of {', '.join(accepted)}, got {name!r}")


def _text(table: pd.DataFrame, form: str) -> str:
    if form == "text":
        return str(format_table(table).to_string()) + "\n"
    return to_markdown(table) if form == "md" else to_csv(table)


def _properties(file: Path | None) -> Properties | None:
    return None if file is None else read_json(file)


def _groupings(results: pd.DataFrame, properties: Properties | None) -> list[str]:
    """All groupings that can be had: own series have types and domains only where a file says so."""
    return ["term", "frequency"] if properties is None and is_own_data(results) else [
        "term", "type", "domain", "frequency"
    ]  # fmt: skip


@app.command("leaderboard")
def leaderboard_command(
    results: Results = None,
    baseline: Baseline = BASELINE,
    models: Annotated[str | None, typer.Option(help="Which, such as a,b,c; default: all.")] = None,
    with_published: WithPublished = False,
    boomlet: Boomlet = False,
    tie: Annotated[
        str | None,
        typer.Option(
            help="Equal values: average, first or min. Default: average; of the published "
            "results alone first, in the authors' order."
        ),
    ] = None,
    order: Annotated[str | None, typer.Option(help="Models in the order of ties with --tie first.")] = None,
    invalid: InvalidValues = "column_mean",
    intervals: Annotated[bool, typer.Option("--intervals", help="95 % bootstrap intervals of MASE.")] = False,
    properties: PropertiesFile = None,
    form: Format = "text",
    output: Output = None,
) -> None:
    """Print the table: of your results, of both, or (without an argument) of the 23 published models."""
    _check_format(form)
    known = _properties(properties)
    found = _read(results, _names(models), with_published, boomlet)
    ties: Any = tie or ("first" if results is None else "average")
    if order is not None and ties != "first":
        raise ValueError(f"--order goes with --tie first, ties are {ties!r} here")
    options: dict[str, Any] = {"baseline": baseline, "invalid": invalid}
    table = leaderboard(found, tie=ties, order=_names(order), **options)
    if told := [f"{model} {count}" for model, count in table.attrs["imputed"].items() if count]:
        log.info("NaN and infinite values (%s): %s", invalid, ", ".join(told))
    scaled = any(column.endswith("-scaled") for column in table)  # without, all series are degenerate
    spread = _intervals(found, **options) if scaled and (intervals or form == "html") else None
    if form == "html":
        tables = breakdown(found, by=_groupings(found, known), properties=known, **options) if scaled else {}
        shown = [] if results is None else read_windows(results, found["model"].unique())
        _write(
            to_html(table, breakdowns=tables, intervals=spread, windows=shown, note=_note(table, baseline, ties)),
            output,
        )
        return
    if spread is not None:
        table.insert(1, "MASE-low", spread["low"])
        table.insert(2, "MASE-high", spread["high"])
    _write(_text(table, form), output)


def _note(table: pd.DataFrame, baseline: str, tie: str) -> str:
    return (
        f"{len(table)} models. MASE and CRPS of the scaled part are divided by those of {baseline} and averaged as a "
        f"shifted geometric mean; ranks are by CRPS, ties {tie}. Intervals: 95 %, over configurations."
    )


def _intervals(results: pd.DataFrame, *, baseline: str, invalid: Any) -> pd.DataFrame:
    main, _ = split_degenerate(results, baseline=baseline, nan_is_degenerate=is_own_data(results))
    return bootstrap_ci(scale_by_baseline(main, baseline=baseline, invalid=invalid), metric=MASE)


@app.command("breakdown")
def breakdown_command(
    results: Results = None,
    by: Annotated[str, typer.Option(help="term, type, domain, frequency, full_benchmark; several: a,b.")] = "term",
    baseline: Baseline = BASELINE,
    with_published: WithPublished = False,
    boomlet: Boomlet = False,
    invalid: InvalidValues = "column_mean",
    properties: PropertiesFile = None,
    form: Format = "text",
    output: Output = None,
) -> None:
    """Print MASE and CRPS of the main part by groups of configurations."""
    _check_format(form, FORMATS[:3])
    found = _read(results, None, with_published, boomlet)
    chosen: Any = {"baseline": baseline, "invalid": invalid, "properties": _properties(properties)}
    tables = breakdown(found, by=_names(by) or [], **chosen)
    _write("\n".join(_text(table, form) for table in tables.values()), output)


@app.command("describe")
def describe_command(
    data: Annotated[Path, typer.Argument(help="Folder or file of series, or hf:NAME.")],
    id_column: Annotated[str, typer.Option(help="Tables: names the series.")] = "item_id",
    timestamp: Annotated[str, typer.Option(help="Tables: the column of times.")] = "timestamp",
    targets: Annotated[str | None, typer.Option(help="Tables: the variates, such as cpu,latency.")] = None,
    freq: Annotated[str | None, typer.Option(help="Tables: frequency; default: the commonest step.")] = None,
    horizon: Annotated[int | None, typer.Option(min=1, help="Steps, in place of the frequency's.")] = None,
    form: Annotated[str, typer.Option("--format", help="text, csv or json.")] = "text",
    output: Output = None,
) -> None:
    """Print lengths, frequencies, gaps, zeros, windows and the degenerate series of a collection."""
    _check_format(form, ("text", "csv", "json"))
    options: dict[str, Any] = {"id_column": id_column, "timestamp_column": timestamp}
    series = open_data(data, target_columns=_names(targets), freq=freq, **options)
    table = describe(series, horizon=horizon)
    if table.empty:
        raise ValueError(f"{data}: holds no series")
    if form == "text":
        flat = [str(name) for name in table.index[table["degenerate"].eq(True)]]
        text = f"{table.to_string()}\n\n{len(table)} series, degenerate: {', '.join(flat) or 'none'}\n"
    elif form == "csv":
        text = str(table.to_csv(lineterminator="\n"))
    else:
        text = json.dumps(json.loads(table.reset_index().to_json(orient="records")), indent=2) + "\n"
    _write(text, output)


def main() -> NoReturn:
    """The console command."""
    cli.run(app)
