"""The GluonTS predictor under GluonTS's own evaluation and backtests."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from toto_ts import TotoForecaster, TotoPredictor

pd = pytest.importorskip("pandas")
pytest.importorskip("gluonts")

pytestmark = pytest.mark.filterwarnings("ignore:Using `json`-module:UserWarning", "ignore::FutureWarning:gluonts")


@pytest.fixture(scope="module")
def forecaster(make_model: Any) -> TotoForecaster:
    return TotoForecaster(make_model())


def entries(lengths: tuple[int, ...] = (60, 35, 90), variates: int = 0) -> list[dict[str, Any]]:
    generator = np.random.default_rng(0)
    start = pd.Period("2024-01-01", freq="h")
    shape = (variates,) if variates else ()
    return [
        {"start": start, "item_id": f"item {i}", "target": 50 + generator.normal(size=(*shape, n)).astype(np.float32)}
        for i, n in enumerate(lengths)
    ]


def test_it_is_a_gluonts_predictor(forecaster: TotoForecaster) -> None:
    from gluonts.model.forecast import SampleForecast
    from gluonts.model.predictor import Predictor

    predictor = TotoPredictor(forecaster, 10, 40, num_samples=6, seed=0)
    assert isinstance(predictor, Predictor)
    assert (predictor.prediction_length, predictor.lead_time) == (10, 0)
    forecasts = list(predictor.predict(entries()))
    assert all(isinstance(forecast, SampleForecast) for forecast in forecasts)
    assert [forecast.item_id for forecast in forecasts] == ["item 0", "item 1", "item 2"]
    assert [forecast.samples.shape for forecast in forecasts] == [(6, 10)] * 3
    assert forecasts[1].start_date == pd.Period("2024-01-02 11:00", freq="h")


def test_the_caller_may_ask_for_another_number_of_samples(forecaster: TotoForecaster) -> None:
    predictor = TotoPredictor(forecaster, 10, 40, num_samples=6)
    assert next(predictor.predict(entries(), num_samples=3)).samples.shape == (3, 10)
    assert next(predictor.predict(entries(), num_samples=None)).samples.shape == (1, 10)


def test_multivariate_samples_are_time_major(forecaster: TotoForecaster) -> None:
    predictor = TotoPredictor(forecaster, 10, 40, num_samples=6, seed=0)
    forecast = next(predictor.predict(entries(variates=3)))
    assert forecast.samples.shape == (6, 10, 3)
    window = entries(variates=3)[0]["target"][:, -40:]
    expected = forecaster.forecast(window, 10, num_samples=6, seed=0).samples[0]
    np.testing.assert_allclose(forecast.samples, expected.permute(2, 1, 0).numpy(), rtol=1e-5)


def test_entries_of_different_width_share_a_dataset(forecaster: TotoForecaster) -> None:
    mixed = [*entries((60,)), *entries((60,), variates=2), *entries((60,))]
    predictor = TotoPredictor(forecaster, 10, 40, num_samples=4)
    assert [forecast.samples.shape for forecast in predictor.predict(mixed)] == [(4, 10), (4, 10, 2), (4, 10)]


def test_the_mean_does_not_depend_on_the_batch_size(forecaster: TotoForecaster) -> None:
    means = [
        [f.mean for f in TotoPredictor(forecaster, 10, 40, num_samples=None, batch_size=size).predict(entries())]
        for size in (1, 2, 32)
    ]
    for other in means[1:]:
        np.testing.assert_allclose(means[0], other, rtol=1e-5)


def test_the_two_ways_to_see_missing_values_differ(forecaster: TotoForecaster) -> None:
    gap = entries((60,))
    gap[0]["target"][30:40] = np.nan
    mask, zero = (
        next(TotoPredictor(forecaster, 10, 40, num_samples=None, missing=missing).predict(gap)).mean
        for missing in ("mask", "zero")
    )
    filled = [{**gap[0], "target": np.nan_to_num(gap[0]["target"])}]
    np.testing.assert_array_equal(zero, next(TotoPredictor(forecaster, 10, 40, num_samples=None).predict(filled)).mean)
    assert not np.allclose(mask, zero)


@pytest.mark.parametrize("variates", [0, 2])
def test_gluonts_evaluates_it(forecaster: TotoForecaster, variates: int) -> None:
    from gluonts.dataset.split import split
    from gluonts.ev.metrics import MAE, MeanWeightedSumQuantileLoss
    from gluonts.model import evaluate_forecasts, evaluate_model

    _, template = split(entries(variates=variates), offset=-20)
    test_data = template.generate_instances(10, windows=2)
    predictor = TotoPredictor(forecaster, 10, 24, num_samples=16, seed=0)
    metrics = [MAE(), MeanWeightedSumQuantileLoss([0.1, 0.5, 0.9])]
    by_model = evaluate_model(predictor, test_data=test_data, metrics=metrics, seasonality=1)
    by_forecasts = evaluate_forecasts(
        predictor.predict(test_data.input), test_data=test_data, metrics=metrics, seasonality=1
    )
    assert by_model.equals(by_forecasts)
    # the data are 50 plus noise of deviation 1; an untrained model forecasts around the level
    assert 0 < float(by_model["MAE[0.5]"].iloc[0]) < 5


def test_gluonts_backtests_it(forecaster: TotoForecaster) -> None:
    from gluonts.dataset.common import ListDataset
    from gluonts.evaluation import Evaluator
    from gluonts.evaluation.backtest import make_evaluation_predictions

    dataset = ListDataset([{"start": "2024-01-01", "target": entry["target"]} for entry in entries()], freq="h")
    predictor = TotoPredictor(forecaster, 10, 24, seed=0)
    forecasts, truths = make_evaluation_predictions(dataset, predictor=predictor, num_samples=8)
    forecasts, truths = list(forecasts), list(truths)
    assert [forecast.samples.shape for forecast in forecasts] == [(8, 10)] * 3
    aggregate, items = Evaluator(quantiles=[0.1, 0.5, 0.9], num_workers=0)(truths, forecasts)
    assert len(items) == 3
    assert 0 < aggregate["MSE"] < 25


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"prediction_length": 0}, "prediction_length must be a whole number of at least 1, got 0"),
        ({"context_length": 0}, "context_length must be a whole number of at least 1, got 0"),
        ({"num_samples": 0}, "num_samples must be a whole number of at least 1, got 0"),
        ({"batch_size": 0}, "batch_size"),
        ({"missing": "drop"}, "missing must be one of mask, zero, got 'drop'"),
        ({"forecaster": "toto"}, "forecaster must be a TotoForecaster, got str"),
    ],
)
def test_an_argument_out_of_range_is_named(forecaster: TotoForecaster, options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError) as caught:
        TotoPredictor(**{"forecaster": forecaster, "prediction_length": 5, "context_length": 24, **options})
    assert words in str(caught.value)


def test_an_entry_that_does_not_fit_is_named(forecaster: TotoForecaster) -> None:
    predictor = TotoPredictor(forecaster, 5, 24, num_samples=None)
    with pytest.raises(ValueError, match="'start' and 'target', got \\['item_id'\\]"):
        list(predictor.predict([{"item_id": "a"}]))
    cube = {"start": pd.Period("2024", freq="h"), "item_id": "a", "target": np.zeros((2, 2, 9))}
    with pytest.raises(ValueError, match="item 'a' must be"):
        list(predictor.predict([cube]))
    with pytest.raises(ValueError, match="start of item 'a' must be a pandas Period, got '2024-01-01'"):
        list(predictor.predict([{"start": "2024-01-01", "item_id": "a", "target": np.zeros(9)}]))
    with pytest.raises(TypeError, match="got quantiles"):
        predictor.predict([], quantiles=[0.5])
