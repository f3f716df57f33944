"""What a forecaster and a model refuse, in which words."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from nips_common.testing.bad_input import BadInput, bad_inputs
from toto_ts import (
    CausalMaskedTimeseries,
    MaskedTimeseries,
    Toto,
    TotoForecaster,
    apply_xpos,
    left_pad,
    left_pad_ids,
    xpos_tables,
)
from toto_ts.kv_cache import KVCache
from toto_ts.memory import available_bytes, forecast_bytes, make_plan

SERIES = torch.linspace(0, 1, 3 * 24).view(1, 3, 24)


@pytest.fixture(scope="module")
def model(make_model: Any) -> Toto:
    return make_model()


def container(**changes: Any) -> MaskedTimeseries:
    fields = {
        "series": SERIES,
        "padding_mask": torch.ones_like(SERIES, dtype=torch.bool),
        "id_mask": torch.zeros(1, 3, 1, dtype=torch.long),
        "timestamp_seconds": torch.zeros(SERIES.shape, dtype=torch.long),
        "time_interval_seconds": torch.full((1, 3), 60),
    }
    return MaskedTimeseries(**{**fields, **changes})


def forecast(inputs: Any = SERIES, horizon: Any = 5, fill: Any = "mean", **options: Any) -> Any:
    return lambda model: TotoForecaster(model, fill=fill).forecast(inputs, horizon, **{"num_samples": None} | options)


def spoiled(value: float) -> torch.Tensor:
    series = SERIES.clone()
    series[0, 1, 7] = value
    return series


SPLIT_IDS = (torch.arange(24) >= 13).long().expand(1, 3, 24)


@bad_inputs(
    [
        BadInput("horizon 0", forecast(horizon=0), ("horizon", "at least 1", "0")),
        BadInput("horizon of a part", forecast(horizon=2.5), ("horizon", "whole number", "2.5")),
        BadInput("horizon a flag", forecast(horizon=True), ("horizon", "whole number", "True")),
        BadInput("no samples", forecast(num_samples=0), ("num_samples", "at least 1", "0")),
        BadInput(
            "pieces",
            forecast(num_samples=10, samples_per_batch=4),
            ("samples_per_batch must divide num_samples=10", "4"),
        ),
        BadInput("seed", forecast(num_samples=1, seed=-1), ("seed", "at least 0", "-1")),
        BadInput("large seed", forecast(num_samples=1, seed=2**63), ("seed must be below 2**63", str(2**63))),
        BadInput("level", forecast(num_samples=4, quantile_levels=[0.5, 1.2]), ("strictly between 0 and 1", "1.2")),
        BadInput(
            "levels without samples",
            forecast(horizon=9, quantile_levels=[0.5]),
            ("first patch only", "at most 8", "9"),
        ),
        BadInput("infinite", forecast(spoiled(torch.inf)), ("entry 0, variate 1, step 7", "inf")),
        BadInput("too large", forecast(spoiled(2e38)), ("1.7e+38", "entry 0, variate 1, step 7")),
        BadInput("overflowing float64", forecast(spoiled(1.0).double() * 1e300), ("1.7e+38", "entry 0")),
        BadInput("no steps", forecast(torch.zeros(2, 0)), ("at least one", "(1, 2, 0)")),
        BadInput("no variates", forecast(torch.zeros(0, 5)), ("at least one", "(1, 0, 5)")),
        BadInput("no series", forecast([]), ("an empty list",)),
        BadInput("four axes", forecast(torch.zeros(1, 1, 1, 8)), ("(1, 1, 1, 8)", "MaskedTimeseries")),
        BadInput("text", forecast("cpu"), ("inputs must be an array of numbers", "str")),
        BadInput("nothing", forecast(None), ("inputs must be an array of numbers", "NoneType")),
        BadInput("one number", forecast(5.0), ("(variates, time) or (time,)", "shape ()")),
        BadInput("ragged", forecast([[[1.0, 2.0], [1.0]]]), ("inputs[0] must be an array of numbers",)),
        BadInput("bare level", forecast(num_samples=4, quantile_levels=0.5), ("a list of levels", "0.5")),
        BadInput("text level", forecast(num_samples=4, quantile_levels=["high"]), ("strictly between", "'high'")),
        BadInput(
            "text future", forecast(future_exogenous=[["warm"]]), ("future_exogenous must be an array of numbers",)
        ),
        BadInput("another config", lambda model: Toto({"num_layers": 2}), ("a TotoConfig", "dict")),  # type: ignore[arg-type]
        BadInput("complex", forecast(torch.zeros(2, 8, dtype=torch.complex64)), ("real numbers", "complex64")),
        BadInput("flags", forecast(torch.ones(2, 8, dtype=torch.bool)), ("real numbers", "bool")),
        BadInput(
            "uneven list", forecast([torch.zeros(2, 9), torch.zeros(3, 9)]), ("same number of variates", "[2, 3]")
        ),
        BadInput("cube in a list", forecast([torch.zeros(1, 2, 9)]), ("inputs[0]", "(1, 2, 9)")),
        BadInput("mask", forecast(container(padding_mask=torch.ones(1, 3, 9))), ("padding_mask", "(1, 3, 9)")),
        BadInput("ids", forecast(container(id_mask=torch.zeros(1, 3, 9).long())), ("id_mask", "(1, 3, 9)")),
        BadInput("ids of a part", forecast(container(id_mask=torch.zeros(1, 3, 1))), ("integers", "float32")),
        BadInput("patch of two groups", forecast(container(id_mask=SPLIT_IDS)), ("span two groups", "patch 1")),
        BadInput("container of one axis", forecast(container(series=torch.zeros(24))), ("(variates, time)", "(24,)")),
        BadInput(
            "overflow of seconds",
            forecast(container(timestamp_seconds=torch.full(SERIES.shape, 2**31 - 100, dtype=torch.int32)), horizon=5),
            (str(2**31 + 200), "int32", "use int64"),
        ),
        BadInput(
            "exogenous without future", forecast(container(num_exogenous_variables=1)), ("future_exogenous", "1 exog")
        ),
        BadInput(
            "future too short",
            forecast(future_exogenous=torch.zeros(1, 1, 4)),
            ("(1, exogenous, horizon=5)", "(1, 1, 4)"),
        ),
        BadInput(
            "future of another count",
            forecast(container(num_exogenous_variables=2), future_exogenous=torch.zeros(1, 1, 5)),
            ("(1, 2, horizon=5)", "(1, 1, 5)"),
        ),
        BadInput(
            "future of another batch",
            forecast(torch.cat([SERIES, SERIES]), future_exogenous=torch.zeros(1, 1, 5)),
            ("(2, exogenous, horizon=5)", "(1, 1, 5)"),
        ),
        BadInput("all exogenous", forecast(future_exogenous=torch.zeros(3, 5)), ("at least one of the 3", "3 exog")),
        BadInput(
            "future unknown", forecast(future_exogenous=torch.full((1, 5), torch.nan)), ("known at every step", "nan")
        ),
        BadInput("fill", forecast(fill="median"), ("one of mean, zero, last", "'median'")),
        BadInput("another model", lambda model: TotoForecaster(model.model), ("a Toto", "TotoBackbone")),
        BadInput("centre", lambda model: TotoForecaster(model, xpos_center="none"), ("fixed, per_call", "'none'")),
        BadInput(
            "all exogenous in log_prob",
            lambda model: TotoForecaster(model).log_prob(container(num_exogenous_variables=3)),
            ("below the 3 variates", "3"),
        ),
        BadInput(
            "infinite in log_prob",
            lambda model: TotoForecaster(model).log_prob(spoiled(torch.inf)),
            ("entry 0, variate 1, step 7", "inf"),
        ),
        BadInput("half a patch", lambda model: model(SERIES[..., :20]), ("multiple of patch_size=8", "20")),
        BadInput("flat series", lambda model: model(SERIES[0]), ("(batch, variates, time)", "(3, 24)")),
        BadInput("integers", lambda model: model(SERIES.long()), ("floating-point", "int64")),
        BadInput("model mask", lambda model: model(SERIES, torch.ones(1, 3, 8)), ("padding_mask", "(1, 3, 8)")),
        BadInput(
            "model ids",
            lambda model: model(SERIES, id_mask=torch.zeros(1, 3, 8)),
            ("id_mask must be (1, 3, 24) or (1, 3, 1)", "(1, 3, 8)"),
        ),
        BadInput("model groups", lambda model: model(SERIES, id_mask=SPLIT_IDS), ("span two groups", "patch 1")),
        BadInput("model exogenous", lambda model: model(SERIES, num_exogenous=3), ("between 0 and 2", "got 3")),
        BadInput("odd head", lambda model: xpos_tables(torch.arange(3), 7), ("even", "7")),
        BadInput("no position", lambda model: xpos_tables(torch.arange(0), 8), ("at least one", "(0,)")),
        BadInput("no keys", lambda model: apply_xpos(torch.zeros(0, 8), torch.zeros(0, 8)), ("at least one",)),
        BadInput("padding", lambda model: left_pad(SERIES, 0), ("multiple", "at least 1", "0")),
        BadInput("padding of ids", lambda model: left_pad_ids(SPLIT_IDS, 0), ("multiple", "at least 1", "0")),
    ]
)
def test_what_does_not_fit_is_told_in_one_line(case: BadInput, model: Toto) -> None:
    case.check(model)


def test_a_data_frame_is_sent_to_forecast_df(model: Toto) -> None:
    pandas = pytest.importorskip("pandas")
    with pytest.raises(ValueError, match="use forecast_df"):
        TotoForecaster(model).forecast(pandas.DataFrame({"cpu": [1.0, 2.0]}), 5)


def test_a_horizon_beyond_memory_says_which_would_fit(model: Toto) -> None:
    if available_bytes(torch.device("cpu")) is None:
        pytest.skip("this system does not tell how much memory is free")
    forecaster = TotoForecaster(model)
    with pytest.raises(ValueError, match=r"horizon=10{12} needs about .* GiB for 1 series of 3 variates") as caught:
        forecaster.forecast(SERIES, 10**12, num_samples=256)
    fitting = int(str(caught.value).split("a horizon of up to ")[1].split(" would fit")[0])
    assert fitting % 8 == 0
    plan = make_plan(1, 3, 3, 256, None, "cpu")
    used = forecast_bytes(model.config, 1, 3, 3, fitting // 8, 256, plan) / available_bytes(torch.device("cpu"))
    assert 0.8 < used < 1.2  # what is free changes while the test runs
    with pytest.raises(ValueError, match="no horizon would fit: fewer samples or series"):
        forecaster.forecast(SERIES, 8, num_samples=10**12)


def test_a_refused_forecast_does_no_work(model: Toto) -> None:
    calls: list[Any] = []
    handle = model.model.patch_embed.register_forward_hook(lambda *a: calls.append(a))
    with pytest.raises(ValueError):
        TotoForecaster(model).forecast(spoiled(torch.inf), 5)
    handle.remove()
    assert not calls


def test_a_cache_must_begin_with_the_context() -> None:
    with pytest.raises(ValueError, match="whole context"):
        KVCache().layer(0).attend(*[torch.zeros(1, 1, 1, 4)] * 3)


def test_a_filled_cache_takes_one_patch_a_call(model: Toto) -> None:
    cache = KVCache()
    with torch.no_grad():
        model(SERIES, kv_cache=cache)
        with pytest.raises(ValueError, match="one patch a call, 8 steps, got 16"):
            model(SERIES[..., :16], kv_cache=cache)


def test_containers_move_between_devices() -> None:
    moved = container(num_exogenous_variables=1).to("meta")
    assert {field.device.type for field in moved[:5]} == {"meta"}
    assert moved.num_exogenous_variables == 1
    window = CausalMaskedTimeseries(*container()[:5], 2, slice(0, 16), slice(8, 24)).to("meta")
    assert window.series.device.type == "meta"
    assert window[5:] == (2, slice(0, 16), slice(8, 24))


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As if no extra were installed; the predictor's module is imported anew, and forgotten afterwards."""
    monkeypatch.delitem(sys.modules, "toto_ts.gluonts_predictor", raising=False)
    for module in [*sys.modules, "pandas", "gluonts", "huggingface_hub"]:
        if module.split(".")[0] in ("pandas", "gluonts", "huggingface_hub"):
            monkeypatch.setitem(sys.modules, module, None)
    yield
    sys.modules.pop("toto_ts.gluonts_predictor", None)


def test_a_missing_extra_is_told_with_its_command(model: Toto, bare: None) -> None:
    from toto_ts import TotoPredictor

    with pytest.raises(ImportError, match=r'pip install "toto-ts\[pandas\]"'):
        TotoForecaster(model).forecast(SERIES, 5, num_samples=None).to_df()
    with pytest.raises(ImportError, match=r'pip install "toto-ts\[gluonts\]"'):
        TotoPredictor(TotoForecaster(model), 5, 24)
    with pytest.raises(ImportError, match=r'pip install "toto-ts\[hub\]"'):
        Toto.from_pretrained("nobody/nothing")
