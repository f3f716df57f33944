"""The reference numbers of the official implementation (see golden/README.md for what each file holds)."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.distributions import Categorical, MixtureSameFamily, StudentT

import toto_ts
from toto_ts import CompositeLoss, Toto, next_patch_loss, nll

MODELS = ("mixture_last", "mixture_first_exog", "studentt_timeonly_std", "causal_pertimestep")


@pytest.mark.parametrize("case", range(12))
def test_a_scaler_equals_the_reference(golden: SimpleNamespace, case: int) -> None:
    data, options = golden.tensors("scalers"), golden.values("scalers")[case]
    scaler = getattr(toto_ts, options["scaler"])(**options["kwargs"])
    scaled, loc, scale = scaler(data["data"], data["padding_mask"].bool(), prefix_length=options["prefix_length"])
    torch.testing.assert_close(loc, data[f"case{case:02}.loc"], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(scale, data[f"case{case:02}.scale"], rtol=1e-5, atol=1e-5)
    golden.assert_golden(scaled, data[f"case{case:02}.scaled"])


@pytest.mark.parametrize("offset", [0, 5, 600])
def test_xpos_with_the_centre_of_the_call_equals_the_reference(golden: SimpleNamespace, offset: int) -> None:
    data = golden.tensors("rotary_xpos")
    query, key = toto_ts.apply_xpos(data["q"], data["k"], offset=offset)
    golden.assert_golden(query, data[f"q_rot_offset{offset}"])
    golden.assert_golden(key, data[f"k_rot_offset{offset}"])


def test_the_xpos_tables_equal_the_reference(golden: SimpleNamespace) -> None:
    data = golden.tensors("rotary_xpos")
    angles, scale = toto_ts.xpos_tables(torch.arange(7), 8)
    torch.testing.assert_close(angles, data["angles_pos0to6"])
    torch.testing.assert_close(scale, data["xpos_scale_pos0to6"])
    torch.testing.assert_close(angles[1, ::2], data["freqs"])
    _, scale = toto_ts.xpos_tables(torch.tensor([512]), 8, center=0)
    torch.testing.assert_close(scale[0, :4], data["scale_base_vector"])


def test_the_losses_equal_the_reference(golden: SimpleNamespace) -> None:
    data = golden.tensors("losses")
    mixture = MixtureSameFamily(
        Categorical(probs=data["probs"]), StudentT(data["df"], data["loc"], data["scale"], validate_args=False)
    )
    torch.testing.assert_close(nll(mixture, data["target"]), data["nll"], rtol=1e-4, atol=1e-4)
    for case in golden.values("losses"):
        alpha = -math.inf if case["alpha"] == "-inf" else float(case["alpha"])
        if "lambda_nll" in case:
            actual = CompositeLoss(case["lambda_nll"], case["delta"], alpha)(mixture, data["target"])
        else:
            actual = toto_ts.general_robust_loss(data["mean"] - data["target"], case["delta"], alpha)
        torch.testing.assert_close(actual, data[case["name"]], rtol=1e-4, atol=1e-4)


def test_the_schedule_equals_the_reference(golden: SimpleNamespace) -> None:
    for case in golden.values("lr_schedule"):
        optimizer = torch.optim.AdamW([torch.nn.Parameter(torch.zeros(1))], lr=123.0)
        scheduler = toto_ts.WarmupStableDecay(optimizer, **case["kwargs"])
        used = []
        for _ in case["lr_used_at_step"]:
            used.append(optimizer.param_groups[0]["lr"])
            optimizer.step()
            scheduler.step()
        assert used == pytest.approx(case["lr_used_at_step"], rel=1e-9, abs=1e-15)


def test_the_helpers_equal_the_reference(golden: SimpleNamespace) -> None:
    data = golden.tensors("helpers")
    assert torch.equal(toto_ts.left_pad(data["pad.in"], 8), data["pad.out_stride8"])
    assert torch.equal(toto_ts.left_pad_ids(data["pad_id.in"], 8), data["pad_id.out_stride8"])
    past, future = data["exog_shift.past_time_first"].T, data["exog_shift.future_time_first"].T
    shifted = toto_ts.shift_exogenous(past, future, context_length=24, patch_size=8)
    assert torch.equal(shifted, data["exog_shift.out_ctx24_patch8"])


def watch(model: Toto) -> dict[str, Tensor]:
    """Forward hooks on the stages that the reference recorded."""
    seen: dict[str, Tensor] = {}

    def keep(name: str) -> Callable[[Any, Any, Tensor], None]:
        def hook(module: Any, inputs: Any, output: Tensor) -> None:
            seen[name] = output

        return hook

    model.model.patch_embed.projection.register_forward_hook(keep("patch_embed"))
    for i, layer in enumerate(model.model.transformer.layers):
        layer.register_forward_hook(keep(f"layer_{i:02}_out"))
    model.model.unembed.register_forward_hook(keep("unembedded"))
    return seen


@pytest.mark.parametrize("name", MODELS)
def test_every_stage_of_a_model_equals_the_reference(golden: SimpleNamespace, load_model: Any, name: str) -> None:
    data, info, model = golden.tensors(f"{name}.io"), golden.values(f"{name}.info"), load_model(name)
    assert sum(p.numel() for p in model.parameters()) == info["num_parameters"]
    assert [axis.upper() for axis in model.config.attention_axes] == info["attention_axes"]
    seen = watch(model)
    output = model(
        data["in.series"],
        data["in.padding_mask"].bool(),
        data["in.id_mask"],
        num_exogenous=info["num_exogenous"],
    )
    torch.testing.assert_close(output.loc, data["out.loc"], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(output.scale, data["out.scale"], rtol=1e-5, atol=1e-5)
    seen["unembedded"] = seen["unembedded"].unflatten(-1, (model.config.patch_size, -1)).flatten(2, 3)
    for stage, actual in seen.items():
        golden.assert_golden(actual, data[f"out.{stage}"])
    components = getattr(output.distribution, "component_distribution", output.distribution)
    golden.assert_golden(components.df, data["out.df"])
    golden.assert_golden(components.loc, data["out.comp_loc"])
    golden.assert_golden(components.scale, data["out.comp_scale"])
    if "out.probs" in data:
        golden.assert_golden(output.distribution.mixture_distribution.probs, data["out.probs"])
    golden.assert_golden(output.distribution.mean, data["out.norm_mean"])
    golden.assert_golden(output.distribution.mean * output.scale + output.loc, data["out.mean"])
    golden.assert_golden(output.distribution.log_prob(data["out.scaled_targets"]), data["out.log_prob"])
    golden.assert_golden(CompositeLoss()(output.distribution, data["out.scaled_targets"]), data["out.loss_elementwise"])


@pytest.mark.parametrize("name", MODELS)
def test_the_loss_and_its_gradients_equal_the_reference(golden: SimpleNamespace, load_model: Any, name: str) -> None:
    data, info, model = golden.tensors(f"{name}.io"), golden.values(f"{name}.info"), load_model(name)
    exogenous = info["num_exogenous"]
    output = model(data["in.series"], data["in.padding_mask"].bool(), data["in.id_mask"], num_exogenous=exogenous)
    loss = next_patch_loss(output, data["in.targets"], data["in.targets_padding_mask"].bool(), num_exogenous=exogenous)
    torch.testing.assert_close(loss, data["out.loss_mean"], rtol=1e-4, atol=0)
    loss.backward()
    norms = {name: parameter.grad.norm() for name, parameter in model.named_parameters()}
    recorded = {key.removeprefix("out.gradnorm."): norm for key, norm in data.items() if "gradnorm" in key}
    assert norms.keys() == recorded.keys()
    for key, norm in recorded.items():
        torch.testing.assert_close(norms[key], norm, rtol=1e-3, atol=1e-6)


def test_fused_feed_forward_names_load_to_the_same_model(
    golden: SimpleNamespace, load_model: Any, tmp_path: Path
) -> None:
    plain = load_model("mixture_last")
    fused = Toto.from_pretrained(golden.model_folder("mixture_last", tmp_path, "mixture_last.fused_names"))
    assert fused.state_dict().keys() == plain.state_dict().keys()
    assert all(torch.equal(tensor, plain.state_dict()[name]) for name, tensor in fused.state_dict().items())
    series = golden.tensors("mixture_last.io")["in.series"]
    assert torch.equal(fused(series).distribution.mean, plain(series).distribution.mean)


def test_extreme_values_are_replaced_as_in_the_reference(golden: SimpleNamespace) -> None:
    data = golden.tensors("helpers")
    assert torch.equal(toto_ts.replace_extreme_values(data["extreme.in"]), data["extreme.out"])


def forecast_inputs(data: dict[str, Tensor], exogenous: int) -> tuple[toto_ts.MaskedTimeseries, dict[str, Any]]:
    series = data["fc.series"]
    inputs = toto_ts.MaskedTimeseries(
        series,
        data["fc.padding_mask"].bool(),
        data["fc.id_mask"],
        torch.zeros_like(series, dtype=torch.int64),
        torch.ones(series.shape[:2], dtype=torch.int64),
        exogenous,
    )
    return inputs, {"future_exogenous": data["fc.future_exogenous"]} if exogenous else {}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("use_kv_cache", [True, False])
def test_the_forecast_mean_equals_the_uncached_reference_with_and_without_cache(
    golden: SimpleNamespace, load_model: Any, name: str, use_kv_cache: bool
) -> None:
    data, info = golden.tensors(f"{name}.io"), golden.values(f"{name}.info")
    inputs, known = forecast_inputs(data, info["num_exogenous"])
    forecaster = toto_ts.TotoForecaster(load_model(name), fill="zero")
    forecast = forecaster.forecast(inputs, info["horizon"], num_samples=None, use_kv_cache=use_kv_cache, **known)
    golden.assert_golden(forecast.mean, data["fc.out.mean_nokv"])


@pytest.mark.parametrize("name", MODELS)
def test_the_moving_centre_reproduces_the_cached_reference(golden: SimpleNamespace, load_model: Any, name: str) -> None:
    data, info = golden.tensors(f"{name}.io"), golden.values(f"{name}.info")
    inputs, known = forecast_inputs(data, info["num_exogenous"])
    forecaster = toto_ts.TotoForecaster(load_model(name), fill="zero", xpos_center="per_call")
    golden.assert_golden(
        forecaster.forecast(inputs, info["horizon"], num_samples=None, **known).mean, data["fc.out.mean_kv"]
    )


@pytest.mark.parametrize("name", ["gluonts_predictor_1d", "gluonts_predictor_3d"])
def test_the_gluonts_predictor_equals_the_reference(golden: SimpleNamespace, load_model: Any, name: str) -> None:
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("gluonts")
    data, info = golden.tensors(name), golden.values(name)
    forecaster = toto_ts.TotoForecaster(load_model(info["model"]), fill="zero")
    predictor = toto_ts.TotoPredictor(
        forecaster,
        info["horizon"],
        info["context_length"],
        num_samples=None,
        use_kv_cache=False,
        missing="zero",
    )
    start = pandas.Period(info["start"], freq=info["freq"])
    series = [data[f"series_{i}"].numpy() for i in range(len(info["lengths"]))]
    entries = [
        {"start": start, "item_id": f"item {i}", "target": target[0] if info["dim"] == 1 else target}
        for i, target in enumerate(series)
    ]
    forecasts = list(predictor.predict(entries))
    assert [forecast.item_id for forecast in forecasts] == [f"item {i}" for i in range(len(series))]
    for i, forecast in enumerate(forecasts):
        assert list(forecast.samples.shape) == data[f"samples_shape_{i}"].tolist()
        golden.assert_golden(torch.from_numpy(forecast.mean), data[f"mean_{i}"])
    assert forecasts[-1].start_date == pandas.Period(info["last_forecast_start"], freq=info["freq"])
