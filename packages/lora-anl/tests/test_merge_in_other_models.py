"""Merging and measuring where models are compiled, offloaded, nested, shared, switched off, or hold other adapters."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from peft import LoraConfig, PeftModel, convert_to_lora, get_peft_model, set_peft_model_state_dict
from torch import Tensor, nn

from lora_anl import AuroraConfig, AuroraLinear, calibrated_delta_weight, measure_merge_gap, merge_calibrated

TOLERANCE = 1e-6


class Plain(nn.Module):
    """Four layers, one after the other."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.emb, self.first, self.second, self.head = (
            nn.Linear(12, 12),
            nn.Linear(12, 16),
            nn.Linear(16, 16),
            nn.Linear(16, 3),
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.second(self.first(self.emb(x)).relu()).relu())  # type: ignore[no-any-return]


def inputs(rows: int = 20, shift: float = 0.0) -> Tensor:
    return torch.randn(rows, 12, generator=torch.Generator().manual_seed(rows)) + shift


def config(**options: Any) -> AuroraConfig:
    return AuroraConfig(**{"target_modules": ["first"], "init_weights": False, **options})


def adapted(base: nn.Module | None = None, **options: Any) -> PeftModel:
    base = base or Plain()
    torch.manual_seed(1)
    return get_peft_model(base, config(**options))


def layers(model: nn.Module) -> list[AuroraLinear]:
    return [module for module in model.modules() if isinstance(module, AuroraLinear)]


def with_another_head() -> PeftModel:
    """The embedding is trained in full, so that what enters the adapted layer depends on the adapter."""
    model = adapted(modules_to_save=["emb"])
    with torch.no_grad():
        model.base_model.model.emb.modules_to_save["default"].weight.mul_(5)
    return model


def test_all_batches_of_a_compiled_model_count() -> None:
    data = [inputs(20), inputs(7, 2.0)]
    plain = merge_calibrated(adapted(), data)
    model = adapted().eval()
    model.compile(backend="eager")
    with torch.no_grad():
        model(data[0])  # now one shape is compiled without hooks
    assert torch.equal(merge_calibrated(model, data).first.weight, plain.first.weight)


def test_a_named_adapter_brings_its_own_modules_trained_in_full() -> None:
    alone = merge_calibrated(with_another_head(), [inputs()])
    gap = measure_merge_gap(with_another_head(), [inputs()])
    model = with_another_head()
    model.add_adapter("b", config())
    model.set_adapter("b")
    assert measure_merge_gap(model, [inputs()], "default") == gap
    assert model.active_adapters == ["b"]
    merged = merge_calibrated(model, [inputs()], adapter_name="default")
    assert torch.equal(merged.first.weight, alone.first.weight)
    assert torch.equal(merged.emb.weight, alone.emb.weight)


def test_a_named_adapter_is_measured_without_those_in_other_layers() -> None:
    model = adapted()
    gap = measure_merge_gap(model, [inputs()])
    model.add_adapter("b", config(target_modules=["second"]))
    model.base_model.set_adapter(["default", "b"])
    assert measure_merge_gap(model, [inputs()]) != gap
    assert measure_merge_gap(model, [inputs()], "default") == gap


def test_the_effect_is_measured_against_the_model_with_its_adapter_disabled() -> None:
    model = adapted(modules_to_save=["head"], merge_policy="static").eval()
    with torch.no_grad():
        model.base_model.model.head.modules_to_save["default"].weight.mul_(5)
    x = inputs()
    gap = measure_merge_gap(model, [x])["relative_gap"]
    model.requires_grad_(False)
    output = model(x)
    with model.disable_adapter():
        base = model(x)
    with pytest.warns(UserWarning, match="static merge"):
        model.merge_adapter()
    assert gap == pytest.approx(float((output - model(x)).norm() / (output - base).norm()), rel=1e-4)


def test_an_output_that_is_not_a_number_shows_in_every_figure() -> None:
    x = inputs()
    x[0, 0] = float("nan")
    assert all(figure != figure for figure in measure_merge_gap(adapted(), [x]).values())


def test_disabled_adapters_are_not_measured_or_merged() -> None:
    model = adapted()
    model.base_model.disable_adapter_layers()
    for call in (measure_merge_gap, merge_calibrated):
        with pytest.raises(ValueError, match=r"layer '.*first' are disabled"):
            call(model, [inputs()])


@pytest.mark.parametrize("mode", ["dynamic", "static"])
def test_weights_that_accelerate_keeps_elsewhere_are_loaded(mode: str) -> None:
    from accelerate import cpu_offload

    def offloaded() -> PeftModel:
        return cpu_offload(adapted(forward_mode=mode), execution_device=torch.device("cpu"))

    model = adapted(forward_mode=mode)
    assert torch.equal(offloaded()(inputs()), model(inputs()))
    assert measure_merge_gap(offloaded(), [inputs()]) == measure_merge_gap(model, [inputs()])
    merged = merge_calibrated(offloaded(), [inputs(40)])
    expected = merge_calibrated(model, [inputs(40)])
    torch.testing.assert_close(merged(inputs()), expected(inputs()), rtol=TOLERANCE, atol=TOLERANCE)


def test_over_another_tuner_unmerging_restores_the_weight_too() -> None:
    base = Plain()
    before = base.first.weight.clone()
    torch.manual_seed(1)
    inner = get_peft_model(base, LoraConfig(target_modules=["first"], init_lora_weights=False))
    model = get_peft_model(inner, config(forward_mode="static"))
    output = model(inputs())
    model.merge_adapter()
    torch.testing.assert_close(model(inputs()), output, rtol=1e-5, atol=1e-5)
    model.unmerge_adapter()
    weight = layers(model)[0].get_base_layer().weight
    torch.testing.assert_close(weight, before, rtol=0, atol=TOLERANCE)
    torch.testing.assert_close(model(inputs()), output, rtol=1e-5, atol=1e-5)


def test_layers_that_share_a_weight_are_not_merged() -> None:
    base = Plain()
    base.third = nn.Linear(16, 16)
    base.third.weight = base.second.weight
    before = base.second.weight.clone()
    model = adapted(base, target_modules=["second", "third"], forward_mode="static")
    with pytest.raises(ValueError, match=r"second' and '.*third' share one weight"):
        model.merge_adapter()
    assert torch.equal(base.second.weight, before)


def test_a_calibrated_merge_that_would_overflow_leaves_every_layer_as_it_was() -> None:
    model = adapted(Plain().half(), target_modules=["first", "second"])
    with torch.no_grad():
        layers(model)[1].aurora_B["default"].weight.mul_(1e7)
    with pytest.raises(ValueError, match=r"layer '.*second': merging adapter 'default' would make the weight NaN"):
        merge_calibrated(model, [inputs().half()])
    assert [layer.merged_adapters for layer in layers(model)] == [[], []]


def test_calibration_names_the_layer_that_the_data_does_not_reach() -> None:
    class Short(Plain):
        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.first(x))  # type: ignore[no-any-return]

    with pytest.raises(ValueError, match=r"layer '.*second': inputs must hold at least one row"):
        merge_calibrated(adapted(Short(), target_modules=["first", "second"]), [inputs()])


def test_a_merged_weight_of_ones_own_comes_back_after_switching_off_and_on() -> None:
    model = adapted()
    layer = layers(model)[0]
    layer.merge_delta("default", calibrated_delta_weight(layer, inputs()))
    merged = layer.weight.clone()
    with model.disable_adapter():
        assert not torch.equal(layer.weight, merged)
    assert torch.equal(layer.weight, merged)
    layer.unmerge()
    model.base_model.model.first.forward_mode["default"] = "static"
    layer.merge()
    assert not torch.equal(layer.weight, merged)  # the given weight is gone with the unmerge


@pytest.mark.parametrize("runs", [False, True])
def test_what_is_merged_while_switched_off_joins_what_was_merged_before(runs: bool) -> None:
    model = adapted(forward_mode="static")
    model.add_adapter("b", config(forward_mode="static"))
    model.merge_adapter(["default"])
    with model.disable_adapter():
        model.merge_adapter(["b"])
        if runs:
            model(inputs())
    assert sorted(layers(model)[0].merged_adapters) == ["b", "default"]


def test_a_static_adapter_becomes_lora_of_the_same_rank() -> None:
    model = adapted(forward_mode="static")
    lora_config, tensors = convert_to_lora(model, rank=2)
    torch.manual_seed(0)
    lora = get_peft_model(Plain(), lora_config)
    set_peft_model_state_dict(lora, tensors)
    torch.testing.assert_close(lora(inputs()), model(inputs()), rtol=1e-5, atol=1e-5)
    with pytest.raises(TypeError, match="do not support LoRA conversion"):
        convert_to_lora(adapted(), rank=2)
