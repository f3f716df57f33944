"""The metrics against gluonts in one run: equal values, time (the best round), points a minute, memory; aggregation."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from boom_bench.data import official_results
from boom_bench.experiment.gluonts_check import gluonts_metrics
from boom_bench.leaderboard import bootstrap_ci, breakdown, leaderboard, scale_by_baseline, split_degenerate
from boom_bench.metrics import Evaluator, evaluate
from boom_bench.pooled import NAMES
from boom_bench.tasks import Task, split

SECONDS: dict[tuple[str, int], float] = {}
SHAPES = ((1, 48), (8, 48), (8, 480))  # variates, horizon


def windows_of(variates: int, horizon: int, count: int = 40) -> tuple[list[Any], Task, list[Any]]:
    """Series, task and quantile forecasts of ``count`` windows."""
    draw = np.random.default_rng(0)
    task = Task(None, "short", horizon, 10, 24)
    series = [draw.normal(5, 1, (variates, 11 * horizon + 600)) for _ in range(count // 10)]
    forecasts = [
        {
            "quantiles": np.sort(draw.normal(5, 1, (9, variates, horizon)), axis=0),
            "mean": draw.normal(5, 1, (variates, horizon)),
        }
        for _ in range(count)
    ]
    return series, task, forecasts


@pytest.mark.parametrize(("variates", "horizon"), SHAPES)
def test_gluonts(variates: int, horizon: int, benchmark: Any) -> None:
    series, task, forecasts = windows_of(variates, horizon)
    benchmark.group = f"{variates} variates, {horizon} steps"
    benchmark.pedantic(gluonts_metrics, args=(series, forecasts, task), rounds=3, warmup_rounds=1)
    SECONDS["gluonts", variates * horizon] = benchmark.stats.stats.min


@pytest.mark.parametrize(("variates", "horizon"), SHAPES)
def test_ours_on_the_same_forecasts(variates: int, horizon: int, benchmark: Any, report: list[str]) -> None:
    series, task, forecasts = windows_of(variates, horizon)
    expected = gluonts_metrics(series, forecasts, task)

    def ours() -> Any:
        windows = [window for one in series for window in split(one, task)]
        return evaluate([w.label for w in windows], forecasts, [w.input for w in windows], seasonality=24)

    result = ours()
    off = max(abs(result[name] - expected[name]) / abs(expected[name]) for name in NAMES)
    assert off <= 1e-6
    benchmark.group = f"{variates} variates, {horizon} steps"
    benchmark.pedantic(ours, rounds=15, warmup_rounds=2)
    theirs, seconds = SECONDS.get(("gluonts", variates * horizon)), benchmark.stats.stats.min
    ratio = f"{theirs / seconds:6.1f} x gluonts (at least 10 x)" if theirs else ""
    report.append(f"40 windows of {variates} x {horizon:4}: {1e3 * seconds:8.2f} ms, {ratio}, values within {off:.0e}")


@pytest.mark.parametrize(("variates", "horizon"), SHAPES)
def test_label_points_a_minute(variates: int, horizon: int, benchmark: Any, report: list[str]) -> None:
    _, _, forecasts = windows_of(variates, horizon)
    draw = np.random.default_rng(1)
    labels = [draw.normal(5, 1, (variates, horizon)) for _ in forecasts]
    errors = [np.ones(variates)] * len(labels)

    def ours() -> Any:
        return Evaluator().update(labels, forecasts, None, seasonality=24, seasonal_errors=errors).result()

    benchmark.group = "throughput"
    benchmark.pedantic(ours, rounds=30, warmup_rounds=2)
    points = 40 * variates * horizon / benchmark.stats.stats.min * 60 / 1e6
    report.append(
        f"windows of {variates} x {horizon:4}: {points:8.0f} million label points x 9 levels a minute (at least 50)"
    )


def test_samples(benchmark: Any, report: list[str]) -> None:
    draw = np.random.default_rng(0)
    labels = [draw.normal(5, 1, (8, 480)) for _ in range(4)]
    samples = [draw.normal(5, 1, (256, 8, 480)).astype(np.float32) for _ in labels]
    errors = [np.ones(8)] * 4

    def ours() -> Any:
        return Evaluator().update(labels, samples, None, seasonality=24, seasonal_errors=errors).result()

    benchmark.pedantic(ours, rounds=5, warmup_rounds=1)
    points = 4 * 8 * 480 / benchmark.stats.stats.min * 60 / 1e6
    report.append(f"256 samples of 8 x 480: {points:8.1f} million label points a minute")


def test_memory_is_that_of_one_window(report: list[str]) -> None:
    variates, horizon, count = 100, 900, 20
    draw = np.random.default_rng(0)
    quantiles = np.sort(draw.normal(size=(9, variates, horizon)), axis=0)
    label = draw.normal(size=(variates, horizon))

    def stream(make: Any) -> Iterator[Any]:
        return (make() for _ in range(count))

    tracemalloc.start()
    start = time.perf_counter()
    Evaluator().update(
        stream(lambda: label.copy()),
        stream(lambda: {"quantiles": quantiles.copy()}),
        None,
        seasonality=24,
        seasonal_errors=stream(lambda: np.ones(variates)),
    ).result()
    peak, seconds = tracemalloc.get_traced_memory()[1], time.perf_counter() - start
    tracemalloc.stop()
    share = peak / quantiles.nbytes
    report.append(f"20 windows of 100 x 900: peak {share:.1f} x one window's quantiles, {seconds:.2f} s traced")
    assert share < 8


def test_the_aggregation_of_the_published_results(benchmark: Any, report: list[str]) -> None:
    results = official_results()
    benchmark.pedantic(leaderboard, args=(results,), rounds=5, warmup_rounds=1)
    report.append(f"leaderboard of 23 x 7,413 rows: {benchmark.stats.stats.min:.2f} s (under 1 s)")


def test_breakdowns_and_intervals(benchmark: Any, report: list[str]) -> None:
    results = official_results()
    start = time.perf_counter()
    breakdown(results)
    half = time.perf_counter() - start
    scaled = scale_by_baseline(split_degenerate(results)[0])
    benchmark.pedantic(bootstrap_ci, args=(scaled,), rounds=2)
    report.append(f"breakdowns {half:.2f} s, 1,000 bootstrap resamples {benchmark.stats.stats.min:.2f} s")
