"""Mean ranks (step 5): in each configuration models are ranked by CRPS, best first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

import numpy as np
import pandas as pd

from boom_bench.config import CRPS
from boom_bench.leaderboard.configurations import Array, ResultMatrix, check_order

Tie = Literal["average", "first", "min"]


def ranks(values: Array, tie: Tie = "average", order: Sequence[int] | None = None) -> Array:
    """Ranks of each configuration, 1 = smallest value; NaN has none.

    Args:
        values: (M, C).
        tie: equal values get the "average" of their ranks, the "min"imum, or rise in ``order`` ("first").
        order: positions of the models for "first"; None = as they stand.

    Returns:
        (M, C).

    Raises:
        ValueError: an unknown policy.
    """
    if tie not in get_args(Tie):
        raise ValueError(f"tie must be one of {', '.join(get_args(Tie))}, got {tie!r}")
    places = np.arange(len(values))
    for place, model in enumerate(order if order is not None else ()):
        places[model] = place
    found = np.empty(values.shape)
    for model, own in enumerate(values):
        found[model] = 1 + (values < own).sum(0)
        equal = values == own
        if tie == "average":
            found[model] += (equal.sum(0) - 1) / 2
        elif tie == "first":
            found[model] += equal[places < places[model]].sum(0)
    return np.where(np.isnan(values), np.nan, found)


def mean_ranks(values: Array, tie: Tie, order: Sequence[int] | None) -> Array:
    """(M,) means over the configurations in which a model has a rank; NaN where it has none."""
    found = ranks(values, tie, order)
    there = ~np.isnan(found)
    total, count = np.where(there, found, 0).sum(1), there.sum(1)
    return np.asarray(np.where(count > 0, total / np.maximum(count, 1), np.nan))


def rank(
    results: pd.DataFrame, *, metric: str = CRPS, tie: Tie = "average", order: Sequence[str] | None = None
) -> pd.Series:
    """Mean rank of each model.

    Args:
        results: rows with ``model``, ``dataset`` and the metric.
        metric: what is ranked by, the smaller the better.
        tie: see `ranks`; "average" does not depend on any order.
        order: order of the models for ``tie="first"``; None = of appearance.

    Returns:
        Model to mean rank.

    Raises:
        ValueError: what `ResultMatrix` refuses, an order that does not name every model once, an unknown policy.
    """
    matrix = ResultMatrix.of(results, [metric])
    positions = [matrix.models.index(model) for model in check_order(matrix.models, order)]
    return pd.Series(mean_ranks(matrix.values(metric), tie, positions), index=pd.Index(matrix.models, name="model"))
