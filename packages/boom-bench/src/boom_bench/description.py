"""What a collection of series is like, before anything is run: lengths, frequencies, zeros, degenerate series."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
import pandas as pd

from boom_bench.baselines import SeasonalNaive
from boom_bench.config import TERMS
from boom_bench.data.series import Series
from boom_bench.frequencies import HORIZONS, parse_frequency
from boom_bench.running.one_task import Scoring
from boom_bench.tasks import Task, make_task, num_windows, prediction_length, seasonality


def describe(series: Iterable[Series], *, horizon: int | None = None) -> pd.DataFrame:
    """One row a series.

    Args:
        series: the series; one at a time is held.
        horizon: of one's own, in place of the frequency's.

    Returns:
        Index item_id; columns freq, seasonality, variates, length, missing (share), zeros (share of what is there),
        constant (number of variates), and windows_short, windows_medium, windows_long (0 = does not fit);
        ``degenerate`` tells whether the seasonal naive MASE of the short term is zero or NaN, so that the series would
        leave the scaled part.
    """
    rows = [_row(one, horizon) for one in series]
    return pd.DataFrame(rows).set_index("item_id") if rows else pd.DataFrame()


def _row(series: Series, horizon: int | None) -> dict[str, object]:
    values = series.target
    there = np.isfinite(values)
    windows = {f"windows_{term}": _windows(series, term, horizon) for term in TERMS}
    return {
        "item_id": series.item_id,
        "freq": series.freq,
        "seasonality": seasonality(series.freq),
        "variates": series.num_variates,
        "length": series.length,
        "missing": 1 - there.mean(),
        "zeros": float((values[there] == 0).mean()) if there.any() else math.nan,
        "constant": sum(len(np.unique(row[known])) <= 1 for row, known in zip(values, there, strict=True)),
        **windows,
        "degenerate": _degenerate(series, horizon) if windows["windows_short"] else None,
    }


def _steps(series: Series, term: str, horizon: int | None) -> int:
    if horizon is not None:
        return horizon
    return prediction_length(series.freq, term) if parse_frequency(series.freq).unit in HORIZONS else 0


def _windows(series: Series, term: str, horizon: int | None) -> int:
    steps = _steps(series, term, horizon)
    count = num_windows(series.length, steps) if steps else 0
    return count if count * steps < series.length else 0


def _degenerate(series: Series, horizon: int | None) -> bool:
    task: Task = make_task(series, "short", horizon=horizon)
    mase = Scoring("seasonalnaive")(SeasonalNaive(), task)["eval_metrics/MASE[0.5]"]
    return bool(mase == 0 or math.isnan(mase))
