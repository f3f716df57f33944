"""Quantiles of a forecast as gluonts defines them: order statistics of samples, exponential tails beyond levels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

TOLERANCE = 1e-8  # e in the tails' logarithms
SORTED_AT_ONCE = 2**22  # values; bounds the memory beside the samples


def order_statistic(num_samples: int, level: float) -> int:
    """Index among S sorted samples: (S - 1) q rounded half to even, so that an even S has no averaged median."""
    return round((num_samples - 1) * level)


def from_samples(samples: Array, levels: Sequence[float]) -> Array:
    """Quantiles of samples without interpolation.

    Args:
        samples: (S, V, H).
        levels: Q levels.

    Returns:
        (Q, V, H) in the samples' type.
    """
    count = len(samples)
    points = samples.reshape(count, -1)
    indices = [order_statistic(count, level) for level in levels]
    found = np.empty((len(indices), points.shape[1]), samples.dtype)
    at_once = max(1, SORTED_AT_ONCE // count)
    for start in range(0, points.shape[1], at_once):
        part = np.ascontiguousarray(points[:, start : start + at_once].T)  # a row for each point: sorts in cache
        part.sort(axis=1)
        found[:, start : start + at_once] = part[:, indices].T
    return found.reshape(len(indices), *samples.shape[1:])


def between_levels(values: Array, levels: Sequence[float], level: float) -> Array:
    """The quantile at any level of a forecast that is known at some levels.

    Linear between levels. From the outermost levels outwards (or from 0.1 and 0.9, where the next level lies beyond
    them) an exponential tail through the two outermost knots, with e = 1e-8:

        value(q) = y1 + (y1 - y0) / ln((q1 + e) / (q0 + e) + e) * ln((q + e) / (q1 + e) + e)

    and its mirror image, in 1 - q, on the right.

    Args:
        values: (Q, ...) at ``levels``.
        levels: Q rising levels.
        level: the wanted one.

    Returns:
        (...).

    Raises:
        ValueError: one level only, and another one is wanted.
    """
    if level in levels:
        return np.asarray(values[list(levels).index(level)])
    if len(levels) < 2:
        raise ValueError(f"the quantile {level} cannot be had from the single level {levels[0]}: give at least two")
    e = TOLERANCE
    if level <= max(levels[0], min(levels[1], 0.1)):
        slope = (values[1] - values[0]) / math.log((levels[1] + e) / (levels[0] + e) + e)
        return np.asarray(values[1] + slope * math.log((level + e) / (levels[1] + e) + e))
    if level >= min(levels[-1], max(levels[-2], 0.9)):
        near, far = 1 - levels[-2], 1 - levels[-1]
        slope = (values[-1] - values[-2]) / math.log((near + e) / (far + e) + e)
        return np.asarray(values[-2] + slope * math.log((near + e) / (1 - level + e) + e))
    above = next(index for index, known in enumerate(levels) if known > level)
    share = (level - levels[above - 1]) / (levels[above] - levels[above - 1])
    return np.asarray(values[above - 1] + share * (values[above] - values[above - 1]))


def crossings(values: Array) -> int:
    """How many of the (Q, ...) quantiles lie below the one of the next lower level, beyond rounding."""
    found = 0
    for below, above in pairwise(values):
        crossed = above < below
        if crossed.any():
            low, high = below[crossed], above[crossed]
            found += int(np.count_nonzero(low - high > 1e-6 * np.maximum(np.abs(low), np.abs(high))))
    return found


def holds_nan(values: Array) -> bool:
    """Whether a NaN is among values; one sum tells, except beside infinities."""
    with np.errstate(invalid="ignore", over="ignore"):
        total = values.sum(dtype=np.float64)
    return not np.isfinite(total) and bool(np.isnan(values).any())
