"""The reference numbers of gluonts and of the authors' own code (see golden/README.md for what each file holds)."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from boom_bench.metrics import Evaluator, MetricResult, evaluate
from boom_bench.tasks import Task, split

GOLDEN = Path(__file__).parent / "golden"
EVALUATIONS = sorted(path.stem for path in GOLDEN.glob("eval_*.json"))


def read_json(name: str) -> Any:
    return json.loads((GOLDEN / f"{name}.json").read_text("utf-8"))


def instances(name: str) -> tuple[list[Any], list[Any], list[Any], int]:
    """Labels, forecasts and inputs of a file, and its seasonality."""
    info, data = read_json(name), load_file(GOLDEN / f"{name}.safetensors")
    task = Task(None, "short", info["horizon"], info["windows"], info["seasonality"])
    windows = [w for i in range(len([k for k in data if k.startswith("series_")])) for w in split(data[f"series_{i}"], task)]
    assert len(windows) == info["n_instances"]
    forecasts: list[Any] = [data[f"fc_{k}"] for k in range(len(windows))]
    if info["forecast_type"] == "quantile":
        forecasts = [{"quantiles": forecast[:-1], "mean": forecast[-1]} for forecast in forecasts]
    return [w.label for w in windows], forecasts, [w.input for w in windows], info["seasonality"]


def same(found: float, expected: float | str | None, rtol: float = 1e-5) -> bool:
    if expected is None:
        return not math.isfinite(found)
    wanted = float(expected)
    if not math.isfinite(wanted):
        return math.isnan(found) if math.isnan(wanted) else found == wanted
    return math.isclose(found, wanted, rel_tol=rtol, abs_tol=1e-12)


def check(result: MetricResult, name: str) -> None:
    info = read_json(name)
    assert result.aggregated.keys() == info["aggregated"].keys()
    wrong = {key: (result[key], value) for key, value in info["aggregated"].items() if not same(result[key], value)}
    assert not wrong
    for key, values in (info["per_instance"] or {}).items():
        assert all(same(a, b) for a, b in zip(result.per_instance[key].tolist(), values, strict=True)), key


@pytest.mark.parametrize("name", EVALUATIONS)
def test_every_metric_equals_that_of_gluonts(name: str) -> None:
    labels, forecasts, inputs, seasonality = instances(name)
    check(evaluate(labels, forecasts, inputs, seasonality=seasonality), name)


@pytest.mark.parametrize("name", EVALUATIONS)
def test_every_metric_equals_that_of_gluonts_in_any_batches_and_order(name: str) -> None:
    labels, forecasts, inputs, seasonality = instances(name)
    evaluator = Evaluator()
    for k in reversed(range(1, len(labels))):
        evaluator.update(labels[k : k + 1], forecasts[k : k + 1], inputs[k : k + 1], seasonality=seasonality)
    evaluator.update(labels[:1], forecasts[:1], inputs[:1], seasonality=seasonality)
    whole = evaluate(labels, forecasts, inputs, seasonality=seasonality)
    for key, value in whole.aggregated.items():
        assert same(evaluator.result()[key], value, 1e-12)
