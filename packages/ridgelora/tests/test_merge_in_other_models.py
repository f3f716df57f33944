"""Merging and computing where models are nested, share weights, are offloaded or switched off."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from accelerate import cpu_offload
from peft import LoraConfig, PeftModel, get_peft_model
from torch import Tensor, nn

from nips_common.testing.tiny_models import PLAIN
from ridgelora import RidgeLoraConfig, RidgeLoraLinear, ridge_squashing_loss

TOLERANCE = 1e-6


def config(**options: Any) -> RidgeLoraConfig:
    return RidgeLoraConfig(**{"r": 2, "target_modules": ["lin0"], "init_weights": "gaussian", **options})


def adapted(base: nn.Module | None = None, **options: Any) -> PeftModel:
    base = base or PLAIN.build()
    torch.manual_seed(1)
    return get_peft_model(base, config(**options)).eval()


def layers(model: nn.Module) -> list[RidgeLoraLinear]:
    return [module for module in model.modules() if isinstance(module, RidgeLoraLinear)]


def over_lora() -> PeftModel:
    return adapted(lora())


def lora() -> PeftModel:
    torch.manual_seed(1)
    return get_peft_model(PLAIN.build(), LoraConfig(target_modules=["lin0"], init_lora_weights=False))


def test_over_another_tuner_nothing_is_merged_until_that_is_unloaded() -> None:
    model = over_lora()
    before, output = layers(model)[0].weight.clone(), PLAIN.output(model)
    for call in (model.merge_adapter, model.merge_and_unload):
        with pytest.raises(ValueError, match=r"over another tuner's layer.*unload that tuner's adapter before"):
            call()
    assert torch.equal(layers(model)[0].weight, before)
    assert torch.equal(PLAIN.output(model), output)
    afterwards = adapted(lora().merge_and_unload())
    afterwards.merge_adapter()
    torch.testing.assert_close(PLAIN.output(afterwards), output, rtol=1e-5, atol=1e-5)


def test_over_another_tuner_the_transform_comes_before_both() -> None:
    model = over_lora()
    layer = layers(model)[0]
    x = torch.randn(3, 12)
    torch.testing.assert_close(layer(x), layer.base_layer(layer.transformed("default", x)), rtol=0, atol=0)
    assert not torch.allclose(layer.base_layer(x), layer.get_base_layer()(x), atol=1e-3)


class Shared(nn.Module):
    """Two layers with one weight."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 8)
        self.second.weight = self.first.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.first(x).relu())  # type: ignore[no-any-return]


def test_layers_that_share_a_weight_are_not_merged() -> None:
    base = Shared()
    before = base.first.weight.clone()
    model = adapted(base, target_modules=["first", "second"])
    with pytest.raises(ValueError, match=r"first' and '.*second' share one weight"):
        model.merge_adapter()
    assert torch.equal(base.first.weight, before)
    assert [layer.merged_adapters for layer in layers(model)] == [[], []]


@pytest.mark.parametrize(
    "options",
    [{}, {"init_weights": "gaussian_calibrated"}, {"connection": "parallel"}, {"ridgelora_dropout": 0.1}],
    ids=str,
)
def test_weights_that_accelerate_keeps_elsewhere_are_loaded(options: dict[str, Any]) -> None:
    def trained() -> PeftModel:
        model = adapted(**options)
        with torch.no_grad():
            layers(model)[0].ridgelora_sigma["default"].add_(0.3)
        return model

    expected = PLAIN.output(trained())
    model = cpu_offload(trained(), execution_device=torch.device("cpu"))
    assert layers(model)[0].ridgelora_A["default"].is_meta
    assert torch.equal(PLAIN.output(model), expected)
    assert layers(model)[0].ridgelora_A["default"].is_meta
    merged = model.merge_and_unload()
    torch.testing.assert_close(PLAIN.output(merged), expected, rtol=TOLERANCE, atol=TOLERANCE)


@pytest.mark.parametrize("run_between", [False, True])
def test_what_is_merged_while_switched_off_joins_what_was_merged_before(run_between: bool) -> None:
    model = adapted()
    model.add_adapter("b", config())
    base = PLAIN.output(PLAIN.build())
    model.merge_adapter(["default"])
    with model.disable_adapter():
        assert torch.equal(PLAIN.output(model), base)
        model.merge_adapter(["b"])
        if run_between:
            assert torch.equal(PLAIN.output(model), base)
    assert layers(model)[0].merged_adapters == ["default", "b"]
    both = layers(model)[0].weight.clone()
    model.unmerge_adapter()
    assert torch.equal(layers(model)[0].weight, PLAIN.build().lin0.weight)
    model.merge_adapter(["default", "b"])
    assert torch.equal(layers(model)[0].weight, both)


def test_the_loss_of_adapters_that_are_switched_off_is_refused() -> None:
    model = adapted()
    assert ridge_squashing_loss(model) > 0
    for name in (None, "default"):
        with model.disable_adapter(), pytest.raises(ValueError, match=r"layer '.*lin0' are disabled; enable them"):
            ridge_squashing_loss(model, name)
