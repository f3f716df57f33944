"""The reference numbers of gluonts and of the authors' own code (see golden/README.md for what each file holds)."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from safetensors.numpy import load_file

from boom_bench.config import CRPS, MAE, MASE
from boom_bench.data import low_variance_series, official_results, published_models
from boom_bench.leaderboard import breakdown, format_table, leaderboard, shifted_gmean, split_degenerate
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
    windows = [
        w for i in range(len([k for k in data if k.startswith("series_")])) for w in split(data[f"series_{i}"], task)
    ]
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


def subset_results() -> pd.DataFrame:
    inputs = read_json("leaderboard_subset.inputs")
    rows = [
        (model, name, *(math.nan if value is None else float(value) for value in values))
        for model, configurations in inputs["models"].items()
        for name, values in zip(inputs["configs"], configurations, strict=True)
    ]
    return pd.DataFrame(rows, columns=["model", "dataset", *inputs["metrics"]])


@pytest.fixture(scope="module")
def published() -> pd.DataFrame:
    return official_results()


def check_table(results: pd.DataFrame, expected: dict[str, Any], rtol: float, rank_atol: float) -> None:
    main, flat = f"{expected['n_nonzero']}-scaled", f"{expected['n_zero']}-unscaled"
    columns = {
        f"MASE-{main}": ("nonzero_scaled", MASE),
        f"CRPS-{main}": ("nonzero_scaled", CRPS),
        f"{MAE}-{flat}": ("zero_unscaled", MAE),
        f"CRPS-{flat}": ("zero_unscaled", CRPS),
    }
    order = expected["models_in_order"]
    part: Any
    tolerances: Any
    for tie in ("first", "average", "min"):
        table = leaderboard(results, tie=tie, order=order)
        ranks = {f"Rank-{main}": ("nonzero_scaled", f"rank_{tie}"), f"Rank-{flat}": ("zero_unscaled", f"rank_{tie}")}
        assert set(table.columns) == {*columns, *ranks}
        assert table[f"Rank-{main}"].is_monotonic_increasing
        for part, tolerances in ((columns, {"rtol": rtol, "atol": 0.0}), (ranks, {"rtol": 0, "atol": rank_atol})):
            for column, (where, key) in part.items():
                wanted = [expected[where][model][key] for model in table.index]
                np.testing.assert_allclose(table[column], wanted, err_msg=f"{tie} {column}", **tolerances)


def check_breakdown(results: pd.DataFrame, expected: dict[str, Any], properties: Any, rtol: float) -> None:
    names = {"full_benchmark": "full_benchmark", "real_term": "term", "type": "type", "domain": "domain"}
    tables = breakdown(results, by=list(names.values()), properties=properties)
    for theirs, ours in names.items():
        wanted = {
            (metric, group, model): value
            for metric, models in expected["breakdown_shifted_gmean"][theirs].items()
            for model, groups in models.items()
            for group, value in groups.items()
        }
        found = {
            (m, g, model): tables[ours].loc[model, (m, g)] for m, g in tables[ours] for model in tables[ours].index
        }
        assert found.keys() == wanted.keys()
        np.testing.assert_allclose([found[key] for key in wanted], list(wanted.values()), rtol=rtol)


def test_the_subset_leaderboard_equals_the_official_code() -> None:
    expected = read_json("leaderboard_subset.expected")
    check_table(subset_results(), expected, 1e-9, 1e-9)
    _, flat = split_degenerate(subset_results())
    assert sorted(flat["dataset"].unique()) == expected["excluded_configs"]


def test_the_subset_breakdown_equals_the_official_code() -> None:
    properties = read_json("leaderboard_subset.inputs")["properties"]
    check_breakdown(subset_results(), read_json("leaderboard_subset.expected"), properties, 1e-9)


def test_the_full_leaderboard_equals_the_official_code(published: pd.DataFrame) -> None:
    check_table(published, read_json("full_leaderboard.expected"), 1e-4, 0.03)


def test_the_full_breakdown_equals_the_official_code(published: pd.DataFrame) -> None:
    check_breakdown(published, read_json("full_leaderboard.expected"), None, 1e-4)


@pytest.mark.parametrize("name", ["leaderboard_subset", "full_leaderboard"])
def test_tables_are_formatted_as_the_official_code_does(name: str, published: pd.DataFrame) -> None:
    results = subset_results() if name == "leaderboard_subset" else published
    expected = read_json(f"{name}.expected")
    table = format_table(leaderboard(results, tie="first", order=expected["models_in_order"]))
    for column, cells in expected["official_formatted_table"].items():
        if name == "leaderboard_subset" or not column.startswith("Rank"):
            assert table[column].to_dict() == cells, column
    if name == "leaderboard_subset":
        assert list(table.index) == list(expected["official_formatted_table"]["MASE-80-scaled"])


def test_the_counts_of_configurations_and_series_are_the_published_ones(published: pd.DataFrame) -> None:
    main, flat = split_degenerate(published)
    series = {name.split("/")[0] for name in flat["dataset"].unique()}
    assert (published["dataset"].nunique(), main["dataset"].nunique(), flat["dataset"].nunique()) == (7413, 6750, 663)
    assert (len(series), published["model"].nunique(), len(low_variance_series())) == (253, 23, 80)


def test_boomlet_has_90_scaled_and_6_unscaled_configurations(published: pd.DataFrame) -> None:
    table = leaderboard(published, boomlet=True)
    assert list(table.columns)[::3] == ["MASE-90-scaled", f"{MAE}-6-unscaled"]


def test_the_headline_numbers_are_those_of_the_paper(published: pd.DataFrame) -> None:
    table = format_table(leaderboard(published, tie="first", order=published_models()))
    headline = {
        "toto_2.0_2.5b": ("0.581", "0.349"),
        "toto": ("0.617", "0.375"),
        "chronos_2": ("0.641", "0.392"),
        "moirai_1.1_base": ("0.710", "0.428"),
        "autoets": ("0.842", "1.975"),
        "seasonalnaive": ("1.000", "1.000"),
    }
    assert {model: tuple(table.loc[model].iloc[:2]) for model in headline} == headline
    assert table.loc["toto"].iloc[3:5].tolist() == ["0.001", "0.025"]


def test_the_shifted_geometric_mean_equals_the_official_one() -> None:
    for case in read_json("shifted_gmean"):
        assert shifted_gmean(case["x"]) == pytest.approx(case["shifted_gmean"], rel=1e-12)
