"""Forecasters that need no training: seasonal naive (the benchmark's yardstick), naive and drift.

All are called as forecaster(context, horizon, quantile_levels). Missing points are filled with the last value before
them (leading ones with the first one there, a variate without any point with 0). Their quantiles are those of normal
distributions around the mean, which is also the median.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from boom_bench.config import check_levels, check_whole

if TYPE_CHECKING:
    from boom_bench.tasks import Task

Array = NDArray[Any]


def fill_missing(context: Array) -> Array:
    """The last value before each missing point; (V, T) float64.

    Raises:
        ValueError: no (V, T) array with a point.
    """
    values = np.asarray(context, dtype=np.float64)
    if values.ndim != 2 or not values.size:
        raise ValueError(f"context must be (variates, time) with a point, got shape {values.shape}")
    there = np.isfinite(values)
    if there.all():
        return values
    last = np.maximum.accumulate(np.where(there, np.arange(values.shape[1]), -1), axis=1)
    first = there.argmax(1)[:, None]
    filled = np.take_along_axis(values, np.where(last < 0, first, last), axis=1)
    return np.where(np.isfinite(filled), filled, 0)


def normal_quantiles(mean: Array, spread: Array, levels: Sequence[float]) -> dict[str, Array]:
    """The forecast N(mean, spread^2) at each level.

    Args:
        mean: (V, H).
        spread: (V, H), standard deviations.
        levels: Q levels.

    Returns:
        {"mean": (V, H), "quantiles": (Q, V, H)}.
    """
    scores = np.array([NormalDist().inv_cdf(level) for level in check_levels(levels)])
    return {"mean": mean, "quantiles": mean + scores[:, None, None] * spread}


@dataclass(frozen=True)
class SeasonalNaive:
    """The last season, repeated; the spread grows with the seasons ahead (statsforecast's definition).

    quantile = median + z_q sigma sqrt(floor((h - 1) / m) + 1), sigma = root mean squared seasonal difference over the
    context. A history not longer than m is repeated with m = 1.

    Args:
        seasonality: m; None = the task's, which `run_benchmark` supplies.
    """

    seasonality: int | None = None

    def __post_init__(self) -> None:
        if self.seasonality is not None:
            check_whole("seasonality", self.seasonality)

    def for_task(self, task: Task) -> Self:
        """The same forecaster with the task's season, unless it has one of its own."""
        return self if self.seasonality is not None else replace(self, seasonality=task.seasonality)

    def __call__(self, context: Array, horizon: int, quantile_levels: Sequence[float]) -> dict[str, Array]:
        """Forecasts from a context (V, T)."""
        if self.seasonality is None:
            raise ValueError("seasonality is None: give it, or call for_task(task) first")
        history = fill_missing(context)
        season = self.seasonality if history.shape[1] > self.seasonality else 1
        ahead = np.arange(check_whole("horizon", horizon))
        mean = history[:, -season:][:, ahead % season]
        spread = _root_mean_square(history[:, season:] - history[:, :-season])
        return normal_quantiles(mean, spread * np.sqrt(ahead // season + 1), quantile_levels)


@dataclass(frozen=True)
class Naive:
    """The last value, repeated: the seasonal naive forecast with a season of one step."""

    def __call__(self, context: Array, horizon: int, quantile_levels: Sequence[float]) -> dict[str, Array]:
        """Forecasts from a context (V, T)."""
        return SeasonalNaive(1)(context, horizon, quantile_levels)


@dataclass(frozen=True)
class Drift:
    """The line through the first and the last point of the context, drawn on.

    Spread at step h: sigma sqrt(h (1 + h / (T - 1))), sigma = root mean squared residual of the steps.
    """

    def __call__(self, context: Array, horizon: int, quantile_levels: Sequence[float]) -> dict[str, Array]:
        """Forecasts from a context (V, T)."""
        history = fill_missing(context)
        ahead = np.arange(1, check_whole("horizon", horizon) + 1)
        steps = max(history.shape[1] - 1, 1)
        slope = (history[:, -1:] - history[:, :1]) / steps
        spread = _root_mean_square(np.diff(history, axis=1) - slope)
        growth = np.sqrt(ahead * (1 + ahead / steps))
        return normal_quantiles(history[:, -1:] + slope * ahead, spread * growth, quantile_levels)


def _root_mean_square(values: Array) -> Array:
    """(V, 1); 0 where there is no value."""
    count = max(values.shape[1], 1)
    return np.asarray(np.sqrt((values * values).sum(1, keepdims=True) / count))
