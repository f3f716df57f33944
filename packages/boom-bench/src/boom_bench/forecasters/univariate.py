"""Models that forecast quantiles of one variate at a time: chronos-style pipelines, fracast, statsforecast."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from boom_bench.baselines import fill_missing
from boom_bench.config import check_whole
from boom_bench.forecasters.backoff import HalvingBackoff
from boom_bench.forecasters.contract import as_array, at_levels, merge
from nips_common.assets import find_asset
from nips_common.runtime import require

if TYPE_CHECKING:
    from boom_bench.tasks import Task

Array = NDArray[Any]
LEAST_FRACAST = 8  # points of a variate, which the package asks for


@dataclass
class ChronosForecaster:
    """A pipeline with ``predict_quantiles(context, prediction_length=, quantile_levels=)``: chronos-forecasting's.

    Args:
        pipeline: the pipeline; it gets a float32 tensor (B, T), or (B, 1, T) for Chronos-2, with NaN for missing
            points, and gives quantiles (B, H, Q), or for Chronos-2 a list of (1, H, Q), and means.
        batch_size: variates at a time; halved when memory runs out.

    Raises:
        TypeError: an object without that method.
    """

    pipeline: Any
    batch_size: int = 512
    _backoff: HalvingBackoff = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if not hasattr(self.pipeline, "predict_quantiles"):
            raise TypeError(f"expected a pipeline with predict_quantiles, got {type(self.pipeline).__name__}")
        self._backoff = HalvingBackoff(check_whole("batch_size", self.batch_size))

    def __call__(self, context: Array, horizon: int, quantile_levels: Sequence[float]) -> dict[str, Array]:
        """Forecasts a context (V, T)."""
        torch = require("torch", "torch")
        series = torch.from_numpy(np.ascontiguousarray(context, dtype=np.float32))
        multivariate = "Chronos2" in type(self.pipeline).__name__

        def attempt(size: int) -> list[dict[str, Array]]:
            parts = []
            for at in range(0, len(series), size):
                rows = series[at : at + size]
                found = self.pipeline.predict_quantiles(
                    rows[:, None] if multivariate else rows,
                    prediction_length=horizon,
                    quantile_levels=list(quantile_levels),
                )
                quantiles, mean = (_rows(part, len(rows)) for part in found)
                parts.append({"quantiles": np.moveaxis(quantiles, -1, 0), "mean": mean})
            return parts

        return merge(self._backoff(attempt, most=len(series)))


def _rows(values: Any, count: int) -> Array:
    """(B, H, ...) from a tensor, or from a list of (1, H, ...)."""
    found = np.concatenate([as_array(part) for part in values]) if isinstance(values, list) else as_array(values)
    return found.reshape(count, *found.shape[-(found.ndim - 1) :])


def chronos(model: str, *, device: str = "cpu", batch_size: int = 512) -> ChronosForecaster:
    """A pipeline of chronos-forecasting from a folder or hub id.

    Raises:
        ImportError: the package is not there.
    """
    pipeline = require("chronos", "chronos-forecasting").BaseChronosPipeline.from_pretrained(model, device_map=device)
    return ChronosForecaster(pipeline, batch_size)


@dataclass
class FracastForecaster:
    """The small pre-trained model of the package fracast, with its weights inside.

    Args:
        model: a ``FracastModel``.
    """

    model: Any

    def __call__(self, context: Array, horizon: int, quantile_levels: Sequence[float]) -> dict[str, Array]:
        """Forecasts a context (V, T) of at least eight points."""
        series = np.array(context, dtype=np.float32)
        tail = series[:, -self.model.context_length :]
        sparse = np.isfinite(tail).sum(1) < LEAST_FRACAST
        series[sparse] = fill_missing(series[sparse]) if sparse.any() else series[sparse]
        quantiles = np.moveaxis(self.model.forecast(series, horizon=horizon), -1, 0)
        return {"quantiles": at_levels(quantiles, self.model.quantiles, quantile_levels)}


def fracast(folder: str | Path | None = None) -> FracastForecaster:
    """The pre-trained model, from the installed package or the fetched asset ``fracast``.

    Args:
        folder: holds the package; None = wherever it is installed, else the asset.

    Raises:
        AssetMissing: neither is there; names the command that fetches it.
    """
    try:
        package = importlib.import_module("fracast")
    except ModuleNotFoundError:
        place = str(find_asset("fracast") if folder is None else folder)
        sys.path.append(place)
        try:
            package = importlib.import_module("fracast")
        finally:
            sys.path.remove(place)
    return FracastForecaster(package.FracastModel.from_pretrained(weights="fp32"))


@dataclass(frozen=True)
class StatsForecaster:
    """A model of statsforecast, fitted to each variate of each window; missing points are filled with the last value.

    Args:
        make: makes the model from a season length: ``statsforecast.models.AutoETS`` and the like, called as
            make(season_length=m).
        seasonality: m; None = the task's.
    """

    make: Callable[..., Any]
    seasonality: int | None = None

    def for_task(self, task: Task) -> Self:
        """The same with the task's season."""
        return self if self.seasonality is not None else replace(self, seasonality=task.seasonality)

    def __call__(self, context: Array, horizon: int, quantile_levels: Sequence[float]) -> dict[str, Array]:
        """Forecasts a context (V, T)."""
        series = fill_missing(context)
        season = self.seasonality or 1
        if season >= series.shape[1]:
            season = 1
        return merge([self._one(row, horizon, season, quantile_levels) for row in series])

    def _one(self, row: Array, horizon: int, season: int, levels: Sequence[float]) -> dict[str, Array]:
        # a quantile q is an end of the central interval of |2q - 1|
        widths = {level: round(100 * abs(2 * level - 1), 6) for level in levels if level != 0.5}
        found = self.make(season_length=season).forecast(y=row, h=horizon, level=sorted(set(widths.values())) or None)
        ends = [
            found["mean"]
            if level == 0.5
            else found[f"{'lo' if level < 0.5 else 'hi'}-{_interval(found, widths[level])}"]
            for level in levels
        ]
        return {"mean": np.asarray(found["mean"])[None], "quantiles": np.stack(ends)[:, None]}


def _interval(found: dict[str, Any], width: float) -> str:
    """The interval's name, which holds its width as it was given: 80 or 80.0."""
    return next(name for name in (f"{width:g}", str(width)) if f"lo-{name}" in found)


def statsforecast(name: str) -> StatsForecaster:
    """A model of statsforecast by its class's name.

    Raises:
        ImportError: statsforecast is missing; names the extra.
        ValueError: no such model.
    """
    models = require("statsforecast.models", "boom-bench[statsforecast]")
    if name not in models.__all__:
        raise ValueError(f"statsforecast has no model {name!r}; there are {', '.join(models.__all__)}")
    return StatsForecaster(getattr(models, name))
