"""The instances that are scored, one window of one series each: read in step, checked, gathered in blocks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from boom_bench.pooled import LEFT, RIGHT
from boom_bench.quantiles import from_samples, holds_nan
from boom_bench.seasonal_error import seasonal_error

Array = NDArray[Any]
Forecast: TypeAlias = Array | Mapping[str, Any]
BLOCK_POINTS = 2**14  # label points worked on at once: few enough for the cache, enough to hide Python
_NONE = object()


@dataclass(frozen=True)
class Instance:
    """One checked instance: quantiles are (Q, V, H), for samples with the three further levels behind them."""

    number: int
    labels: Array
    quantiles: Array
    mean: Array | None
    scale: Array
    mask: Array | None


def errors_of(inputs: Iterable[Array], seasonality: int) -> Iterator[Array]:
    """The seasonal error (V,) of each history (V, past); ValueError for another shape."""
    for number, history in enumerate(inputs):
        found = np.asarray(history)
        if found.ndim != 2:
            raise ValueError(f"input {number} must be (variates, past), got shape {found.shape}")
        yield seasonal_error(found, seasonality)


def read_instances(
    labels: Iterable[Array],
    forecasts: Iterable[Forecast],
    scales: Iterable[Array],
    masks: Iterable[Array] | None,
    levels: tuple[float, ...],
) -> Iterator[Instance]:
    """Reads instances in step and checks them.

    Args:
        labels: arrays (V, H).
        forecasts: of either kind.
        scales: seasonal errors (V,).
        masks: bool arrays (V, H), or None.
        levels: of the quantiles.

    Raises:
        ValueError: shapes that do not fit, different numbers of them; names the number of the instance.
    """
    columns: list[Iterable[Any]] = [labels, forecasts, scales, *([] if masks is None else [masks])]
    for number, row in enumerate(zip_longest(*columns, fillvalue=_NONE)):
        if any(part is _NONE for part in row):
            raise ValueError(
                f"labels, forecasts, inputs and masks must be equally many, one of them ends after {number}"
            )
        label, forecast, scale, *rest = row
        found = np.asarray(label)
        if found.ndim != 2:
            raise ValueError(f"label {number} must be (variates, horizon), got shape {found.shape}")
        mask = np.asarray(rest[0]) if rest else None
        if mask is not None and (mask.shape != found.shape or mask.dtype != bool):
            raise ValueError(f"mask {number} must be bool {found.shape}, got {mask.dtype} {mask.shape}")
        error = np.asarray(scale)
        if error.shape != found.shape[:1]:
            raise ValueError(f"input {number} has {len(error)} variates, its label {len(found)}")
        quantiles, mean = read_forecast(forecast, found.shape, levels, f"forecast {number}")
        yield Instance(number, found, quantiles, mean, error, mask)


def read_forecast(
    forecast: Forecast, shape: tuple[int, ...], levels: tuple[float, ...], what: str = "the forecast"
) -> tuple[Array, Array | None]:
    """The quantiles and the mean of a forecast of either kind.

    Args:
        forecast: samples (S, V, H) or {"quantiles": (Q, V, H), "mean": (V, H) or absent}.
        shape: (V, H) that it must have.
        levels: the Q levels.
        what: how an error calls it.

    Returns:
        (Q, V, H), for samples (Q + 3, V, H) with the quantiles 0.025, 0.5 and 0.975 behind them; and the mean, (V, H)
        or None.

    Raises:
        ValueError: another shape, another horizon, other variates, no real numbers, or neither kind.
    """
    if isinstance(forecast, Mapping):
        if "quantiles" not in forecast or set(forecast) - {"quantiles", "mean"}:
            raise ValueError(f'{what} must hold "quantiles" and may hold "mean", got {sorted(forecast)}')
        quantiles = _numbers(forecast["quantiles"], f"{what}: quantiles")
        _check_shape(quantiles, (len(levels), *shape), f"{what}: quantiles")
        mean = forecast.get("mean")
        if mean is not None:
            mean = _numbers(mean, f"{what}: mean")
            _check_shape(mean, shape, f"{what}: mean")
        return quantiles, mean
    samples = np.asarray(forecast)
    if samples.dtype == object or samples.ndim != 3 or not len(samples):
        raise ValueError(
            f"{what} must be samples (samples, variates, horizon) or a dict with quantiles, "
            f"got {type(forecast).__name__} of shape {samples.shape}"
        )
    _numbers(samples, f"{what}: samples")
    _check_shape(samples, (len(samples), *shape), f"{what}: samples")
    # NaN sorts to the end, behind the largest order statistic that is looked at: ask for it here.
    if holds_nan(samples):
        raise ValueError(f"{what} holds NaN")
    return from_samples(samples, [*levels, LEFT, 0.5, RIGHT]), samples.mean(0, dtype=np.float64)


def _numbers(values: Any, what: str) -> Array:
    found = np.asarray(values)
    if found.dtype.kind in "OSUcMm":
        raise ValueError(f"{what} must hold real numbers, got {found.dtype}")
    return found


def _check_shape(found: Array, wanted: tuple[int, ...], what: str) -> None:
    if found.shape != wanted:
        axes = "(levels or samples, variates, horizon)" if len(wanted) == 3 else "(variates, horizon)"
        raise ValueError(f"{what} must have shape {wanted} {axes}, got {found.shape}")


def blocks(instances: Iterator[Instance]) -> Iterator[list[Instance]]:
    """Runs of instances of one shape, up to a number of label points."""
    block: list[Instance] = []
    points = 0
    for one in instances:
        fits = not block or (
            one.labels.shape == block[0].labels.shape and len(one.quantiles) == len(block[0].quantiles)
        )
        if block and (points >= BLOCK_POINTS or not fits):
            yield block
            block, points = [], 0
        block.append(one)
        points += one.labels.size
    if block:
        yield block


def stack_arrays(arrays: list[Array], axis: int = 0) -> Array:
    """`numpy.stack`, without copying a single array."""
    return np.expand_dims(arrays[0], axis) if len(arrays) == 1 else np.stack(arrays, axis=axis)


def nan_message(block: list[Instance]) -> str:
    """Names the first instance whose forecast holds NaN."""
    parts = ((one.number, part) for one in block for part in (one.quantiles, one.mean) if part is not None)
    return f"forecast {next(number for number, part in parts if holds_nan(part))} holds NaN"
