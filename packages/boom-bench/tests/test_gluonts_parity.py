"""The metrics against gluonts itself, on the same forecasts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from boom_bench.experiment.gluonts_check import gluonts_metrics
from boom_bench.metrics import evaluate
from boom_bench.pooled import NAMES
from boom_bench.tasks import Task, split


@pytest.mark.parametrize("kind", ["quantiles", "samples"])
@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("variates", [1, 3])
def test_all_metrics_equal_those_of_gluonts(kind: str, missing: bool, variates: int) -> None:
    draw = np.random.default_rng(0)
    task = Task(None, "short", 8, 3, 6)
    series = [draw.normal(3, 2, (variates, 80 + 7 * i)) for i in range(5)]
    if missing:
        for one in series:
            one[draw.random(one.shape) < 0.15] = np.nan
    windows = [window for one in series for window in split(one, task)]
    forecasts: list[Any] = [draw.normal(3, 2, (21, variates, 8)) for _ in windows]
    if kind == "quantiles":
        forecasts = [
            {
                "quantiles": np.sort(draw.normal(3, 2, (9, variates, 8)), axis=0),
                "mean": draw.normal(3, 2, (variates, 8)),
            }
            for _ in windows
        ]
    expected = gluonts_metrics(series, forecasts, task)
    result = evaluate([w.label for w in windows], forecasts, [w.input for w in windows], seasonality=6)
    for name in NAMES:
        assert result[name] == pytest.approx(expected[name], rel=1e-6), name


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")  # in gluonts
def test_infinite_samples_score_as_in_gluonts() -> None:
    draw = np.random.default_rng(1)
    task = Task(None, "short", 8, 2, 6)
    series = [draw.normal(3, 2, (2, 80))]
    windows = list(split(series[0], task))
    forecasts: list[Any] = [draw.normal(3, 2, (21, 2, 8)) for _ in windows]
    for one in forecasts:
        one[:, 0, 3] = np.inf
    expected = gluonts_metrics(series, forecasts, task)
    result = evaluate([w.label for w in windows], forecasts, [w.input for w in windows], seasonality=6)
    assert np.isinf(result["MAE[0.5]"])
    for name in NAMES:
        assert result[name] == pytest.approx(expected[name], rel=1e-6), name
