"""Merging: from the pristine weight, checked in all layers before any is changed, undone to the bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftModel, get_peft_model
from torch import Tensor, nn
from transformers import AutoModelForCausalLM

from nips_common.testing.tiny_models import LLAMA, PLAIN
from ridgelora import RidgeLoraConfig, RidgeLoraLinear, ridge_merge


def adapted(dtype: torch.dtype = torch.float32, **options: Any) -> PeftModel:
    torch.manual_seed(0)
    model = get_peft_model(LLAMA.build(dtype), RidgeLoraConfig(r=4, target_modules="all-linear", **options))
    for name, parameter in model.named_parameters():
        if "ridgelora_" in name:
            parameter.data += 0.2 * torch.randn(parameter.shape).to(parameter)
    return model.eval()


def layers(model: nn.Module) -> list[RidgeLoraLinear]:
    return [module for module in model.modules() if isinstance(module, RidgeLoraLinear)]


def state(model: nn.Module) -> dict[str, Tensor]:
    return {key: value.clone() for key, value in model.state_dict().items()}


def unchanged(model: nn.Module, before: dict[str, Tensor]) -> bool:
    return all(torch.equal(value, before[key]) for key, value in model.state_dict().items())


@pytest.mark.parametrize("init", ["exact", "gaussian", "gaussian_calibrated"])
def test_the_merged_weight_is_the_transform_times_the_weight(init: str) -> None:
    model = adapted(init_weights=init)
    for layer in layers(model):
        parts, offset = layer.adapter_weights("default"), layer.adapter_offset("default")
        merged = ridge_merge(layer.weight, *parts, layer.scaling["default"], offset)
        assert (layer.weight + layer.get_delta_weight("default") - merged).abs().max() <= 1e-6
    apart = LLAMA.output(model)
    model.merge_adapter()
    assert (LLAMA.output(model) - apart).abs().max() <= 1e-5


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_a_merge_is_computed_in_single_precision_and_undone_to_the_bit(dtype: torch.dtype) -> None:
    model = adapted(dtype)
    before, layer = state(model), layers(model)[0]
    parts = [part.double() for part in layer.adapter_weights("default")]
    exact = ridge_merge(layer.weight.double(), *parts, layer.scaling["default"])
    model.merge_adapter()
    assert ((layer.weight.double() - exact).abs() <= 0.51 * torch.finfo(dtype).eps * exact.abs() + 1e-6).all()
    model.unmerge_adapter()
    assert unchanged(model, before)


def test_the_delta_is_that_of_the_unmerged_weight_while_merged() -> None:
    model = adapted()
    delta = layers(model)[0].get_delta_weight("default")
    model.merge_adapter()
    assert torch.equal(layers(model)[0].get_delta_weight("default"), delta)


def test_merged_weights_load_in_plain_transformers(tmp_path: Path) -> None:
    model = adapted()
    apart = LLAMA.output(model)
    merged: Any = model.merge_and_unload(safe_merge=True)
    merged.save_pretrained(tmp_path)
    plain = AutoModelForCausalLM.from_pretrained(tmp_path).eval()
    assert not layers(plain)
    assert plain.state_dict().keys() == LLAMA.build().state_dict().keys()
    assert (LLAMA.output(plain) - apart).abs().max() <= 1e-5


@pytest.mark.parametrize("unload", [False, True])
def test_a_safe_merge_looks_at_all_layers_before_it_changes_one(unload: bool) -> None:
    model = adapted()
    layers(model)[-1].ridgelora_sigma["default"].data[3] = float("nan")
    before, outputs = state(model), LLAMA.output(model)
    with pytest.raises(ValueError, match="'default' would make the weight NaN or infinite"):
        (model.merge_and_unload if unload else model.merge_adapter)(safe_merge=True)
    assert all(torch.equal(v, before[k]) or k.endswith("sigma.default") for k, v in model.state_dict().items())
    assert not any(layer.merged for layer in layers(model))
    assert torch.equal(LLAMA.output(model).isnan(), outputs.isnan())


def test_a_merge_that_overflows_half_precision_is_not_safe() -> None:
    model = adapted(torch.float16)
    layers(model)[2].ridgelora_lambda["default"].data.fill_(1e7)
    with pytest.raises(ValueError, match="NaN or infinite"):
        model.merge_adapter(safe_merge=True)
    assert not any(layer.merged for layer in layers(model))


def test_the_order_of_merging_does_not_matter() -> None:
    weights = []
    for steps in ([["default", "other"]], [["default"], ["other"]], [["other"], ["default"]]):
        model = adapted()
        torch.manual_seed(1)
        model.add_adapter("other", RidgeLoraConfig(r=3, target_modules="all-linear", init_weights="gaussian"))
        before = state(model)
        for i, step in enumerate(steps):
            if i:
                with pytest.warns(UserWarning, match="additionally"):
                    model.merge_adapter(step)
            else:
                model.merge_adapter(step)
        weights.append(layers(model)[0].weight.clone())
        model.unmerge_adapter()
        assert unchanged(model, before)
    assert torch.equal(weights[0], weights[1])
    assert (weights[0] - weights[2]).abs().max() <= 1e-6


def test_merging_nothing_more_changes_nothing() -> None:
    model = get_peft_model(PLAIN.build(), RidgeLoraConfig(r=2, target_modules=["lin0"]))
    model.merge_adapter()
    merged = state(model)
    with pytest.warns(UserWarning, match="already merged"):
        model.merge_adapter(safe_merge=True)
    assert unchanged(model, merged)
