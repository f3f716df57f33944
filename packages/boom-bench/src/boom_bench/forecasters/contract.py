"""What a forecaster is: any callable on plain arrays, with two optional extensions.

    forecaster(context, horizon, quantile_levels) -> samples (S, V, H), or {"quantiles": (Q, V, H), "mean": (V, H)}

``context`` is (V, T) with NaN for missing points. A forecaster with a method ``for_task(task)`` is asked for the one of
each configuration first (frequency, season); one with ``wants_start = True`` also gets the keyword ``start``, the
pandas Period of the context's first point.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from boom_bench.instances import Forecast
from boom_bench.quantiles import between_levels
from boom_bench.tasks import Task, Window

Array = NDArray[Any]


class Forecaster(Protocol):
    """A callable on a context (V, T)."""

    def __call__(self, context: Array, horizon: int, quantile_levels: Sequence[float], /) -> Forecast:
        """Forecasts ``horizon`` steps at ``quantile_levels``, or gives samples."""


def check_forecaster(forecaster: object) -> Forecaster:
    """Returns it; TypeError for what cannot be called."""
    if not callable(forecaster):
        raise TypeError(
            "a forecaster is called as forecaster(context, horizon, quantile_levels), "
            f"and {type(forecaster).__name__} cannot be called"
        )
    return cast(Forecaster, forecaster)


def for_task(forecaster: Forecaster, task: Task) -> Forecaster:
    """The forecaster of one configuration."""
    bind = getattr(forecaster, "for_task", None)
    return forecaster if bind is None else check_forecaster(bind(task))


def forecast_window(
    forecaster: Forecaster, window: Window, horizon: int, levels: Sequence[float], context: int
) -> Forecast:
    """The forecast of a window from a copy of the last ``context`` points of its history.

    A view would let a forecaster that works in place change the series, which later windows and other models see.
    """
    history = window.input[:, -context:].copy()
    extra: dict[str, Any] = {}
    if getattr(forecaster, "wants_start", False):
        extra["start"] = None if window.start is None else window.start - history.shape[1]
    return forecaster(history, horizon, levels, **extra)


def at_levels(quantiles: Array, known: Sequence[float], levels: Sequence[float]) -> Array:
    """Quantiles at the wanted levels from those that a model gives.

    Args:
        quantiles: (K, V, H) at ``known``.
        known: K rising levels.
        levels: the wanted ones.

    Returns:
        (Q, V, H).
    """
    rounded = [round(float(level), 6) for level in known]
    return np.stack([between_levels(quantiles, rounded, round(float(level), 6)) for level in levels])


def as_array(values: Any) -> Array:
    """A numpy array from an array, a list or a torch tensor on any device, also of bfloat16."""
    if hasattr(values, "detach"):
        values = values.detach().float().cpu().numpy()
    return np.asarray(values)


def merge(parts: Sequence[Mapping[str, Array]]) -> dict[str, Array]:
    """Quantile forecasts of several variates, one below the other."""
    return {
        "mean": np.concatenate([part["mean"] for part in parts], axis=0),
        "quantiles": np.concatenate([part["quantiles"] for part in parts], axis=1),
    }
