"""gluonts' own evaluation of the same forecasts, as the official code calls it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from boom_bench.config import PROTOCOL
from boom_bench.instances import Forecast
from boom_bench.pooled import NAMES
from boom_bench.tasks import Task
from nips_common.runtime import require

Array = NDArray[Any]
_EXTRA = "boom-bench[gluonts]"


def gluonts_metrics(series: Sequence[Array], forecasts: Sequence[Forecast], task: Task) -> dict[str, float]:
    """The 11 metrics by gluonts.

    Args:
        series: arrays (V, T) with equal V.
        forecasts: those of all windows, series by series; samples or quantiles at the protocol's levels.
        task: horizon, windows and seasonality.

    Returns:
        Name to value.

    Raises:
        ImportError: gluonts is missing; names the extra.
    """
    ev = require("gluonts.ev.metrics", _EXTRA)
    evaluation = require("gluonts.model.evaluation", _EXTRA)
    splitting = require("gluonts.dataset.split", _EXTRA)
    levels, start = PROTOCOL.quantile_levels, pd.Period("2024-01-01", "h")
    single = len(series[0]) == 1
    data = [
        {"target": one[0] if single else one, "start": start, "item_id": str(number)}
        for number, one in enumerate(series)
    ]
    _, template = splitting.split(data, offset=-task.horizon * task.windows)
    test = template.generate_instances(prediction_length=task.horizon, windows=task.windows, distance=task.horizon)
    metrics = [
        ev.MSE(forecast_type="mean"), ev.MSE(forecast_type=0.5), ev.MAE(), ev.MASE(), ev.MAPE(), ev.SMAPE(), ev.MSIS(),
        ev.RMSE(), ev.NRMSE(), ev.ND(), ev.MeanWeightedSumQuantileLoss(quantile_levels=list(levels)),
    ]  # fmt: skip
    theirs = [_theirs(forecast, start, single) for forecast in forecasts]
    row = evaluation.evaluate_forecasts(
        iter(theirs), test_data=test, metrics=metrics, batch_size=512, seasonality=task.seasonality
    ).iloc[0]
    return {name: float(row[name]) for name in NAMES}


def _theirs(forecast: Forecast, start: pd.Period, single: bool) -> Any:
    models = require("gluonts.model.forecast", _EXTRA)
    if not isinstance(forecast, Mapping):
        return models.SampleForecast(_time_first(np.asarray(forecast), single), start)
    arrays, keys = [*forecast["quantiles"]], [str(level) for level in PROTOCOL.quantile_levels]
    if forecast.get("mean") is not None:
        arrays, keys = [*arrays, forecast["mean"]], [*keys, "mean"]
    return models.QuantileForecast(_time_first(np.stack(arrays), single), start, keys)


def _time_first(values: Array, single: bool) -> Array:
    """(N, V, H) as gluonts has it: (N, H), or (N, H, V)."""
    return values[:, 0] if single else values.swapaxes(1, 2)
