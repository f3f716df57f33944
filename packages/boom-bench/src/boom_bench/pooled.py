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
    mean: Array | None,
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
        mean: (B, V, H); None = the median.
        lower: (B, V, H), the quantile 0.025.
        upper: (B, V, H), the quantile 0.975.
        seasonal_errors: (B, V).

    Returns:
        (B, len(COLUMNS) + Q) float64.
    """
    block = _Block(labels, valid)
    error = block.error(median)
    sums = np.empty((len(labels), len(COLUMNS) + len(levels)))
    sums[:, 0] = block.count.sum(1)
    sums[:, 1] = block.size.sum((1, 2))
    sums[:, 3] = _dot(error, error)
    sums[:, 4] = sums[:, 3] if mean is None else _dot(*[block.error(mean)] * 2)
    off = np.abs(error, out=error)
    by_variate = off.sum(2)
    sums[:, 2] = by_variate.sum(1)
    sums[:, 5], sums[:, 6] = block.mean_of_ratio(off, block.size)
    spread = np.abs(median)
    spread += block.size
    sums[:, 7], sums[:, 8] = block.mean_of_ratio(off, spread)
    sums[:, 7] *= 2
    sums[:, 9], sums[:, 10] = block.scaled_mean(off, by_variate, seasonal_errors)
    score = block.zero(interval_score(block.labels, lower, upper))
    sums[:, 11], sums[:, 12] = block.scaled_mean(score, score.sum(2), seasonal_errors)
    for column, (level, forecast) in enumerate(zip(levels, quantiles, strict=True), len(COLUMNS)):
        sums[:, column] = quantile_loss(block.error(forecast), level)
    return sums


class _Block:
    """Labels of a block with what is done to all its arrays: leaving out what does not count."""

    def __init__(self, labels: Array, valid: Array | None) -> None:
        self.labels = np.asarray(labels, dtype=np.float64)
        self.valid, self.left_out = valid, None if valid is None else ~valid
        if valid is not None:
            self.labels = np.where(valid, self.labels, 0)
        self.size = np.abs(self.labels)
        self.count = np.full(labels.shape[:2], labels.shape[2]) if valid is None else valid.sum(2)

    def zero(self, values: Array) -> Array:
        """Sets what does not count to 0, in place."""
        if self.left_out is not None:
            np.copyto(values, 0, where=self.left_out)
        return values

    def error(self, forecast: Array) -> Array:
        """Label - forecast, 0 where the label does not count."""
        return self.zero(np.subtract(self.labels, forecast, dtype=np.float64))

    def mean_of_ratio(self, numerator: Array, denominator: Array) -> tuple[Array, Array]:
        """Sum and number of the ratios that are finite, of each instance."""
        with np.errstate(all="ignore"):
            ratio = numerator / denominator
        total = self.zero(ratio).sum((1, 2))
        if np.isfinite(total).all():
            return total, self.count.sum(1)
        there = np.isfinite(ratio) if self.valid is None else np.isfinite(ratio) & self.valid
        return np.where(there, ratio, 0).sum((1, 2)), there.sum((1, 2))

    def scaled_mean(self, values: Array, by_variate: Array, scale: Array) -> tuple[Array, Array]:
        """Sum and number of values / scale that are finite; both are those of whole variates."""
        with np.errstate(all="ignore"):
            ratio = by_variate / scale
        if not np.isfinite(by_variate).all() or np.isinf(ratio[scale > 0]).any():
            return self.mean_of_ratio(values, scale[:, :, None])
        there = np.isfinite(ratio)
        return np.where(there, ratio, 0).sum(1), np.where(there, self.count, 0).sum(1)


def _dot(first: Array, second: Array) -> Array:
    """Sum of the products of each instance."""
    return np.asarray(np.einsum("bvh,bvh->b", first, second))


def quantile_loss(error: Array, level: float) -> Array:
    """Sum of QL_q = 2 |(y - f)(1[f >= y] - q)| of each instance, which is sum |e| + (2q - 1) sum e with e = y - f.

    Args:
        error: (B, V, H), y - f; is overwritten.
        level: q.

    Returns:
        (B,).
    """
    signed = error.sum((1, 2))
    total = np.abs(error, out=error).sum((1, 2)) + (2 * level - 1) * np.where(np.isfinite(signed), signed, 0)
    return np.asarray(total)


def interval_score(labels: Array, lower: Array, upper: Array) -> Array:
    """MSIS's numerator: u - l + (2 / alpha) ((l - y)+ + (y - u)+)."""
    missed = np.subtract(lower, labels, dtype=np.float64)
    np.maximum(missed, 0, out=missed)
    above = np.subtract(labels, upper, dtype=np.float64)
    missed += np.maximum(above, 0, out=above)
    missed *= 2 / PROTOCOL.msis_alpha
    missed += np.subtract(upper, lower, out=above)
    return missed


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
