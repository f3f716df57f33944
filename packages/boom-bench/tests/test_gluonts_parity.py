"""The metrics against gluonts itself, on the same forecasts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from boom_bench.metrics import evaluate
from boom_bench.pooled import NAMES
from boom_bench.tasks import Task, split

LEVELS = tuple(q / 10 for q in range(1, 10))


def gluonts_metrics(series: list[Any], forecasts: list[Any], horizon: int, windows: int, seasonality: int) -> Any:
    from gluonts.dataset.split import split as gluonts_split
    from gluonts.ev import metrics as ev
    from gluonts.model.evaluation import evaluate_forecasts

    data = [{"target": one, "start": pd.Period("2024-01-01", "h"), "item_id": str(i)} for i, one in enumerate(series)]
    _, template = gluonts_split(data, offset=-horizon * windows)
    test = template.generate_instances(prediction_length=horizon, windows=windows, distance=horizon)
    wanted = [
        ev.MSE(forecast_type="mean"), ev.MSE(forecast_type=0.5), ev.MAE(), ev.MASE(), ev.MAPE(), ev.SMAPE(), ev.MSIS(),
        ev.RMSE(), ev.NRMSE(), ev.ND(), ev.MeanWeightedSumQuantileLoss(quantile_levels=list(LEVELS)),
    ]  # fmt: skip
    return evaluate_forecasts(
        iter(forecasts), test_data=test, metrics=wanted, batch_size=512, seasonality=seasonality
    ).iloc[0]


@pytest.mark.parametrize("kind", ["quantiles", "samples"])
@pytest.mark.parametrize("missing", [False, True])
def test_all_metrics_equal_those_of_gluonts(kind: str, missing: bool) -> None:
    from gluonts.model.forecast import QuantileForecast, SampleForecast

    draw = np.random.default_rng(0)
    horizon, windows, start = 8, 3, pd.Period("2024-01-01", "h")
    series = [draw.normal(3, 2, 80 + 7 * i) for i in range(5)]
    if missing:
        for one in series:
            one[draw.random(len(one)) < 0.15] = np.nan
    task = Task(None, "short", horizon, windows, 6)
    found = [window for one in series for window in split(one[None], task)]
    theirs: list[Any]
    if kind == "quantiles":
        arrays = [
            np.concatenate([np.sort(draw.normal(3, 2, (9, horizon)), axis=0), draw.normal(3, 2, (1, horizon))])
            for _ in found
        ]
        theirs = [QuantileForecast(a, start, [*map(str, LEVELS), "mean"]) for a in arrays]
        ours: list[Any] = [{"quantiles": a[:9, None], "mean": a[9][None]} for a in arrays]
    else:
        arrays = [draw.normal(3, 2, (21, horizon)) for _ in found]
        theirs = [SampleForecast(a, start) for a in arrays]
        ours = [a[:, None] for a in arrays]
    expected = gluonts_metrics(series, theirs, horizon, windows, 6)
    result = evaluate([w.label for w in found], ours, [w.input for w in found], seasonality=6)
    for name in NAMES:
        assert result[name] == pytest.approx(expected[name], rel=1e-6), name
