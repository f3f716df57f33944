"""Forecasts of chosen windows, kept beside the results for the HTML page."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from boom_bench.forecasters.contract import Forecaster, for_task, forecast_window
from boom_bench.instances import read_forecast
from boom_bench.quantiles import between_levels
from boom_bench.running.one_task import Scoring, series_of
from boom_bench.tasks import Task, split
from nips_common.artifacts import write_json

FILE = "windows.json"
LEVELS = (0.1, 0.5, 0.9)
MOST_VARIATES = 3
MOST_HISTORY = 240


def show_window(forecaster: Forecaster, scoring: Scoring, task: Task, index: int = -1) -> list[dict[str, Any]]:
    """What the page draws of one window: history, label and three quantiles of its first variates.

    Args:
        forecaster: the forecaster.
        scoring: with which settings.
        task: the configuration.
        index: of the window; -1 = the last.

    Raises:
        ValueError: there is no such window; what the scoring of the forecast refuses.
    """
    windows = list(split(series_of(task), task))
    if not -len(windows) <= index < len(windows):
        raise ValueError(f"{task.name} has {len(windows)} windows, got {index}")
    window = windows[index]
    forecast = forecast_window(
        for_task(forecaster, task), window, task.horizon, scoring.quantile_levels, scoring.context
    )
    levels = scoring.quantile_levels
    quantiles, _ = read_forecast(forecast, window.label.shape, levels, f"{task.name}: the forecast")
    bands = [between_levels(quantiles[: len(levels)], levels, level) for level in LEVELS]
    shown = min(max(2 * task.horizon, 48), MOST_HISTORY, window.input.shape[1])
    return [
        {
            "model": scoring.model,
            "dataset": task.name,
            "window": window.index,
            "variate": variate,
            "history": _plain(window.input[variate, -shown:]),
            "label": _plain(window.label[variate]),
            "quantiles": {str(level): _plain(band[variate]) for level, band in zip(LEVELS, bands, strict=True)},
        }
        for variate in range(min(len(window.label), MOST_VARIATES))
    ]


def _plain(values: Sequence[float] | np.ndarray[Any, Any]) -> list[float | None]:
    return [float(f"{value:.6g}") if math.isfinite(value) else None for value in np.asarray(values, float).tolist()]


def write_windows(folder: str | Path, windows: Iterable[dict[str, Any]]) -> None:
    """Writes what `show_window` gave beside the results."""
    write_json(Path(folder) / FILE, {"windows": list(windows)})


def read_windows(folder: str | Path, models: Iterable[str]) -> list[dict[str, Any]]:
    """The windows kept beside the results of some models; those without any are passed over.

    Raises:
        ValueError: a file that is not one of `write_windows`; names it.
    """
    found: list[dict[str, Any]] = []
    for model in models:
        file = Path(folder) / model / FILE
        if file.is_file():
            try:
                found += [_checked(window) for window in json.loads(file.read_text("utf-8"))["windows"]]
            except (ValueError, KeyError, TypeError) as error:
                raise ValueError(f"{file}: not a file of kept windows ({type(error).__name__}: {error})") from None
    return found


def _checked(window: dict[str, Any]) -> dict[str, Any]:
    """A window as `show_window` gives it; KeyError, TypeError or ValueError for anything else."""
    names = {name: window[name] for name in ("model", "dataset", "window", "variate")}
    lines = {name: np.array(window[name], dtype=float) for name in ("history", "label")}
    bands = {str(level): np.array(window["quantiles"][str(level)], dtype=float) for level in LEVELS}
    if (
        any(line.shape != lines["label"].shape or line.ndim != 1 for line in bands.values())
        or lines["history"].ndim != 1
    ):
        raise ValueError("the quantiles of a window do not fit its label")
    plain = {level: _plain(line) for level, line in bands.items()}
    return {**names, **{name: _plain(line) for name, line in lines.items()}, "quantiles": plain}
