"""Ready forecasters: shapes, missing points, memory that runs out, and being found by name."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from boom_bench.baselines import Drift, SeasonalNaive
from boom_bench.config import PROTOCOL
from boom_bench.data import Series
from boom_bench.forecasters import (
    ChronosForecaster,
    GluonTSForecaster,
    HalvingBackoff,
    ModelOptions,
    NamedForecaster,
    TotoForecaster,
    fracast,
    load_forecaster,
    statsforecast,
    toto_ts,
)
from boom_bench.forecasters.backoff import is_out_of_memory
from boom_bench.forecasters.loading import KNOWN
from boom_bench.run import run_benchmark
from boom_bench.tasks import make_task

LEVELS = PROTOCOL.quantile_levels
HERE = Path(__file__).parent


@pytest.fixture
def context(hourly: Series) -> np.ndarray[Any, Any]:
    return hourly.target[:, :400]


def test_halving_remembers_what_fitted_and_gives_up_at_one(caplog: pytest.LogCaptureFixture) -> None:
    tried: list[int] = []

    def attempt(size: int) -> str:
        tried.append(size)
        if size > 5:
            raise MemoryError
        return "done"

    backoff = HalvingBackoff(32)
    with caplog.at_level(logging.WARNING, "boom_bench"):
        assert backoff(attempt) == "done"
    assert tried == [32, 16, 8, 4]
    assert backoff(attempt) == "done"
    assert tried[4:] == [4]
    assert backoff(attempt, most=3) == "done"
    assert tried[5:] == [3]
    assert "out of memory at 32 at a time, going on with 16" in caplog.text

    def never(size: int) -> str:
        raise RuntimeError("CUDA out of memory. Tried to allocate 2 GiB")

    with pytest.raises(RuntimeError, match="CUDA out of memory"):
        HalvingBackoff(4)(never)


def test_only_want_of_memory_is_tried_again() -> None:
    calls: list[int] = []

    def attempt(size: int) -> None:
        calls.append(size)
        raise RuntimeError("shapes do not fit")

    with pytest.raises(RuntimeError, match="shapes"):
        HalvingBackoff(8)(attempt)
    assert calls == [8]
    torch = pytest.importorskip("torch")
    assert is_out_of_memory(torch.cuda.OutOfMemoryError("no"))
    assert not is_out_of_memory(ValueError("out of memory"))


def test_toto_samples_are_turned_and_their_batches_halved_to_a_divisor(context: np.ndarray[Any, Any]) -> None:
    batches: list[int] = []

    def draw(series: Any, horizon: int, num_samples: int, samples_per_batch: int) -> Any:
        batches.append(samples_per_batch)
        if samples_per_batch > 5:
            raise MemoryError
        assert series.dtype == np.float32
        steps = np.arange(horizon)[None, :, None] + 100 * np.arange(num_samples)[None, None, :]
        return (1000 * np.arange(len(series))[:, None, None] + steps)[None]

    found = TotoForecaster(draw, num_samples=12)(context, 3, LEVELS)
    assert found.shape == (12, 2, 3)
    assert found[7, 1, 2] == 1000 + 700 + 2
    assert batches == [12, 6, 3]
    assert all(12 % size == 0 for size in batches)


def test_our_toto_is_found_by_import_and_runs(hourly: Series, tmp_path: Path) -> None:
    package = pytest.importorskip("toto_ts")
    config = package.TotoConfig(
        patch_size=8, stride=8, embed_dim=16, num_layers=2, num_heads=2, mlp_hidden_dim=32, spacewise_every_n_layers=2,
        output_distribution_kwargs={"k_components": 2},
    )  # fmt: skip
    model = package.Toto(config).eval()
    forecaster = toto_ts(model, num_samples=8, samples_per_batch=4)
    found = forecaster(hourly.target[:, :96], 10, LEVELS)
    assert np.asarray(found).shape == (8, 2, 10)
    assert np.isfinite(found).all()
    model.save_pretrained(tmp_path / "checkpoint")
    named = NamedForecaster("toto-ts", ModelOptions(str(tmp_path / "checkpoint"), "cpu", num_samples=4))
    task = make_task(hourly, "short")
    assert len(run_benchmark(named, [task], tmp_path / "toto" / "r.csv", context=64)) == 1


def test_without_our_toto_the_error_does_not_send_to_the_package_of_the_same_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "toto_ts", None)
    with pytest.raises(ImportError, match="from this project's repository"):
        load_forecaster("toto-ts", ModelOptions("anything"))


class Pipeline:
    """The interface of chronos-forecasting's univariate pipelines, forecasting the last value it saw."""

    def __init__(self, most: int) -> None:
        self.most, self.sizes = most, []  # type: int, list[int]

    def predict_quantiles(self, context: Any, prediction_length: int, quantile_levels: list[float]) -> Any:
        import torch

        self.sizes.append(len(context))
        if len(context) > self.most:
            raise MemoryError
        last = torch.nan_to_num(context[:, -1]).to(torch.bfloat16)
        mean = last[:, None].repeat(1, prediction_length)
        return mean[:, :, None] + torch.tensor(quantile_levels, dtype=torch.bfloat16), mean


class Chronos2Pipeline(Pipeline):
    """That of Chronos-2: (B, 1, T) in, a list of (1, H, Q) out."""

    def predict_quantiles(self, context: Any, prediction_length: int, quantile_levels: list[float]) -> Any:
        found = super().predict_quantiles(context[:, 0], prediction_length, quantile_levels)
        return tuple([row[None] for row in part] for part in found)


@pytest.mark.parametrize("kind", [Pipeline, Chronos2Pipeline])
def test_a_chronos_style_pipeline_forecasts_variate_by_variate(kind: type[Pipeline]) -> None:
    pytest.importorskip("torch")
    context = np.arange(5.0)[:, None] * np.ones((1, 30))
    pipeline = kind(most=2)
    found = ChronosForecaster(pipeline)(context, 4, LEVELS)
    assert pipeline.sizes == [5, 2, 2, 1]
    assert found["quantiles"].shape == (9, 5, 4)
    np.testing.assert_array_equal(found["mean"], np.arange(5.0)[:, None] * np.ones((1, 4)))
    np.testing.assert_allclose(found["quantiles"][:, 3, 0], 3 + np.array(LEVELS), atol=0.02)
    with pytest.raises(TypeError, match="predict_quantiles"):
        ChronosForecaster(object())


@pytest.mark.assets("fracast")
def test_the_pretrained_fracast_beats_the_naive_forecast(hourly: Series, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    task = make_task(hourly, "short")
    forecaster = fracast()
    sparse = np.full((2, 100), np.nan)
    sparse[0] = np.arange(100)
    sparse[1, 50:53] = 4.0
    found = forecaster(sparse, 60, (0.05, 0.5, 0.95))
    assert found["quantiles"].shape == (3, 2, 60)
    assert (np.diff(found["quantiles"], axis=0) >= 0).all()
    rows = run_benchmark(forecaster, [task], tmp_path / "fracast" / "r.csv")
    drift = run_benchmark(Drift(), [task], tmp_path / "drift" / "r.csv")
    column = "eval_metrics/mean_weighted_sum_quantile_loss"
    assert rows[column].iloc[0] < drift[column].iloc[0]


@pytest.mark.parametrize("name", ["AutoETS", "SeasonalNaive"])
def test_statsforecast_models_give_all_levels(name: str, hourly: Series, context: np.ndarray[Any, Any]) -> None:
    pytest.importorskip("statsforecast")
    forecaster = statsforecast(name).for_task(make_task(hourly, "short"))
    found = forecaster(context[:, :120], 30, LEVELS)
    assert found["quantiles"].shape == (9, 2, 30)
    assert (np.diff(found["quantiles"], axis=0) >= 0).all()
    if name == "SeasonalNaive":
        ours = SeasonalNaive(24)(context[:, :120], 30, LEVELS)
        np.testing.assert_allclose(found["quantiles"], ours["quantiles"], rtol=1e-5, atol=1e-5)


def test_a_season_as_long_as_the_history_is_one_for_statsforecast(context: np.ndarray[Any, Any]) -> None:
    pytest.importorskip("statsforecast")
    found = statsforecast("SeasonalNaive")(context[:, :20], 3, LEVELS)
    np.testing.assert_allclose(found["mean"], np.repeat(context[:, 19:20], 3, axis=1))
    with pytest.raises(ValueError, match="no model 'AutoMagic'; there are AutoARIMA"):
        statsforecast("AutoMagic")


def test_a_gluonts_predictor_scores_as_its_own_evaluation_says(hourly: Series, tmp_path: Path) -> None:
    from gluonts.model.seasonal_naive import SeasonalNaivePredictor

    series = Series("x", hourly.start, "H", hourly.target[1])
    task = make_task(series, "short")
    forecaster = GluonTSForecaster(SeasonalNaivePredictor(prediction_length=48, season_length=24))
    (row,) = run_benchmark(forecaster, [task], tmp_path / "g" / "r.csv").to_dict("records")
    (ours,) = run_benchmark(SeasonalNaive(), [task], tmp_path / "s" / "r.csv").to_dict("records")
    assert row["eval_metrics/MASE[0.5]"] == pytest.approx(ours["eval_metrics/MASE[0.5]"], rel=1e-6)


class Recorder:
    """A predictor of ours in GluonTS's protocol: quantiles, or multivariate samples; keeps what it was given."""

    def __init__(self, prediction_length: int, kind: str) -> None:
        self.prediction_length, self.kind, self.given = prediction_length, kind, []  # type: int, str, list[Any]

    def predict(self, dataset: list[Any]) -> Any:
        from gluonts.model.forecast import QuantileForecast, SampleForecast

        for item in dataset:
            self.given.append(item)
            start = item["start"] + item["target"].shape[-1]
            if self.kind == "samples":
                values = np.arange(3.0)[:, None, None] + 10 * np.arange(len(item["target"]))
                yield SampleForecast(np.broadcast_to(values, (3, self.prediction_length, len(item["target"]))), start)
            else:
                rows = np.array([[0.0], [1.0], [2.0], [9.0]]) + np.zeros(self.prediction_length)
                yield QuantileForecast(rows, start, ["0.1", "0.5", "0.9", "mean"])


def test_gluonts_forecasts_of_all_kinds_are_stacked(hourly: Series) -> None:
    start = pd.Period("2024-01-01", "h")
    many = GluonTSForecaster(Recorder(6, "samples"), multivariate=True)
    found = many(hourly.target[:, :50], 5, LEVELS, start=start)
    assert np.asarray(found).shape == (3, 2, 5)
    assert np.asarray(found)[2, 1, 0] == 12
    assert many.predictor.given[0]["target"].shape == (2, 50)
    made: list[int] = []

    def make(horizon: int) -> Recorder:
        made.append(horizon)
        return Recorder(horizon, "quantiles")

    one = GluonTSForecaster(make)
    for _ in range(2):
        quantiles: Any = one(hourly.target[:, :50], 4, (0.1, 0.3, 0.9), start=start)
    assert made == [4]
    assert quantiles["quantiles"][:, 1, 3] == pytest.approx([0, 0.5, 2])
    assert quantiles["mean"].tolist() == [[9] * 4] * 2
    assert [item["item_id"] for item in one._for_horizon(4).given[:2]] == ["series_dim0", "series_dim1"]
    with pytest.raises(ValueError, match="forecasts 6 steps, 48 are needed"):
        many(hourly.target, 48, LEVELS, start=start)
    with pytest.raises(TypeError, match="GluonTS predictor"):
        GluonTSForecaster(3)


def test_a_gluonts_predictor_is_told_when_its_context_begins(hourly: Series, tmp_path: Path) -> None:
    recorder = Recorder(48, "quantiles")
    task = make_task(hourly, "short")
    levels = (0.1, 0.5, 0.9)
    run_benchmark(GluonTSForecaster(recorder), [task], tmp_path / "r" / "r.csv", context=100, quantile_levels=levels)
    first = hourly.length - task.windows * 48
    assert recorder.given[0]["start"] == hourly.start + (first - 100)
    assert recorder.given[0]["target"].shape == (100,)


def test_forecasters_are_found_by_name(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert load_forecaster("seasonal-naive") == SeasonalNaive()
    assert load_forecaster("drift") == Drift()
    monkeypatch.chdir(HERE)
    assert load_forecaster("example_forecasters:last_value").__name__ == "last_value"  # type: ignore[attr-defined]
    made = load_forecaster("example_forecasters:Meeting", ModelOptions(str(tmp_path)))
    assert made.folder == tmp_path  # type: ignore[attr-defined]
    assert str(HERE) not in sys.path


@pytest.mark.parametrize(
    ("name", "error", "words"),
    [
        ("seasonalnaive", ValueError, "seasonal-naive, naive, drift"),
        ("example_forecasters:nothing", ValueError, "has no 'nothing'"),
        ("no_such_module:x", ImportError, "no_such_module"),
        ("example_forecasters:os", TypeError, "cannot be called"),
        ("toto-ts", ValueError, "--checkpoint"),
        ("chronos", ValueError, "--checkpoint"),
    ],
)
def test_a_name_that_is_no_forecaster_is_refused(
    name: str, error: type[Exception], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(HERE)
    with pytest.raises(error, match=words):
        load_forecaster(name)


def test_every_known_name_is_documented() -> None:
    text = (HERE.parent / "README.md").read_text("utf-8")
    assert not [name for name in KNOWN if f"`{name}`" not in text]
