"""Quantised base layers, through peft's backends: torchao's on the CPU, and a stand-in for those that need a GPU."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
from peft import PeftModel, get_peft_model
from peft.utils.quantization_utils import ForwardOnlyQuantizationBackend, QuantizationBackend
from torch import Tensor, nn

from lora_anl import AuroraConfig, AuroraLinear, measure_merge_gap, merge_calibrated
from nips_common.testing.tiny_models import LLAMA, PLAIN


def layers(model: nn.Module) -> list[AuroraLinear]:
    return [module for module in model.modules() if isinstance(module, AuroraLinear)]


# torchao


def torchao_llama(tmp_path: Path) -> nn.Module:
    from torchao.quantization import Int8WeightOnlyConfig
    from transformers import LlamaForCausalLM, TorchAoConfig

    LLAMA.build().save_pretrained(tmp_path / "base")
    config = TorchAoConfig(Int8WeightOnlyConfig())
    model: nn.Module = LlamaForCausalLM.from_pretrained(tmp_path / "base", quantization_config=config, dtype="float32")
    return model.eval()


def test_a_torchao_model_is_adapted_trained_merged_and_restored(tmp_path: Path) -> None:
    model = torchao_llama(tmp_path)
    base = LLAMA.output(model)
    config = AuroraConfig(target_modules=["q_proj", "v_proj"], init_weights=False, forward_mode="static")
    model = get_peft_model(model, config).eval()
    assert {layer.quantization_backend.backend_name for layer in layers(model)} == {"torchao"}
    assert "quantization_backend='torchao'" in repr(layers(model)[0])
    LLAMA.logits(model).square().mean().backward()
    assert all(p.grad is not None for name, p in model.named_parameters() if "aurora_" in name)
    apart, quantised = LLAMA.output(model), type(layers(model)[0].weight)
    assert quantised.__module__.startswith("torchao.")
    model.merge_adapter(safe_merge=True)
    assert type(layers(model)[0].weight) is quantised
    # 8 bits a weight leave about 1 / 254 of the largest of a row
    assert 0 < (LLAMA.output(model) - apart).abs().max() <= 0.05 * apart.abs().max()
    model.unmerge_adapter()
    assert torch.equal(LLAMA.output(model), apart)
    with model.disable_adapter():
        assert torch.equal(LLAMA.output(model), base)


def test_an_adapter_trained_on_a_torchao_model_loads_onto_a_plain_one(tmp_path: Path) -> None:
    config = AuroraConfig(target_modules=["q_proj", "v_proj"], init_weights=False)
    model = get_peft_model(torchao_llama(tmp_path), config)
    model.save_pretrained(tmp_path / "adapter")
    plain = PeftModel.from_pretrained(LLAMA.build(), tmp_path / "adapter")
    quantised = LLAMA.output(model.eval())
    assert (LLAMA.output(plain) - quantised).abs().max() <= 0.05 * quantised.abs().max()


# a stand-in: weights rounded to 8 bits, in a module that is no nn.Linear


class RoundedLinear(nn.Module):
    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.in_features, self.out_features, self.bias = linear.in_features, linear.out_features, linear.bias
        self.set(linear.weight)

    def set(self, weight: Tensor) -> None:
        self.scale = weight.detach().abs().max() / 127
        self.weight = nn.Parameter((weight.detach() / self.scale).round().to(torch.int8), requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.linear(x, self.weight * self.scale, self.bias)


class RoundedBackend(QuantizationBackend):
    supports_merge, backend_name, layer_type = True, "rounded", "linear"
    clones = 0

    def get_base_weight(self, base_layer: nn.Module) -> Tensor:
        return base_layer.weight * base_layer.scale

    def set_base_weight(self, peft_layer: AuroraLinear, weight_data: Tensor) -> None:
        peft_layer.base_layer = copy.deepcopy(peft_layer.base_layer)  # as HQQ does
        peft_layer.base_layer.set(weight_data)

    def maybe_clone_base_result(self, x: Tensor) -> Tensor:
        self.clones += 1
        return x.clone()


def rounded(monkeypatch: pytest.MonkeyPatch, backend: QuantizationBackend, **options: object) -> PeftModel:
    def resolve(base_layer: nn.Module, **_: object) -> QuantizationBackend | None:
        return backend if isinstance(base_layer, RoundedLinear) else None

    monkeypatch.setattr("lora_anl.layer.resolve_quantization_backend", resolve)
    model = PLAIN.build()
    model.lin0, model.lin1 = RoundedLinear(model.lin0), RoundedLinear(model.lin1)
    torch.manual_seed(0)
    return get_peft_model(model, AuroraConfig(target_modules=["lin0", "lin1"], init_weights=False, **options))


@pytest.mark.filterwarnings("ignore:Unsupported layer type")
def test_any_backends_layer_is_adapted_and_its_result_cloned(monkeypatch: pytest.MonkeyPatch) -> None:
    backend = RoundedBackend()
    model = rounded(monkeypatch, backend)
    PLAIN.logits(model).sum().backward()
    assert backend.clones == 2
    trained = {name for name, parameter in model.named_parameters() if parameter.grad is not None}
    assert trained == {name for name, _ in model.named_parameters() if "aurora_" in name}
    assert measure_merge_gap(model, [PLAIN.inputs["x"]])["relative_gap"] > 0


@pytest.mark.filterwarnings("ignore:Unsupported layer type")
def test_a_merge_into_any_backends_layer_is_undone_exactly(monkeypatch: pytest.MonkeyPatch) -> None:
    model = rounded(monkeypatch, RoundedBackend(), forward_mode="static")
    other = AuroraConfig(target_modules=["lin0"], init_weights=False, forward_mode="static")
    model.add_adapter("other", other)
    apart, before = PLAIN.output(model), layers(model)[0].weight.clone()
    model.merge_adapter(["default"])
    with pytest.warns(UserWarning, match="additionally"):
        model.merge_adapter(["other"])
    two_steps = layers(model)[0].base_layer.weight.clone()
    model.unmerge_adapter()
    assert torch.equal(layers(model)[0].weight, before)
    assert torch.equal(PLAIN.output(model), apart)
    model.merge_adapter(["default", "other"])
    assert torch.equal(layers(model)[0].base_layer.weight, two_steps)  # the weight was rounded once, not twice
    merged = merge_calibrated(rounded(monkeypatch, RoundedBackend()), [PLAIN.inputs["x"]])
    assert isinstance(merged.lin0, RoundedLinear)


@pytest.mark.filterwarnings("ignore:Unsupported layer type")
def test_a_backend_that_takes_no_merge_is_named_before_anything_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    model = rounded(monkeypatch, ForwardOnlyQuantizationBackend("gptq"), forward_mode="static")
    before = PLAIN.output(model)
    for call in (model.merge_adapter, model.merge_and_unload, lambda: merge_calibrated(model, [PLAIN.inputs["x"]])):
        with pytest.raises(ValueError, match="quantised by gptq takes no merge; load the base model unquantised"):
            call()
    assert torch.equal(PLAIN.output(model), before)


def test_a_layer_that_torchao_quantised_itself_trains_but_takes_no_merge() -> None:
    from torchao.quantization import Int8WeightOnlyConfig, quantize_

    base = nn.Sequential(nn.Linear(32, 32))
    quantize_(base, Int8WeightOnlyConfig())
    model = get_peft_model(base, AuroraConfig(target_modules=["0"], forward_mode="static", init_weights=False))
    model(torch.randn(3, 32)).sum().backward()
    assert all(p.grad is not None for p in model.parameters() if p.requires_grad)
    with pytest.raises(ValueError, match="quantised by torchao takes no merge"):
        model.merge_adapter()
