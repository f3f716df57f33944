"""From metrics to scores: invalid values, division by the baseline, the shifted geometric mean (steps 2 to 4)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from boom_bench.config import BASELINE, CRPS, MASE, PROTOCOL
from boom_bench.leaderboard.configurations import Array, ResultMatrix

Invalid = Literal["column_mean", "worst", "drop"]


def shifted_gmean(x: ArrayLike, eps: float = PROTOCOL.epsilon) -> float:
    """exp(mean(ln(x + eps))) - eps.

    Args:
        x: values of at least -eps; NaN gives NaN.
        eps: the shift.

    Raises:
        ValueError: no value, or one below -eps; the message holds it.
    """
    return float(shifted_gmeans(np.asarray(x, dtype=np.float64).reshape(1, -1), eps)[0])


def shifted_gmeans(x: Array, eps: float = PROTOCOL.epsilon) -> Array:
    """`shifted_gmean` of each row of (M, C)."""
    if not x.shape[1]:
        raise ValueError("the geometric mean of no value is not defined")
    if (x < -eps).any():
        raise ValueError(f"the shifted geometric mean takes values of at least {-eps:g}, got {float(x[x < -eps][0]):g}")
    with np.errstate(divide="ignore"):  # exactly -eps: the mean is then -eps
        means = np.exp(np.log(x + eps).mean(1)) - eps
    return np.asarray(np.where((x >= 0).all(1), np.maximum(means, 0.0), means))  # rounding must not print as -0.000


def impute(
    matrix: ResultMatrix, metrics: Sequence[str], invalid: Invalid
) -> tuple[dict[str, Array], Array, dict[str, int]]:
    """Replaces values that are NaN or infinite.

    Args:
        matrix: the results of one part.
        metrics: columns.
        invalid: "column_mean" = the model's mean over the part (the official code), "worst" = the largest valid value
            of any model in the same configuration, "drop" = leave the configuration out for all models.

    Returns:
        Metric to (M, C) values; (C,) which configurations stay; model to the number of its invalid values.

    Raises:
        ValueError: an unknown policy.
    """
    if invalid not in get_args(Invalid):
        raise ValueError(f"invalid must be one of {', '.join(get_args(Invalid))}, got {invalid!r}")
    keep = np.ones(len(matrix.configurations), bool)
    counts = np.zeros(len(matrix.models), int)
    values: dict[str, Array] = {}
    for metric in metrics:
        found = matrix.values(metric)
        bad = ~np.isfinite(found)
        counts += bad.sum(1)
        if bad.any() and invalid == "drop":
            keep &= ~bad.any(0)
        elif bad.any():
            known, there = np.where(bad, 0, found), ~bad
            if invalid == "column_mean":
                substitute = known.sum(1, keepdims=True) / np.maximum(there.sum(1, keepdims=True), 1)
                substitute[~there.any(1)] = np.nan  # a model without any valid value
            else:
                substitute = np.where(there, found, -np.inf).max(0, keepdims=True)
                keep &= there.any(0)  # where no model has a valid value, there is no worst one
            found = np.where(bad, substitute, found)
        values[metric] = found
    kept = {metric: found[:, keep] for metric, found in values.items()}
    return kept, keep, {model: int(count) for model, count in zip(matrix.models, counts, strict=True)}


def scale(values: Array, baseline: int) -> Array:
    """Each configuration divided by the baseline's value; what is equal, zero too, is 1."""
    base = values[baseline]
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(values == base, 1.0, values / base)


def scale_by_baseline(
    main: pd.DataFrame,
    *,
    baseline: str = BASELINE,
    metrics: Sequence[str] = (MASE, CRPS),
    invalid: Invalid = "column_mean",
) -> pd.DataFrame:
    """Replaces invalid values and divides by the baseline's value of the same configuration.

    Args:
        main: rows of the main part (see `split_degenerate`).
        baseline: the model that becomes 1.
        metrics: the columns that are divided.
        invalid: see `impute`.

    Returns:
        The rows with the divided columns; ``.attrs["imputed"]`` maps each model to its number of invalid values.

    Raises:
        ValueError: what `ResultMatrix` and `impute` refuse, or no results of the baseline.
    """
    matrix = ResultMatrix.of(main, metrics)
    values, keep, counts = impute(matrix, metrics, invalid)
    rows = matrix.rows[:, keep].reshape(-1)
    scaled = main.iloc[rows].copy()
    for metric in metrics:
        scaled[metric] = scale(values[metric], matrix.position(baseline)).reshape(-1)
    scaled.attrs["imputed"] = counts
    return scaled
