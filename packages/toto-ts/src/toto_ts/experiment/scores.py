"""Scores of the experiment, pooled over windows, series and steps, and the seasonal naive baselines."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from toto_ts.experiment.flights import ERROR_HOURS, HORIZON, SEASON, Array, Flights

LEVELS = tuple(round(0.1 * i, 1) for i in range(1, 10))


class Scores(NamedTuple):
    """Of one method.

    Attributes:
        mase: mean absolute error of the median over the seasonal error of the preceding 1,344 hours.
        crps: mean over deciles of 2 sum(pinball loss) / sum |truth|.
    """

    mase: float
    crps: float


def score(flights: Flights, quantiles: Array) -> Scores:
    """Score deciles.

    Args:
        flights: the data.
        quantiles: `(windows, series, 48, 9)`, deciles in order.
    """
    truth, history = flights.truth(), flights.contexts(ERROR_HOURS)
    seasonal_error = np.abs(history[..., SEASON:] - history[..., :-SEASON]).mean(-1, keepdims=True)
    mase = (np.abs(truth - quantiles[..., LEVELS.index(0.5)]) / seasonal_error).mean()
    residual, levels = truth[..., None] - quantiles, np.array(LEVELS)
    pinball = np.maximum(levels * residual, (levels - 1) * residual)
    crps = (2 * pinball.sum((0, 1, 2)) / np.abs(truth).sum()).mean()
    return Scores(float(mase), float(crps))


def seasonal_naive(flights: Flights, season: int) -> Array:
    """The last season again, the same value at every decile: `(windows, series, 48, 9)`."""
    last = flights.contexts(season)
    repeats = -(-HORIZON // season)
    points = np.tile(last, (1, 1, repeats))[..., :HORIZON]
    return np.repeat(points[..., None], len(LEVELS), -1)
