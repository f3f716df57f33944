"""What the metrics promise: the formulas themselves, invariances, masks, and their two kinds of forecast."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from boom_bench import metrics
from boom_bench.metrics import Evaluator, MetricResult, evaluate
from boom_bench.pooled import NAMES
from boom_bench.quantiles import between_levels, from_samples, order_statistic
from boom_bench.seasonal_error import growing_seasonal_errors, seasonal_error

LEVELS = tuple(q / 10 for q in range(1, 10))


def case(seed: int = 0, instances: int = 4, variates: int = 2, horizon: int = 6, past: int = 40) -> Any:
    """Labels, quantile forecasts and inputs."""
    draw = np.random.default_rng(seed)
    inputs = [draw.normal(5, 2, (variates, past)) for _ in range(instances)]
    labels = [draw.normal(5, 2, (variates, horizon)) for _ in range(instances)]
    forecasts = [
        {
            "quantiles": np.sort(draw.normal(5, 2, (9, variates, horizon)), axis=0),
            "mean": draw.normal(5, 2, (variates, horizon)),
        }
        for _ in range(instances)
    ]
    return labels, forecasts, inputs


def close(found: MetricResult, expected: MetricResult, rtol: float = 1e-12) -> None:
    for name in NAMES:
        np.testing.assert_allclose(found[name], expected[name], rtol=rtol, err_msg=name)


def test_each_metric_is_its_formula() -> None:
    labels, forecasts, inputs = case()
    y, f = np.stack(labels), np.stack([one["quantiles"] for one in forecasts], axis=1)
    mean, median, m = np.stack([one["mean"] for one in forecasts]), f[4], 7
    scale = np.stack([np.abs(x[:, m:] - x[:, :-m]).mean(1) for x in inputs])[:, :, None]
    lower, upper = (between_levels(f, LEVELS, q) for q in (0.025, 0.975))
    interval = upper - lower + 40 * (lower - y) * (y < lower) + 40 * (y - upper) * (y > upper)
    losses = [2 * np.abs((y - f[i]) * ((f[i] >= y) - q)).sum() / np.abs(y).sum() for i, q in enumerate(LEVELS)]
    rmse = math.sqrt(((y - mean) ** 2).mean())
    expected = {
        "MSE[mean]": ((y - mean) ** 2).mean(),
        "MSE[0.5]": ((y - median) ** 2).mean(),
        "MAE[0.5]": np.abs(y - median).mean(),
        "MASE[0.5]": (np.abs(y - median) / scale).mean(),
        "MAPE[0.5]": (np.abs(y - median) / np.abs(y)).mean(),
        "sMAPE[0.5]": (2 * np.abs(y - median) / (np.abs(y) + np.abs(median))).mean(),
        "MSIS": (interval / scale).mean(),
        "RMSE[mean]": rmse,
        "NRMSE[mean]": rmse / np.abs(y).mean(),
        "ND[0.5]": np.abs(y - median).sum() / np.abs(y).sum(),
        "mean_weighted_sum_quantile_loss": np.mean(losses),
    }
    found = evaluate(labels, forecasts, inputs, seasonality=m)
    assert tuple(found.aggregated) == NAMES
    for name, value in expected.items():
        assert found[name] == pytest.approx(value, rel=1e-12), name


@pytest.mark.parametrize(
    ("function", "name"),
    [
        ("mase", "MASE[0.5]"), ("msis", "MSIS"), ("crps", "mean_weighted_sum_quantile_loss"), ("mae", "MAE[0.5]"),
        ("wql", "mean_weighted_sum_quantile_loss"), ("mse", "MSE[mean]"), ("rmse", "RMSE[mean]"), ("nd", "ND[0.5]"),
        ("mape", "MAPE[0.5]"), ("smape", "sMAPE[0.5]"),
    ],
)  # fmt: skip
def test_a_single_metric_is_that_of_evaluate(function: str, name: str) -> None:
    assert getattr(metrics, function)(*case(), seasonality=7) == evaluate(*case(), seasonality=7)[name]


def test_a_perfect_forecast_has_no_loss() -> None:
    labels, _, inputs = case()
    perfect = [{"quantiles": np.repeat(label[None], 9, axis=0)} for label in labels]
    found = evaluate(labels, perfect, inputs, seasonality=1)
    assert {name: found[name] for name in NAMES} == dict.fromkeys(NAMES, 0.0)


def test_the_crps_of_a_point_forecast_is_its_nd() -> None:
    labels, forecasts, inputs = case()
    points = [{"quantiles": np.repeat(one["mean"][None], 9, axis=0)} for one in forecasts]
    found = evaluate(labels, points, inputs, seasonality=1)
    assert found["mean_weighted_sum_quantile_loss"] == pytest.approx(found["ND[0.5]"], rel=1e-14)


def test_a_missing_mean_is_the_median() -> None:
    labels, forecasts, inputs = case()
    without = [{"quantiles": one["quantiles"]} for one in forecasts]
    found = evaluate(labels, without, inputs, seasonality=1)
    assert found["MSE[mean]"] == found["MSE[0.5]"]


@given(scale=st.floats(1e-3, 1e3), seed=st.integers(0, 100))
@settings(max_examples=20, deadline=None)
def test_crps_and_nd_do_not_depend_on_the_unit(scale: float, seed: int) -> None:
    labels, forecasts, inputs = case(seed)
    scaled = [{name: value * scale for name, value in one.items()} for one in forecasts]
    found = evaluate([scale * y for y in labels], scaled, [scale * x for x in inputs], seasonality=3)
    expected = evaluate(labels, forecasts, inputs, seasonality=3)
    for name in ("mean_weighted_sum_quantile_loss", "ND[0.5]"):
        assert found[name] == pytest.approx(expected[name], rel=1e-9)


@given(seed=st.integers(0, 100), shift=st.floats(-50, 50), scale=st.floats(0.01, 100))
@settings(max_examples=20, deadline=None)
def test_mase_does_not_depend_on_level_and_unit_of_a_series(seed: int, shift: float, scale: float) -> None:
    labels, forecasts, inputs = case(seed)
    a, b = np.array([[scale], [1.0]]), np.array([[shift], [-shift]])
    moved = [{name: value * a + b for name, value in one.items()} for one in forecasts]
    found = evaluate([y * a + b for y in labels], moved, [x * a + b for x in inputs], seasonality=3)
    assert found["MASE[0.5]"] == pytest.approx(
        evaluate(labels, forecasts, inputs, seasonality=3)["MASE[0.5]"], rel=1e-6
    )


@given(seed=st.integers(0, 1000), cut=st.integers(1, 6))
@settings(max_examples=20, deadline=None)
def test_batches_and_order_do_not_change_the_aggregate(seed: int, cut: int) -> None:
    labels, forecasts, inputs = case(seed, instances=7)
    order = np.random.default_rng(seed).permutation(7)
    evaluator = Evaluator()
    for part in (order[:cut], order[cut:]):
        evaluator.update(
            [labels[i] for i in part], [forecasts[i] for i in part], [inputs[i] for i in part], seasonality=3
        )
    close(evaluator.result(), evaluate(labels, forecasts, inputs, seasonality=3))


def test_series_of_different_shapes_are_pooled_in_their_order() -> None:
    small, large = case(1, instances=3), case(2, instances=2, variates=5, horizon=9)
    both = tuple(a + b + a[:1] for a, b in zip(small, large, strict=True))
    found = evaluate(*both, seasonality=3)
    parts = [evaluate(*one, seasonality=3).per_instance["MASE[0.5]"] for one in (small, large)]
    np.testing.assert_allclose(found.per_instance["MASE[0.5]"], [*parts[0], *parts[1], parts[0][0]], rtol=1e-12)


def test_generators_are_read_once_and_in_step() -> None:
    labels, forecasts, inputs = case()
    found = evaluate(iter(labels), (one for one in forecasts), iter(inputs), seasonality=3)
    close(found, evaluate(labels, forecasts, inputs, seasonality=3), rtol=0)


def test_masked_labels_never_change_a_result() -> None:
    labels, forecasts, inputs = case()
    mask = [np.random.default_rng(k).random(label.shape) > 0.3 for k, label in enumerate(labels)]
    expected = evaluate(labels, forecasts, inputs, seasonality=3, mask=mask)
    for other in (0.0, 1e30, math.nan, math.inf):
        changed = [np.where(keep, label, other) for keep, label in zip(mask, labels, strict=True)]
        close(evaluate(changed, forecasts, inputs, seasonality=3, mask=mask), expected, rtol=0)
    missing = [np.where(keep, label, math.nan) for keep, label in zip(mask, labels, strict=True)]
    close(evaluate(missing, forecasts, inputs, seasonality=3), expected, rtol=0)


def test_samples_are_read_by_order_statistics_rounded_half_to_even() -> None:
    assert [order_statistic(2, 0.5), order_statistic(4, 0.5), order_statistic(256, 0.1)] == [0, 2, 26]
    samples = np.random.default_rng(0).normal(size=(10, 2, 3))
    expected = np.sort(samples, axis=0)[[1, 4, 8]]
    np.testing.assert_array_equal(from_samples(samples, [0.1, 0.5, 0.9]), expected)


def test_samples_in_any_order_score_the_same() -> None:
    labels, _, inputs = case(instances=2)
    samples = [np.random.default_rng(k).normal(5, 2, (32, 2, 6)) for k in range(2)]
    shuffled = [one[np.random.default_rng(9).permutation(32)] for one in samples]
    close(evaluate(labels, shuffled, inputs, seasonality=3), evaluate(labels, samples, inputs, seasonality=3))


def test_the_tails_of_quantile_forecasts_go_through_their_knots() -> None:
    values = np.array([[1.0], [2.0], [4.0]])
    for level, value in ((0.1, 1.0), (0.5, 2.0), (0.9, 4.0)):
        assert between_levels(values, [0.1, 0.5, 0.9], level)[0] == value
    assert between_levels(values, [0.1, 0.5, 0.9], 0.3)[0] == pytest.approx(1.5)
    # left: y1 + (y1 - y0) / ln(q1 / q0) * ln(q / q1); right: the mirror image in 1 - q
    assert between_levels(values, [0.1, 0.5, 0.9], 0.02)[0] == pytest.approx(2 + math.log(0.04) / math.log(5), abs=1e-5)
    assert between_levels(values, [0.1, 0.5, 0.9], 0.98)[0] == pytest.approx(
        2 + 2 * math.log(25) / math.log(5), rel=1e-6
    )
    with pytest.raises(ValueError, match="single level"):
        between_levels(values[:1], [0.5], 0.1)


def test_a_history_shorter_than_the_season_takes_lag_one() -> None:
    history = np.array([[1.0, 3.0, 2.0]])
    assert seasonal_error(history, 24)[0] == 1.5
    assert seasonal_error(history, 2)[0] == 1.0
    assert np.isnan(seasonal_error(np.array([[5.0]]), 24)[0])


def test_seasonal_errors_of_growing_histories_are_those_of_each() -> None:
    series = np.random.default_rng(0).normal(size=(3, 60))
    series[1, 5:9], series[2] = np.nan, np.inf
    lengths = [4, 10, 11, 40, 60]
    found = growing_seasonal_errors(series, lengths, 10)
    for length, errors in zip(lengths, found, strict=True):
        np.testing.assert_allclose(errors, seasonal_error(series[:, :length], 10), rtol=1e-12)
    assert np.isnan(found[-1][2])


def test_given_seasonal_errors_stand_for_the_inputs() -> None:
    labels, forecasts, inputs = case()
    errors = [seasonal_error(x, 3) for x in inputs]
    found = Evaluator().update(labels, forecasts, None, seasonality=3, seasonal_errors=errors).result()
    close(found, evaluate(labels, forecasts, inputs, seasonality=3), rtol=0)


def test_crossing_quantiles_warn_once_and_can_be_sorted() -> None:
    labels, forecasts, inputs = case()
    crossing = [{**one, "quantiles": one["quantiles"][::-1]} for one in forecasts]
    with pytest.warns(UserWarning, match="quantiles cross") as caught:
        Evaluator().update(labels, crossing, inputs, seasonality=3)
    assert len(caught) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = evaluate(labels, crossing, inputs, seasonality=3, sort_quantiles=True)
    close(found, evaluate(labels, forecasts, inputs, seasonality=3), rtol=0)


def test_other_levels_average_over_themselves() -> None:
    labels, forecasts, inputs = case()
    few = [{"quantiles": one["quantiles"][[1, 7]]} for one in forecasts]
    found = evaluate(labels, few, inputs, seasonality=3, quantile_levels=(0.2, 0.8))
    y, f = np.stack(labels), np.stack([one["quantiles"] for one in few], axis=1)
    losses = [2 * np.abs((y - f[i]) * ((f[i] >= y) - q)).sum() / np.abs(y).sum() for i, q in enumerate((0.2, 0.8))]
    assert found["mean_weighted_sum_quantile_loss"] == pytest.approx(np.mean(losses))
    assert found["MAE[0.5]"] == pytest.approx(np.abs(y - f.mean(0)).mean())


def test_an_error_leaves_the_evaluator_as_it_was() -> None:
    labels, forecasts, inputs = case()
    evaluator = Evaluator().update(labels[:2], forecasts[:2], inputs[:2], seasonality=3)
    before = evaluator.result()
    broken = {"quantiles": np.full((9, 2, 6), np.nan)}
    with pytest.raises(ValueError, match="NaN"):
        evaluator.update(labels[2:], [forecasts[2], broken], inputs[2:], seasonality=3)
    close(evaluator.result(), before, rtol=0)


def test_memory_is_bounded_by_a_block_while_windows_stream() -> None:
    import tracemalloc

    horizon, count = 2000, 40
    draw = np.random.default_rng(0)

    def stream(make: Any) -> Any:
        return (make() for _ in range(count))

    quantiles = np.sort(draw.normal(size=(9, 4, horizon)), axis=0)
    one_forecast = quantiles.nbytes
    tracemalloc.start()
    evaluate(
        stream(lambda: draw.normal(size=(4, horizon))),
        stream(lambda: {"quantiles": quantiles + draw.normal()}),
        stream(lambda: draw.normal(size=(4, 100))),
        seasonality=3,
    )
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 25 * one_forecast < count * one_forecast
