"""The three simple forecasters: their formulas, missing values, and statsforecast's numbers."""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np
import pytest

from boom_bench.baselines import Drift, Naive, SeasonalNaive, fill_missing
from boom_bench.config import PROTOCOL
from boom_bench.data import Series
from boom_bench.tasks import make_task

LEVELS = PROTOCOL.quantile_levels
CONTEXT = np.array([[1.0, 5.0, 2.0, 6.0, 4.0, 7.0, 3.0, 9.0]])


def test_seasonal_naive_repeats_the_last_season_and_widens_with_seasons_ahead() -> None:
    found = SeasonalNaive(2)(CONTEXT, 5, LEVELS)
    assert found["mean"].tolist() == [[3, 9, 3, 9, 3]]
    np.testing.assert_array_equal(found["quantiles"][4], found["mean"])
    sigma = math.sqrt(np.mean((CONTEXT[0, 2:] - CONTEXT[0, :-2]) ** 2))
    growth = np.sqrt([1, 1, 2, 2, 3])
    np.testing.assert_allclose(
        found["quantiles"][8] - found["mean"], [NormalDist().inv_cdf(0.9) * sigma * growth], rtol=1e-12
    )


@pytest.mark.parametrize("length", [1, 2, 24])
def test_a_history_not_longer_than_the_season_is_repeated_point_by_point(length: int) -> None:
    context = np.arange(1.0, length + 1)[None]
    found = SeasonalNaive(24)(context, 3, LEVELS)
    assert found["mean"].tolist() == [[length] * 3]
    np.testing.assert_array_equal(found["quantiles"], Naive()(context, 3, LEVELS)["quantiles"])


def test_drift_draws_the_line_through_the_ends() -> None:
    context = np.array([[0.0, 1.0, 4.0, 3.0, 8.0]])
    found = Drift()(context, 3, LEVELS)
    assert found["mean"].tolist() == [[10, 12, 14]]
    sigma = math.sqrt(np.mean((np.diff(context[0]) - 2) ** 2))
    spread = sigma * np.sqrt([h * (1 + h / 4) for h in (1, 2, 3)])
    np.testing.assert_allclose(found["quantiles"][0] - found["mean"], [NormalDist().inv_cdf(0.1) * spread])


def test_missing_points_take_the_last_value_before_them() -> None:
    nan = math.nan
    filled = fill_missing(np.array([[nan, 2, nan, nan, 5], [nan] * 5, [1, 2, 3, 4, math.inf]]))
    assert filled.tolist() == [[2, 2, 2, 2, 5], [0] * 5, [1, 2, 3, 4, 4]]


def test_the_season_comes_from_the_task_unless_it_was_given(hourly: Series) -> None:
    task = make_task(hourly, "short")
    assert SeasonalNaive().for_task(task) == SeasonalNaive(24)
    assert SeasonalNaive(7).for_task(task) == SeasonalNaive(7)
    with pytest.raises(ValueError, match=r"for_task\(task\)"):
        SeasonalNaive()(CONTEXT, 1, LEVELS)


def test_seasonal_naive_has_the_numbers_of_statsforecast() -> None:
    models = pytest.importorskip("statsforecast.models")
    row = np.random.default_rng(0).normal(size=100).cumsum()
    theirs = models.SeasonalNaive(season_length=12).forecast(y=row, h=30, level=[20, 40, 60, 80])
    ours = SeasonalNaive(12)(row[None], 30, LEVELS)
    np.testing.assert_allclose(ours["mean"][0], theirs["mean"], rtol=1e-6)
    for position, level in enumerate(LEVELS):
        if level != 0.5:
            side, width = "lo" if level < 0.5 else "hi", round(100 * abs(2 * level - 1))
            np.testing.assert_allclose(ours["quantiles"][position, 0], theirs[f"{side}-{width}"], rtol=1e-5, atol=1e-6)
