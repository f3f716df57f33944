"""What is refused, in which words; what the command line and the readers refuse is tested beside them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
import pytest

from boom_bench import BoomConfig, Evaluator, evaluate
from boom_bench.baselines import Drift, SeasonalNaive
from boom_bench.data import Series
from boom_bench.frequencies import parse_frequency
from boom_bench.leaderboard.configurations import parse_configuration
from boom_bench.tasks import Task, num_windows, prediction_length, split
from nips_common.testing.bad_input import BadInput, bad_inputs

LABEL, PAST = np.ones((2, 4)), np.arange(20.0).reshape(2, 10)
QUANTILES = {"quantiles": np.ones((9, 2, 4))}


def scored(labels: Any = (LABEL,), forecasts: Any = (QUANTILES,), inputs: Any = (PAST,), **options: Any) -> Any:
    return evaluate(labels, forecasts, inputs, **{"seasonality": 1, **options})


EVALUATIONS = [
    BadInput(
        "a shorter horizon",
        lambda: scored(forecasts=[{"quantiles": np.ones((9, 2, 3))}]),
        ("forecast 0", "(9, 2, 3)", "(9, 2, 4)"),
    ),
    BadInput("another number of variates", lambda: scored(forecasts=[np.ones((5, 1, 4))]), ("(5, 1, 4)", "(5, 2, 4)")),
    BadInput("another number of levels", lambda: scored(forecasts=[{"quantiles": np.ones((8, 2, 4))}]), ("(8, 2, 4)",)),
    BadInput(
        "a mean of another shape", lambda: scored(forecasts=[{**QUANTILES, "mean": np.ones(4)}]), ("mean", "(4,)")
    ),
    BadInput("no quantiles", lambda: scored(forecasts=[{"mean": LABEL}]), ("quantiles", "['mean']")),
    BadInput("an unknown key", lambda: scored(forecasts=[{**QUANTILES, "median": LABEL}]), ("median",)),
    BadInput("samples without an axis", lambda: scored(forecasts=[LABEL]), ("(samples, variates, horizon)", "(2, 4)")),
    BadInput("no sample", lambda: scored(forecasts=[np.ones((0, 2, 4))]), ("(0, 2, 4)",)),
    BadInput("words", lambda: scored(forecasts=["up"]), ("str",)),
    BadInput(
        "NaN quantiles", lambda: scored(forecasts=[{"quantiles": np.full((9, 2, 4), math.nan)}]), ("forecast 0", "NaN")
    ),
    BadInput("a NaN mean", lambda: scored(forecasts=[{**QUANTILES, "mean": LABEL * math.nan}]), ("forecast 0", "NaN")),
    BadInput(
        "a NaN sample",
        lambda: scored(forecasts=[np.where(np.arange(5) < 4, 1.0, math.nan)[:, None, None] * np.ones((5, 2, 4))]),
        ("forecast 0", "NaN"),
    ),
    BadInput("fewer forecasts", lambda: scored(labels=[LABEL] * 2, inputs=[PAST] * 2), ("equally many", "after 1")),
    BadInput("more masks", lambda: scored(mask=[LABEL > 0] * 2), ("equally many",)),
    BadInput("a mask of numbers", lambda: scored(mask=[LABEL]), ("mask 0", "float64")),
    BadInput("an input of other variates", lambda: scored(inputs=[PAST[:1]]), ("input 0", "1 variates", "2")),
    BadInput("an input without variates", lambda: scored(inputs=[PAST[0]]), ("input 0", "(10,)")),
    BadInput("a label without variates", lambda: scored(labels=[LABEL[0]]), ("label 0", "(4,)")),
    BadInput("nothing", lambda: scored([], [], []), ("no instance",)),
    BadInput("no season", lambda: scored(seasonality=0), ("seasonality", "0")),
    BadInput("falling levels", lambda: scored(quantile_levels=(0.9, 0.5)), ("rise", "(0.9, 0.5)")),
    BadInput("a level of 1", lambda: scored(quantile_levels=(0.5, 1.0)), ("between 0 and 1",)),
    BadInput(
        "other levels in a later batch",
        lambda: (
            Evaluator()
            .update([LABEL], [QUANTILES], [PAST], seasonality=1)
            .update([LABEL], [{"quantiles": np.ones((1, 2, 4))}], [PAST], seasonality=1, quantile_levels=(0.5,))
        ),
        ("earlier batch", "(0.5,)"),
    ),
    BadInput(
        "inputs and their errors",
        lambda: Evaluator().update([LABEL], [QUANTILES], [PAST], seasonality=1, seasonal_errors=[LABEL[:, 0]]),
        ("not both",),
    ),
]
OTHERS = [
    BadInput("an unknown term", lambda: prediction_length("H", "Short"), ("short, medium, long", "'Short'")),
    BadInput("an unknown frequency", lambda: parse_frequency("fortnight"), ("10S", "'fortnight'")),
    BadInput("no multiple", lambda: parse_frequency("0H"), ("'0H'",)),
    BadInput("no frequency", lambda: parse_frequency(5), ("5",)),  # type: ignore[arg-type]
    BadInput("no length", lambda: num_windows(0, 48), ("length", "0")),
    BadInput("no horizon", lambda: Task(None, "short", 0, 1, 1), ("horizon", "0")),
    BadInput("a task without a name", lambda: Task(None, "short", 1, 1, 1).name, ("without a series",)),
    BadInput("an array of one axis", lambda: split(np.zeros(9), Task(None, "short", 1, 1, 1)), ("(9,)",)),
    BadInput(
        "an unknown part",
        lambda: split(np.zeros((1, 9)), Task(None, "short", 1, 1, 1), part="train"),  # type: ignore[arg-type]
        ("test or validation",),
    ),
    BadInput("a series without a name", lambda: Series("", pd.Period("2024", "h"), "H", LABEL), ("item_id",)),
    BadInput("a season of 0", lambda: SeasonalNaive(0), ("seasonality", "0")),
    BadInput("an empty context", lambda: Drift()(np.zeros((1, 0)), 1, (0.5,)), ("(1, 0)",)),
    BadInput("a horizon of 0", lambda: Drift()(np.zeros((1, 5)), 0, (0.5,)), ("horizon", "0")),
    BadInput("a configuration without parts", lambda: parse_configuration("ds-0-T"), ("'ds-0-T'",)),
    BadInput("a context of 0", lambda: BoomConfig(context=0), ("context", "0")),
    BadInput("a whole test fraction", lambda: BoomConfig(test_fraction=1.0), ("test_fraction", "1.0")),
    BadInput("a negative epsilon", lambda: BoomConfig(epsilon=-1), ("epsilon", "-1")),
    BadInput("levels that are none", lambda: BoomConfig(quantile_levels="high"), ("'high'",)),  # type: ignore[arg-type]
]


@bad_inputs(EVALUATIONS)
def test_what_cannot_be_scored_is_named(case: BadInput) -> None:
    case.check()


@bad_inputs(OTHERS)
def test_what_cannot_be_is_named(case: BadInput) -> None:
    case.check()


def test_all_missing_labels_are_no_error_and_score_nan() -> None:
    found = scored(labels=[LABEL * math.nan])
    assert all(math.isnan(value) for value in found.aggregated.values())


def test_infinite_forecasts_score_infinite(recwarn: pytest.WarningsRecorder) -> None:
    found = scored(forecasts=[{"quantiles": np.full((9, 2, 4), math.inf)}])
    assert found["MAE[0.5]"] == found["mean_weighted_sum_quantile_loss"] == math.inf
