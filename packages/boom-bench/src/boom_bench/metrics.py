"""MASE, CRPS and the nine other metrics of BOOM (arXiv 2505.14766), equal to gluonts' and much faster.

Everything in a configuration is pooled: items x windows x variates x steps. An instance is one window of one series.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from boom_bench.config import PROTOCOL, check_levels, check_whole
from boom_bench.instances import Forecast, Instance, blocks, errors_of, nan_message, read_instances, stack_arrays
from boom_bench.pooled import LEFT, NAMES, RIGHT, block_sums, metrics_of
from boom_bench.quantiles import between_levels, crossings, holds_nan

Array = NDArray[Any]
LEVELS = PROTOCOL.quantile_levels


@dataclass(frozen=True)
class MetricResult:
    """The metrics of a set of instances; ``result["MASE[0.5]"]`` is the pooled value.

    Attributes:
        aggregated: name to value, pooled over all instances. NaN where nothing counts, infinite for ND, NRMSE and CRPS
            where all labels are zero.
        per_instance: name to (N,) array, the same metrics over one instance's variates and steps.
    """

    aggregated: dict[str, float]
    per_instance: dict[str, Array]

    def __getitem__(self, name: str) -> float:
        return self.aggregated[name]


@dataclass
class Evaluator:
    """Collects instances in batches of any size and any order; the pooled metrics do not depend on either.

    Args:
        sort_quantiles: make crossing quantiles monotone by sorting them; without it they are scored as they are, with
            one warning.
        warn: give that warning; without it, `crossed` alone tells.

    Attributes:
        crossed: how many quantiles lay below the one of the next lower level, and were not sorted.
    """

    sort_quantiles: bool = False
    warn: bool = True
    crossed: int = field(default=0, init=False)
    _sums: list[Array] = field(default_factory=list, repr=False)
    _levels: tuple[float, ...] | None = field(default=None, repr=False)

    def update(
        self,
        labels: Iterable[Array],
        forecasts: Iterable[Forecast],
        inputs: Iterable[Array] | None,
        *,
        seasonality: int,
        quantile_levels: Sequence[float] = LEVELS,
        mask: Iterable[Array] | None = None,
        seasonal_errors: Iterable[Array] | None = None,
    ) -> Self:
        """Adds instances; all arguments may be generators, and only a block of instances is held at a time.

        Args:
            labels: N arrays (V, H); NaN and infinite labels do not count.
            forecasts: N items, each an array (S, V, H) of samples, or {"quantiles": (Q, V, H) at ``quantile_levels``,
                "mean": (V, H)}, where the mean is optional and else the median.
            inputs: N arrays (V, past), the whole history before each label.
            seasonality: m of the seasonal error.
            quantile_levels: the Q levels of quantile forecasts, over which CRPS averages.
            mask: N bool arrays (V, H), True = counts.
            seasonal_errors: N arrays (V,), in place of ``inputs``, where a caller has them.

        Raises:
            ValueError: shapes that do not fit, a NaN in a forecast, different numbers of labels, forecasts and inputs,
                other levels than in an earlier batch. The evaluator is unchanged.
        """
        levels = check_levels(quantile_levels)
        check_whole("seasonality", seasonality)
        if self._levels not in (None, levels):
            raise ValueError(f"quantile_levels were {self._levels} in an earlier batch, now {levels}")
        if (inputs is None) == (seasonal_errors is None):
            raise ValueError("give inputs, or seasonal_errors in their place, not both")
        scales = errors_of(inputs, seasonality) if seasonal_errors is None else seasonal_errors  # type: ignore[arg-type]
        instances = read_instances(labels, forecasts, scales, mask, levels)
        sums = [self._score(block, levels) for block in blocks(instances)]
        self._sums += sums
        self._levels = levels
        return self

    @np.errstate(invalid="ignore")  # differences of infinite quantiles; the metrics tell of them
    def _score(self, block: list[Instance], levels: tuple[float, ...]) -> Array:
        labels = stack_arrays([one.labels for one in block])
        valid = np.isfinite(labels)
        if any(one.mask is not None for one in block):
            valid &= np.stack([np.ones(one.labels.shape, bool) if one.mask is None else one.mask for one in block])
        quantiles = stack_arrays([one.quantiles for one in block], axis=1)
        means = None if all(one.mean is None for one in block) else [one.mean for one in block]
        if holds_nan(quantiles) or any(mean is not None and holds_nan(mean) for mean in means or ()):
            raise ValueError(nan_message(block))
        known, count = quantiles[: len(levels)], len(levels)
        if self.sort_quantiles:
            known = np.sort(known, axis=0)
        elif crossed := crossings(known):
            if self.warn and not self.crossed:
                warnings.warn(f"{crossed} quantiles cross; sort_quantiles=True makes them monotone", stacklevel=4)
            self.crossed += crossed
        if len(quantiles) > count:  # samples: their order statistics are there
            lower, median, upper = quantiles[count:]
        else:
            lower, median, upper = (between_levels(known, levels, level) for level in (LEFT, 0.5, RIGHT))
        mean = None
        if means is not None:
            mean = stack_arrays([median[index] if one is None else one for index, one in enumerate(means)])
        scales = np.stack([one.scale for one in block])
        every = None if valid.all() else valid
        return block_sums(labels, every, known, levels, median, mean, lower, upper, scales)

    def result(self) -> MetricResult:
        """The metrics of all instances so far.

        Raises:
            ValueError: there is none.
        """
        if not self._sums:
            raise ValueError("no instance has been given to the evaluator")
        sums = np.concatenate(self._sums)
        pooled = metrics_of(sums.sum(0, keepdims=True))
        return MetricResult({name: float(pooled[name][0]) for name in NAMES}, metrics_of(sums))


def evaluate(
    labels: Iterable[Array],
    forecasts: Iterable[Forecast],
    inputs: Iterable[Array],
    *,
    seasonality: int,
    quantile_levels: Sequence[float] = LEVELS,
    mask: Iterable[Array] | None = None,
    sort_quantiles: bool = False,
) -> MetricResult:
    """All metrics of a set of instances.

    Args:
        labels: N arrays (V, H); NaN and infinite labels do not count.
        forecasts: N items, each samples (S, V, H), or {"quantiles": (Q, V, H), "mean": (V, H)} with an optional mean.
        inputs: N arrays (V, past), the history before each label.
        seasonality: m of the seasonal error; 1 is taken for a history shorter than m.
        quantile_levels: the Q levels.
        mask: N bool arrays (V, H), True = counts.
        sort_quantiles: make crossing quantiles monotone.

    Returns:
        Pooled and per-instance metrics under the 11 names of the protocol.

    Raises:
        ValueError: what `Evaluator.update` refuses; no instance at all.
    """
    return (
        Evaluator(sort_quantiles)
        .update(labels, forecasts, inputs, seasonality=seasonality, quantile_levels=quantile_levels, mask=mask)
        .result()
    )


def mase(labels: Iterable[Array], forecasts: Iterable[Forecast], inputs: Iterable[Array], **options: Any) -> float:
    """MASE = mean(|y - f_0.5| / seasonal error); arguments and errors as for `evaluate`."""
    return evaluate(labels, forecasts, inputs, **options)["MASE[0.5]"]


def msis(labels: Iterable[Array], forecasts: Iterable[Forecast], inputs: Iterable[Array], **options: Any) -> float:
    """MSIS of the central 95 % interval; arguments and errors as for `evaluate`."""
    return evaluate(labels, forecasts, inputs, **options)["MSIS"]


def crps(labels: Iterable[Array], forecasts: Iterable[Forecast], inputs: Iterable[Array], **options: Any) -> float:
    """CRPS = mean over the levels of sum QL_q / sum |y|; arguments and errors as for `evaluate`."""
    return evaluate(labels, forecasts, inputs, **options)["mean_weighted_sum_quantile_loss"]


wql = crps


def mae(labels: Iterable[Array], forecasts: Iterable[Forecast], inputs: Iterable[Array], **options: Any) -> float:
    """MAE of the median; arguments and errors as for `evaluate`."""
    return evaluate(labels, forecasts, inputs, **options)["MAE[0.5]"]


def mse(labels: Iterable[Array], forecasts: Iterable[Forecast], inputs: Iterable[Array], **options: Any) -> float:
    """MSE of the mean; arguments and errors as for `evaluate`."""
    return evaluate(labels, forecasts, inputs, **options)["MSE[mean]"]


def rmse(labels: Iterable[Array], forecasts: Iterable[Forecast], inputs: Iterable[Array], **options: Any) -> float:
    """Root of the MSE of the mean; arguments and errors as for `evaluate`."""
    return evaluate(labels, forecasts, inputs, **options)["RMSE[mean]"]


def nd(labels: Iterable[Array], forecasts: Iterable[Forecast], inputs: Iterable[Array], **options: Any) -> float:
    """ND = sum |y - f_0.5| / sum |y|; arguments and errors as for `evaluate`."""
    return evaluate(labels, forecasts, inputs, **options)["ND[0.5]"]


def mape(labels: Iterable[Array], forecasts: Iterable[Forecast], inputs: Iterable[Array], **options: Any) -> float:
    """MAPE of the median, zero labels left out; arguments and errors as for `evaluate`."""
    return evaluate(labels, forecasts, inputs, **options)["MAPE[0.5]"]


def smape(labels: Iterable[Array], forecasts: Iterable[Forecast], inputs: Iterable[Array], **options: Any) -> float:
    """SMAPE = mean(2 |y - f| / (|y| + |f|)) of the median; arguments and errors as for `evaluate`."""
    return evaluate(labels, forecasts, inputs, **options)["sMAPE[0.5]"]
