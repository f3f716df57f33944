"""One configuration: its windows are forecast and scored one after the other, and give one row."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from boom_bench.config import PROTOCOL
from boom_bench.data.reference import series_properties
from boom_bench.data.series import Series
from boom_bench.forecasters.contract import Forecaster, for_task, forecast_window
from boom_bench.metrics import Evaluator
from boom_bench.pooled import NAMES
from boom_bench.seasonal_error import growing_seasonal_errors
from boom_bench.tasks import Task, split

log = logging.getLogger(__name__)
_TOLD: set[str] = set()
COLUMNS = ("dataset", "model", *(f"eval_metrics/{name}" for name in NAMES), "domain", "num_variates")


@dataclass(frozen=True)
class Scoring:
    """How configurations are scored.

    Args:
        model: goes into the rows.
        context: newest points of a history that a forecaster sees.
        quantile_levels: levels it is asked for.
        sort_quantiles: make crossing quantiles monotone.
    """

    model: str
    context: int = PROTOCOL.context
    quantile_levels: tuple[float, ...] = PROTOCOL.quantile_levels
    sort_quantiles: bool = False

    def __call__(self, forecaster: Forecaster, task: Task) -> dict[str, Any]:
        """The row of a configuration.

        Raises:
            ValueError: a forecast with NaN, of another horizon or other variates; names configuration and window.
        """
        series = series_of(task)
        bound = for_task(forecaster, task)
        windows = list(split(series, task))  # views; forecasts are made and dropped one by one
        errors = growing_seasonal_errors(series.target, [w.input.shape[1] for w in windows], task.seasonality)
        forecasts = (
            forecast_window(bound, window, task.horizon, self.quantile_levels, self.context) for window in windows
        )
        evaluator = Evaluator(self.sort_quantiles, warn=False)
        try:
            evaluator.update(
                [window.label for window in windows],
                forecasts,
                None,
                seasonality=task.seasonality,
                quantile_levels=self.quantile_levels,
                seasonal_errors=errors,
            )
        except ValueError as error:
            raise ValueError(f"{task.name}: {error}") from error
        result = evaluator.result()
        if evaluator.crossed:
            tell_once(
                self.model, f"{task.name}: {evaluator.crossed} quantiles cross; sort_quantiles makes them monotone"
            )
        if math.isinf(result["MAE[0.5]"]):
            log.warning(
                "%s: infinite forecasts: MAE is infinite, and MASE leaves them out as the official evaluation does",
                task.name,
            )
        metrics = {f"eval_metrics/{name}": value for name, value in result.aggregated.items()}
        return {
            "dataset": task.name,
            "model": self.model,
            **metrics,
            "domain": domain_of(series.item_id),
            "num_variates": series.num_variates,
        }

    def settings(self) -> Mapping[str, Any]:
        """What rows of one file must share."""
        return {
            "context": self.context,
            "quantile_levels": list(self.quantile_levels),
            "sort_quantiles": self.sort_quantiles,
        }


def tell_once(model: str, text: str) -> None:
    """A warning at a model's first configuration; the later ones go to the debug log."""
    log.log(logging.DEBUG if model in _TOLD else logging.WARNING, "%s", text)
    _TOLD.add(model)


def series_of(task: Task) -> Series:
    """The task's series; ValueError for a task without one."""
    if task.series is None:
        raise ValueError("a task without a series cannot be run")
    return task.series


def domain_of(item_id: str) -> str:
    """The published domains of a series, joined by commas; empty for a series of one's own."""
    found = series_properties().get(item_id)
    return "" if found is None else ", ".join(found.domain)
