"""The sums that all metrics are made of, for a block of instances at once: numpy over (instances, variates, steps).

Sums of different instances add up, so that results do not depend on batches. Labels that do not count are left out of
every sum; a division by zero, or one that overflows, leaves its term out of the mean, as numpy's masked arrays do in
the official evaluation.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from boom_bench.config import PROTOCOL

Array = NDArray[Any]

# Columns of the sums; behind them one column a quantile level.
COLUMNS = (
    "labels", "abs_label", "abs_error", "squared_error", "squared_error_mean", "ape", "ape_count", "sape",
    "sape_count", "ase", "ase_count", "interval", "interval_count",
)  # fmt: skip
LEFT, RIGHT = PROTOCOL.msis_alpha / 2, 1 - PROTOCOL.msis_alpha / 2
NAMES = (
    "MSE[mean]", "MSE[0.5]", "MAE[0.5]", "MASE[0.5]", "MAPE[0.5]", "sMAPE[0.5]", "MSIS", "RMSE[mean]", "NRMSE[mean]",
    "ND[0.5]", "mean_weighted_sum_quantile_loss",
)  # fmt: skip


def block_sums(
    labels: Array,
    valid: Array | None,
    quantiles: Array,
    levels: Sequence[float],
    median: Array,
    mean: Array,
    lower: Array,
    upper: Array,
    seasonal_errors: Array,
) -> Array:
    """Sums of each instance.

    Args:
        labels: (B, V, H), finite where they count.
        valid: (B, V, H) bool, which labels count; None = all.
        quantiles: (Q, B, V, H) at ``levels``.
        levels: Q levels.
        median: (B, V, H).
        mean: (B, V, H).
        lower: (B, V, H), the quantile 0.025.
        upper: (B, V, H), the quantile 0.975.
        seasonal_errors: (B, V).

    Returns:
        (B, len(COLUMNS) + Q) float64.
    """
    y = np.asarray(labels, dtype=np.float64)
    if valid is not None:
        y = np.where(valid, y, 0)

    def total(values: Array) -> Array:
        return np.asarray((values if valid is None else np.where(valid, values, 0)).sum((1, 2)))

    def mean_of_ratio(numerator: Array, denominator: Array) -> tuple[Array, Array]:
        with np.errstate(all="ignore"):
            ratio = numerator / denominator
        counts = np.isfinite(ratio) if valid is None else np.isfinite(ratio) & valid
        return np.where(counts, ratio, 0).sum((1, 2)), counts.sum((1, 2))

    size = np.abs(y)
    error = np.subtract(y, median, dtype=np.float64)
    off = np.abs(error)
    sums = np.empty((len(y), len(COLUMNS) + len(levels)))
    sums[:, 0] = y[0].size if valid is None else valid.sum((1, 2))
    sums[:, 1] = total(size)
    sums[:, 2] = total(off)
    sums[:, 3] = total(error * error)
    sums[:, 4] = total(np.square(np.subtract(y, mean, dtype=np.float64)))
    sums[:, 5], sums[:, 6] = mean_of_ratio(off, size)
    sums[:, 7], sums[:, 8] = mean_of_ratio(2 * off, size + np.abs(median))
    scale = seasonal_errors[:, :, None]
    sums[:, 9], sums[:, 10] = mean_of_ratio(off, scale)
    sums[:, 11], sums[:, 12] = mean_of_ratio(interval_score(y, lower, upper), scale)
    for column, (level, forecast) in enumerate(zip(levels, quantiles, strict=True), len(COLUMNS)):
        sums[:, column] = total(quantile_loss(y, forecast, level))
    return sums


def quantile_loss(labels: Array, forecast: Array, level: float) -> Array:
    """QL_q = 2 |(y - f)(1[f >= y] - q)|, which is 2 max(q (y - f), (q - 1)(y - f))."""
    error = np.subtract(labels, forecast, dtype=np.float64)
    below = error * (2 * (level - 1))
    error *= 2 * level
    return np.asarray(np.maximum(error, below, out=error))


def interval_score(labels: Array, lower: Array, upper: Array) -> Array:
    """MSIS's numerator: u - l + (2 / alpha) ((l - y)+ + (y - u)+)."""
    missed = np.maximum(lower - labels, 0.0) + np.maximum(labels - upper, 0.0)
    return np.asarray(upper - lower + (2 / PROTOCOL.msis_alpha) * missed)


def metrics_of(sums: Array) -> dict[str, Array]:
    """The 11 metrics from sums.

    Args:
        sums: (N, len(COLUMNS) + Q); a row of added-up sums gives the pooled metrics.

    Returns:
        Name to (N,). A mean over nothing is NaN; ND, NRMSE and CRPS of labels that are all zero are infinite.
    """
    column = {name: sums[:, index] for index, name in enumerate(COLUMNS)}
    labels, abs_label = column["labels"], column["abs_label"]
    with np.errstate(divide="ignore", invalid="ignore"):
        mean_squared = column["squared_error_mean"] / labels
        values = (
            mean_squared,
            column["squared_error"] / labels,
            column["abs_error"] / labels,
            column["ase"] / column["ase_count"],
            column["ape"] / column["ape_count"],
            column["sape"] / column["sape_count"],
            column["interval"] / column["interval_count"],
            np.sqrt(mean_squared),
            np.sqrt(mean_squared) / (abs_label / labels),
            column["abs_error"] / abs_label,
            (sums[:, len(COLUMNS) :] / abs_label[:, None]).mean(1),
        )
    return dict(zip(NAMES, values, strict=True))
