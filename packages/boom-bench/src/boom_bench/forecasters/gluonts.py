"""GluonTS predictors as forecasters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from boom_bench.config import check_whole
from boom_bench.forecasters.backoff import HalvingBackoff

Array = NDArray[Any]


@dataclass
class GluonTSForecaster:
    """Wraps a GluonTS predictor, univariate (each variate is an item ``_dim<k>``) or multivariate.

    Args:
        predictor: a predictor, or a callable that makes one for a horizon (predictors have one horizon).
        multivariate: give it all variates as one target (V, T).
        batch_size: variates at a time; halved when memory runs out.

    Raises:
        TypeError: neither a predictor nor a callable.
    """

    predictor: Any
    multivariate: bool = False
    batch_size: int = 512
    wants_start = True
    _made: dict[int, Any] = field(default_factory=dict, init=False, repr=False)
    _backoff: HalvingBackoff = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if not hasattr(self.predictor, "predict") and not callable(self.predictor):
            raise TypeError(f"expected a GluonTS predictor or a callable, got {type(self.predictor).__name__}")
        self._backoff = HalvingBackoff(check_whole("batch_size", self.batch_size))

    def _for_horizon(self, horizon: int) -> Any:
        if hasattr(self.predictor, "predict"):
            made = self.predictor
        else:
            make: Callable[[int], Any] = self.predictor
            made = self._made.setdefault(horizon, None) or make(horizon)
            self._made[horizon] = made
        length = getattr(made, "prediction_length", horizon)
        if length < horizon:
            raise ValueError(
                f"the predictor forecasts {length} steps, {horizon} are needed: give a callable that makes one"
            )
        return made

    def __call__(
        self, context: Array, horizon: int, quantile_levels: Sequence[float], start: pd.Period | None = None
    ) -> Array | dict[str, Array]:
        """Forecasts a context (V, T) that begins at ``start``."""
        if start is None:
            raise ValueError("GluonTS predictors need the period at which the context begins (start)")
        predictor = self._for_horizon(horizon)
        if self.multivariate:
            items = [{"start": start, "target": np.asarray(context), "item_id": "series"}]
        else:
            items = [{"start": start, "target": row, "item_id": f"series_dim{k}"} for k, row in enumerate(context)]

        def attempt(size: int) -> list[Any]:
            return [
                forecast for at in range(0, len(items), size) for forecast in predictor.predict(items[at : at + size])
            ]

        return _stack(self._backoff(attempt, most=len(items)), horizon, quantile_levels)


def _stack(forecasts: Sequence[Any], horizon: int, levels: Sequence[float]) -> Array | dict[str, Array]:
    if hasattr(forecasts[0], "samples"):
        return np.concatenate([_variates_first(np.asarray(one.samples))[..., :horizon] for one in forecasts], axis=1)
    quantiles = [
        np.stack([_variates_first(np.asarray(one.quantile(float(level)))[None])[0] for level in levels])
        for one in forecasts
    ]
    found = {"quantiles": np.concatenate(quantiles, axis=1)[..., :horizon]}
    if all("mean" in getattr(one, "forecast_keys", ()) for one in forecasts):
        means = [_variates_first(np.asarray(one.mean)[None])[0] for one in forecasts]
        found["mean"] = np.concatenate(means, axis=0)[..., :horizon]
    return found


def _variates_first(values: Array) -> Array:
    """(S, H) or (S, H, V), as GluonTS has them, to (S, V, H)."""
    return values[:, None, :] if values.ndim == 2 else values.swapaxes(1, 2)
