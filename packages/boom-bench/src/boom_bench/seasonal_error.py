"""The seasonal error that MASE and MSIS divide by: mean |x_t - x_(t-m)| over a history, missing points left out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def effective_lag(length: int, seasonality: int) -> int:
    """The lag m, or 1 where the history is shorter than m."""
    return seasonality if seasonality <= length else 1


def seasonal_error(history: Array, seasonality: int) -> Array:
    """Mean absolute seasonal difference of each variate (gluonts' definition).

    Args:
        history: (V, T), NaN or infinite = missing; a difference counts if both its points are there.
        seasonality: m; 1 is taken where T is shorter.

    Returns:
        (V,) float64; NaN where no difference counts.
    """
    return growing_seasonal_errors(history, [history.shape[1]], seasonality)[0]


def growing_seasonal_errors(series: Array, lengths: Sequence[int], seasonality: int) -> list[Array]:
    """`seasonal_error` of several beginnings of one series, in one pass over it.

    Args:
        series: (V, T).
        lengths: of the beginnings, rising; the windows of a series end one after the other.
        seasonality: m.

    Returns:
        One (V,) array a length.
    """
    errors: list[Array] = []
    total, count, done, last_lag = np.zeros(len(series)), np.zeros(len(series)), 0, 0
    for length in lengths:
        lag = effective_lag(length, seasonality)
        if lag != last_lag:  # a short beginning used lag 1: start anew
            total, count, done, last_lag = np.zeros(len(series)), np.zeros(len(series)), lag, lag
        if length > done:
            steps = _steps(series[:, done - lag : length], lag)
            part = steps.sum(1)
            if np.isfinite(part).all():
                total, count = total + part, count + steps.shape[1]
            else:
                there = np.isfinite(steps)  # a difference of a missing point is not there
                total, count = total + np.where(there, steps, 0).sum(1), count + there.sum(1)
            done = length
        errors.append(np.divide(total, count, out=np.full(len(series), np.nan), where=count > 0))
    return errors


def _steps(part: Array, lag: int) -> Array:
    """|x_t - x_(t-m)|, float64; NaN or infinite where a point is missing."""
    with np.errstate(invalid="ignore"):
        steps = np.subtract(part[:, lag:], part[:, :-lag], dtype=np.float64)
    return np.asarray(np.abs(steps, out=steps))
