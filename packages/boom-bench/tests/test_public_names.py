"""The public names: a change here is a change for users."""

from __future__ import annotations

import dataclasses
import importlib
import inspect

import pytest

import boom_bench

# The names that the modules promise; more may be there.
PROMISED = {
    "metrics": "Evaluator MetricResult crps evaluate mae mape mase mse msis nd rmse smape wql",
    "data": "Series SeriesProperties boomlet_series from_arrow from_dataframe load_boom load_boomlet "
    "low_variance_series official_results series_properties",
    "tasks": "Task Window make_task num_windows prediction_length seasonality split",
    "baselines": "Drift Naive SeasonalNaive",
    "run": "run_benchmark",
    "leaderboard": "bootstrap_ci breakdown format_table leaderboard load_results rank scale_by_baseline shifted_gmean "
    "split_degenerate to_csv to_html to_markdown",
    "forecasters": "ChronosForecaster Forecaster FracastForecaster GluonTSForecaster HalvingBackoff NamedForecaster "
    "StatsForecaster TotoForecaster load_forecaster",
}


def test_the_public_names_are_these() -> None:
    assert boom_bench.__all__ == [
        "BoomConfig",
        "Drift",
        "Evaluator",
        "MetricResult",
        "Naive",
        "SeasonalNaive",
        "Series",
        "SeriesProperties",
        "Task",
        "Window",
        "evaluate",
        "make_task",
        "make_tasks",
        "split",
    ]


@pytest.mark.parametrize("module", PROMISED)
def test_every_promised_name_is_there_and_documented(module: str) -> None:
    found = importlib.import_module(f"boom_bench.{module}")
    for name in PROMISED[module].split():
        assert inspect.getdoc(getattr(found, name)), name


def test_the_protocol_has_these_constants() -> None:
    assert dataclasses.asdict(boom_bench.BoomConfig()) == {
        "quantile_levels": (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9),
        "context": 2048,
        "test_fraction": 0.1,
        "max_windows": 20,
        "epsilon": 1e-5,
        "msis_alpha": 0.05,
    }


def test_arguments_of_the_main_functions_are_these() -> None:
    from boom_bench.leaderboard import leaderboard
    from boom_bench.run import run_benchmark

    assert list(inspect.signature(boom_bench.evaluate).parameters)[:6] == [
        "labels", "forecasts", "inputs", "seasonality", "quantile_levels", "mask",
    ]  # fmt: skip
    assert list(inspect.signature(run_benchmark).parameters)[:6] == [
        "forecaster", "tasks", "out_csv", "context", "resume", "jobs",
    ]  # fmt: skip
    defaults = {p.name: p.default for p in inspect.signature(leaderboard).parameters.values()}
    assert defaults["baseline"] == "seasonalnaive"
    assert (defaults["tie"], defaults["order"], defaults["invalid"]) == ("average", None, "column_mean")
    assert (defaults["low_variance"], defaults["boomlet"]) == (None, False)
