"""A checkpoint on your own series by the protocol of boom-bench, beside seasonal naive (the extra `backtest`)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from nips_common.artifacts import atomic_file
from nips_common.runtime import require
from toto_ts.forecaster import TotoForecaster

OURS, BASELINE = "toto-ts", "seasonalnaive"
EXTRA = "toto-ts[backtest]"


@dataclass(frozen=True)
class BacktestJob:
    """What is scored on which windows.

    Args:
        data: A CSV, Parquet or Arrow file, or a folder of series, as ``boom_bench.data.open_data`` takes it.
        out: The folder of the results, one more inside for each model.
        columns: Of tables, by the keywords of ``boom_bench.data.from_dataframe``: ``id_column``, ``timestamp_column``,
            ``target_columns``, ``freq``.
        terms: Of "short", "medium", "long"; None: those that fit the length of a series.
        horizon: Steps of the short term, in place of the frequency's.
        season: Steps of a season, in place of the frequency's.
        context: Newest points that the model sees.
        num_samples: Samples of each window.
        samples_per_batch: Samples at a time; halved when memory runs out.
        seed: Of the samples of each window.
        limit: Only so many configurations.
        checkpoint: Its name, which a resumed run must share.
    """

    data: Path
    out: Path
    columns: Mapping[str, Any] = field(default_factory=dict)
    terms: tuple[str, ...] | None = None
    horizon: int | None = None
    season: int | None = None
    context: int = 4096
    num_samples: int = 256
    samples_per_batch: int | None = None
    seed: int = 0
    limit: int | None = None
    checkpoint: str = ""


def backtest(forecaster: TotoForecaster, job: BacktestJob) -> dict[str, Any]:
    """Score the forecaster and seasonal naive on rolling windows; a second run goes on where the first one stopped.

    Each writes ``out/<model>/all_results.csv``, a row a configuration; ``out/leaderboard.html`` shows both.

    Args:
        forecaster: The model.
        job: The rest.

    Returns:
        ``configurations``, ``results`` (the folder), ``page`` and ``leaderboard``: by model, the table's columns, as
        JSON values.

    Raises:
        ImportError: boom-bench is not installed.
        ValueError, FileNotFoundError: Data that cannot be read, or results of other settings in ``out``.
    """
    boom = require("boom_bench", EXTRA)
    running, boards = require("boom_bench.run", EXTRA), require("boom_bench.leaderboard", EXTRA)
    adapter = require("boom_bench.forecasters", EXTRA).toto_ts
    ours = adapter(forecaster, num_samples=job.num_samples, samples_per_batch=job.samples_per_batch, seed=job.seed)
    shared = {"data": str(job.data), "horizon": job.horizon, "season": job.season}
    drawn = {"checkpoint": job.checkpoint, "samples": job.num_samples, "seed": job.seed}
    rows = 0
    for name, model, settings in ((BASELINE, boom.SeasonalNaive(), shared), (OURS, ours, {**shared, **drawn})):
        table = job.out / name / "all_results.csv"
        rows = len(running.run_benchmark(model, _tasks(boom, job), table, context=job.context, settings=settings))
    found = boards.load_results(job.out, [BASELINE, OURS])
    table = boards.leaderboard(found, baseline=BASELINE)
    page = job.out / "leaderboard.html"
    groups = boards.breakdown(found, by=["term", "frequency"])
    with atomic_file(page) as temporary:
        temporary.write_text(boards.to_html(table, breakdowns=groups), "utf-8")
    return {
        "configurations": rows,
        "results": str(job.out),
        "page": str(page),
        "leaderboard": json.loads(table.to_json(orient="index")),
    }


def _tasks(boom: Any, job: BacktestJob) -> Iterator[Any]:
    series = require("boom_bench.data", EXTRA).open_data(job.data, **job.columns)
    terms = None if job.terms is None else list(job.terms)
    return islice(boom.make_tasks(series, terms, horizon=job.horizon, season=job.season), job.limit)
