"""The benchmark run: `boom-bench run`, ``python -m boom_bench.run``, `run_benchmark`; resumable row by row."""

from __future__ import annotations

import json
import logging
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Annotated, Any, Literal, cast, get_args

import pandas as pd
import typer

from boom_bench.config import PROTOCOL, TERMS, check_levels, check_whole
from boom_bench.data.opening import open_data
from boom_bench.forecasters.contract import Forecaster, check_forecaster
from boom_bench.forecasters.loading import KNOWN, ModelOptions, NamedForecaster
from boom_bench.leaderboard.results import FILE, read_results
from boom_bench.running.executors import Executor, check_sendable, in_processes, in_this_process, on_ray
from boom_bench.running.one_task import Scoring
from boom_bench.running.results_log import ResultsLog, check_results_path
from boom_bench.running.shown_windows import show_window, write_windows
from boom_bench.tasks import Task, make_tasks
from nips_common import cli

log = logging.getLogger(__name__)
Backend = Literal["processes", "ray"]


def run_benchmark(
    forecaster: Forecaster,
    tasks: Iterable[Task],
    out_csv: str | Path,
    *,
    context: int = PROTOCOL.context,
    resume: bool = True,
    jobs: int = 1,
    backend: Backend = "processes",
    gpus_per_job: float = 0.0,
    quantile_levels: Sequence[float] = PROTOCOL.quantile_levels,
    sort_quantiles: bool = False,
    settings: Mapping[str, Any] | None = None,
) -> pd.DataFrame:
    """Scores a forecaster on configurations; one row of the results file for each, as it finishes.

    Args:
        forecaster: called as forecaster(context (V, T), horizon, quantile_levels); gives samples (S, V, H) or a dict
            with quantiles (Q, V, H). See `boom_bench.forecasters` for ready ones.
        tasks: configurations, also a generator; only those in flight are held.
        out_csv: the file; the model is called by its folder's name. Folders are made.
        context: newest points of a history that the forecaster sees (the seasonal error uses all).
        resume: skip configurations that the file has; False begins anew.
        jobs: processes, or Ray actors.
        backend: "processes" of this machine, or "ray".
        gpus_per_job: of each Ray actor.
        quantile_levels: levels that CRPS averages over.
        sort_quantiles: make crossing quantiles monotone.
        settings: what else the rows of the file share, such as a checkpoint's name; kept in run.json and compared when
            a run is resumed.

    Returns:
        All rows of the file, with the column ``model``.

    Raises:
        ValueError: a forecast with NaN or of a wrong shape (finished rows stay), a name that two tasks share, a file of
            other settings, another run on the same file, an argument out of range.
        TypeError: a forecaster that cannot be called.
    """
    path = Path(out_csv)
    check_forecaster(forecaster)
    check_results_path(path)
    scoring = Scoring(path.resolve().parent.name, check_whole("context", context), check_levels(quantile_levels),
                      sort_quantiles)  # fmt: skip
    execute = choose_executor(forecaster, jobs, backend, gpus_per_job)
    stream = iter(tasks)
    if (first := next(stream, None)) is None:  # before anything is written: data that cannot be read end here
        raise ValueError("there is no configuration to run")
    shared = {**scoring.settings(), **(settings or {})}
    with ResultsLog(path, shared, resume=resume) as results:
        for row in execute(forecaster, scoring, _open_tasks(chain([first], stream), results.done)):
            results.add(row)
            log.info("%s: MASE %.3f, CRPS %.3f", row["dataset"], *_scores(row))
    return read_results(path, scoring.model)


def _scores(row: dict[str, Any]) -> tuple[float, float]:
    return row["eval_metrics/MASE[0.5]"], row["eval_metrics/mean_weighted_sum_quantile_loss"]


def choose_executor(forecaster: Forecaster, jobs: int, backend: str, gpus_per_job: float = 0.0) -> Executor:
    """Where configurations run.

    Raises:
        ValueError: an unknown backend, fewer than one job, a negative share of a GPU, a forecaster that cannot be sent.
        ImportError: Ray is missing; names the extra.
    """
    check_whole("jobs", jobs)
    if backend not in get_args(Backend):
        raise ValueError(f"backend must be one of {', '.join(get_args(Backend))}, got {backend!r}")
    if gpus_per_job < 0:
        raise ValueError(f"gpus_per_job must be at least 0, got {gpus_per_job}")
    if backend == "processes" and jobs == 1:
        return in_this_process
    check_sendable(forecaster)
    return on_ray(jobs, gpus_per_job) if backend == "ray" else in_processes(jobs)


def _open_tasks(tasks: Iterable[Task], done: set[str]) -> Iterator[Task]:
    """Those not in the file yet; `done` grows while rows are added, so it is copied."""
    before, given = frozenset(done), set()
    for task in tasks:
        if task.name in given:
            raise ValueError(f"two tasks are called {task.name!r}: results are filed under the name")
        given.add(task.name)
        if task.name not in before:
            yield task


def _list(text: str | None) -> list[str] | None:
    return None if text is None else [part.strip() for part in text.split(",") if part.strip()]


def _keep(named: Sequence[str], tasks: Iterable[Task], forecaster: Forecaster, scoring: Scoring, folder: Path) -> None:
    """Forecasts the chosen windows once more and keeps them for the page."""
    wanted: dict[str, int] = {}
    for text in named:
        indexed = re.fullmatch(r"(.+):(-?\d+)", text)  # names may hold colons too, such as web:8080/Medium/short
        name, index = (indexed[1], int(indexed[2])) if indexed else (text, -1)
        wanted[name] = index
    kept, seen = [], set()
    for task in tasks:
        if task.name in wanted:
            seen.add(task.name)
            kept += show_window(forecaster, scoring, task, wanted[task.name])
    if absent := set(wanted) - seen:
        raise ValueError(f"--show {sorted(absent)[0]}: no such configuration")
    write_windows(folder, kept)


def command(
    model: Annotated[str, typer.Option("--model", help=f"{', '.join(KNOWN)}, or your module:object.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder of the results, named after the model.")],
    data: Annotated[
        Path | None,
        typer.Option("--data", help="Folder or file of series, or hf:NAME; default: environment variable BOOM."),
    ] = None,
    checkpoint: Annotated[str | None, typer.Option(help="Folder or hub id of the model's weights.")] = None,
    boomlet: Annotated[bool, typer.Option("--boomlet", help="Only BOOMLET's 32 series.")] = False,
    terms: Annotated[str | None, typer.Option(help="Such as short,medium; default: those that fit.")] = None,
    id_column: Annotated[str, typer.Option(help="Tables: names the series.")] = "item_id",
    timestamp: Annotated[str, typer.Option(help="Tables: the column of times.")] = "timestamp",
    targets: Annotated[str | None, typer.Option(help="Tables: the variates, such as cpu,latency.")] = None,
    freq: Annotated[str | None, typer.Option(help="Tables: frequency; default: the commonest step.")] = None,
    horizon: Annotated[int | None, typer.Option(help="Steps, in place of the frequency's.")] = None,
    season: Annotated[int | None, typer.Option(help="Steps of a season, in place of the frequency's.")] = None,
    context: Annotated[int, typer.Option(help="Newest points that the model sees.")] = PROTOCOL.context,
    jobs: Annotated[int, typer.Option(help="Processes, or Ray actors.")] = 1,
    backend: Annotated[str, typer.Option(help="processes or ray.")] = "processes",
    gpus_per_job: Annotated[float, typer.Option(help="Of each Ray actor.")] = 0.0,
    restart: Annotated[bool, typer.Option("--restart", help="Forget the rows that are there.")] = False,
    limit: Annotated[int | None, typer.Option(min=1, help="Only so many configurations.")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:N or mps.")] = "auto",
    samples: Annotated[int, typer.Option(min=1, help="Samples of models that sample.")] = 256,
    samples_per_batch: Annotated[int | None, typer.Option(min=1, help="Samples at a time.")] = None,
    batch_size: Annotated[int, typer.Option(min=1, help="Variates at a time.")] = 512,
    sort_quantiles: Annotated[bool, typer.Option("--sort-quantiles", help="Make crossing quantiles monotone.")] = False,
    show: Annotated[
        list[str] | None, typer.Option(help="Keep a window for the page: NAME or NAME:INDEX; may be repeated.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List the configurations and stop.")] = False,
) -> None:
    """Score a model on BOOM or on your own series; a second run goes on where the first one stopped."""

    def tasks() -> Iterator[Task]:
        options: dict[str, Any] = {"id_column": id_column, "timestamp_column": timestamp}
        series = open_data(data, boomlet=boomlet, target_columns=_list(targets), freq=freq, **options)
        yield from islice(make_tasks(series, _list(terms), horizon=horizon, season=season), limit)

    for term in _list(terms) or ():
        if term not in TERMS:
            raise ValueError(f"--terms may hold {', '.join(TERMS)}, got {term!r}")
    if dry_run:
        typer.echo(json.dumps(_plan(tasks(), out, context), indent=2))
        return
    options = ModelOptions(checkpoint, device, samples, samples_per_batch, batch_size)
    named = NamedForecaster(model, options)
    try:
        named.load()  # before any work
    except TypeError as error:  # an object that cannot be called, a class that wants other arguments
        raise ValueError(f"--model {model}: {error}") from error
    rows = run_benchmark(
        named,
        tasks(),
        out / FILE,
        context=context,
        resume=not restart,
        jobs=jobs,
        backend=cast(Backend, backend),
        gpus_per_job=gpus_per_job,
        sort_quantiles=sort_quantiles,
        settings={"model": model, "checkpoint": checkpoint, "samples": samples, "horizon": horizon, "season": season},
    )
    if show:
        _keep(show, tasks(), named, Scoring(out.resolve().name, context, sort_quantiles=sort_quantiles), out)
    typer.echo(json.dumps({"configurations": len(rows), "results": str(out / FILE)}))


def _plan(tasks: Iterable[Task], out: Path, context: int) -> dict[str, Any]:
    listed = [
        {
            "name": task.name,
            "variates": task.series.num_variates if task.series else 0,
            "horizon": task.horizon,
            "windows": task.windows,
            "seasonality": task.seasonality,
        }
        for task in tasks
    ]
    return {"results": str(out / FILE), "context": context, "configurations": listed}


def main(argv: Sequence[str] | None = None) -> None:
    """Runs the command alone: ``python -m boom_bench.run``."""
    app = cli.make_app("boom-bench", "boom-bench", "The BOOM protocol for any forecaster.")
    app.command("run")(command)
    cli.run(app, ["run", *(sys.argv[1:] if argv is None else argv)])


if __name__ == "__main__":
    main()
