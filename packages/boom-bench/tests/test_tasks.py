"""Horizons, windows, seasons, names, and where windows lie."""

from __future__ import annotations

import logging
import math

import numpy as np
import pandas as pd
import pytest

from boom_bench.data import Series, published_configurations, series_properties
from boom_bench.frequencies import parse_frequency
from boom_bench.tasks import Task, make_task, make_tasks, num_windows, prediction_length, seasonality, split


@pytest.mark.parametrize(
    ("names", "base", "season"),
    [
        (("10S", "10s"), 60, 360), (("S", "s"), 60, 3600), (("T", "min"), 48, 1440), (("5T", "5min"), 48, 288),
        (("30T", "30min"), 48, 48), (("H", "h"), 48, 24), (("D",), 30, 1), (("W", "W-SUN"), 8, 1),
        (("M", "ME", "MS"), 12, 12), (("7T",), 48, 1), (("2H", "2h"), 48, 12),
    ],
)  # fmt: skip
def test_old_and_new_names_of_a_frequency_mean_the_same(names: tuple[str, ...], base: int, season: int) -> None:
    for name in names:
        assert [prediction_length(name, term) for term in ("short", "medium", "long")] == [base, 10 * base, 15 * base]
        assert seasonality(name) == season
        pd.Period("2024-01-01", parse_frequency(name).period)


@pytest.mark.parametrize(("length", "horizon", "windows"), [(1000, 48, 3), (16384, 48, 20), (300, 720, 1), (10, 1, 1)])
def test_the_number_of_windows(length: int, horizon: int, windows: int) -> None:
    assert num_windows(length, horizon) == windows == min(max(1, math.ceil(0.1 * length / horizon)), 20)


def test_windows_cover_the_end_without_overlap_and_see_all_that_came_before() -> None:
    series = Series("x", pd.Period("2024-01-01", "h"), "H", np.arange(1000.0))
    task = make_task(series, "short")
    assert (task.name, task.horizon, task.windows, task.seasonality) == ("x/Medium/short", 48, 3, 24)
    windows = list(split(series, task))
    assert [window.index for window in windows] == [0, 1, 2]
    np.testing.assert_array_equal(np.concatenate([w.label[0] for w in windows]), np.arange(1000 - 144, 1000))
    for window in windows:
        np.testing.assert_array_equal(np.append(window.input[0], window.label[0]), np.arange(window.input.size + 48))
        assert window.start == series.start + window.input.shape[1]
        assert np.shares_memory(window.input, series.target)


def test_the_validation_window_lies_just_before_the_test_windows() -> None:
    series = Series("x", pd.Period("2024-01-01", "h"), "H", np.arange(1000.0))
    (window,) = split(series, make_task(series, "short"), part="validation")
    assert (window.label[0, 0], window.label[0, -1], window.input.shape[1]) == (808, 855, 808)


def test_windows_that_leave_no_history_are_refused() -> None:
    assert num_windows(300, 720) == 1
    task = Task(None, "long", 720, 1, 24)
    with pytest.raises(ValueError, match=r"300 points leave no history before 1 windows of 720 steps; more than 720"):
        split(np.zeros((1, 300)), task)
    with pytest.raises(ValueError, match="720 points leave no history"):
        split(np.zeros((1, 720)), task)
    assert len(list(split(np.zeros((1, 721)), task))) == 1


def test_a_series_of_ones_own_gets_the_terms_that_fit(caplog: pytest.LogCaptureFixture) -> None:
    series = Series("mine", pd.Period("2024-01-01", "h"), "h", np.zeros(600))
    with caplog.at_level(logging.WARNING, "boom_bench"):
        assert [task.term for task in make_tasks([series])] == ["short", "medium"]
    assert "mine (long)" in caplog.text
    with pytest.raises(ValueError, match=r"mine \(long\): 600 points"):
        list(make_tasks([series], ["long"]))


def test_a_published_series_gets_its_published_terms() -> None:
    properties = series_properties()
    short = next(name for name, found in properties.items() if found.term == "short" and name.endswith("-H"))
    series = Series(short, pd.Period("2024-01-01", "h"), "H", np.zeros(16384))
    assert [task.name for task in make_tasks([series])] == [f"{short}/Medium/short"]
    long = Series("ds-0-T", pd.Period("2024-01-01", "min"), "T", np.zeros(16384))
    names = [task.name for task in make_tasks([long])]
    assert sorted(names) == [name for name in published_configurations() if name.startswith("ds-0-T/")]


def test_a_frequency_without_a_horizon_asks_for_one() -> None:
    series = Series("sales", pd.Period("2020Q1", "Q"), "Q", np.arange(40.0))
    with pytest.raises(ValueError, match=r"sales: the protocol has horizons for .* not for 'Q': give a horizon"):
        make_task(series, "short")
    task = make_task(series, "short", horizon=4)
    assert (task.horizon, task.windows, task.seasonality, task.name) == (4, 1, 4, "sales/Long/short")


def test_a_season_of_ones_own_is_taken_and_one_of_nothing_refused() -> None:
    series = Series("mine", pd.Period("2024-01-01", "h"), "h", np.zeros(600))
    assert make_task(series, "short", season=168).seasonality == 168
    with pytest.raises(ValueError, match="seasonality must be a whole number of at least 1, got 0"):
        make_task(series, "short", season=0)
