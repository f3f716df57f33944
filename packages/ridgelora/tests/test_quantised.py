"""Quantised base layers, through peft's backends: torchao's on the CPU, and a stand-in for those that need a GPU."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from peft import PeftModel, get_peft_model
from peft.utils.quantization_utils import ForwardOnlyQuantizationBackend, QuantizationBackend
from torch import nn

from nips_common.testing.quantised import RoundedBackend, RoundedLinear, rounded_model, torchao_llama
from nips_common.testing.tiny_models import LLAMA, PLAIN
from ridgelora import RidgeLoraConfig, RidgeLoraLinear, ridge_squashing_loss


def layers(model: nn.Module) -> list[RidgeLoraLinear]:
    return [module for module in model.modules() if isinstance(module, RidgeLoraLinear)]


def test_a_torchao_model_is_adapted_trained_merged_and_restored(tmp_path: Path) -> None:
    model = torchao_llama(tmp_path)
    base = LLAMA.output(model)
    config = RidgeLoraConfig(target_modules=["q_proj", "v_proj"], init_weights="gaussian")
    model = get_peft_model(model, config).eval()
    assert {layer.quantization_backend.backend_name for layer in layers(model)} == {"torchao"}
    assert "quantization_backend='torchao'" in repr(layers(model)[0])
    LLAMA.logits(model).square().mean().backward()
    assert all(p.grad is not None for name, p in model.named_parameters() if "ridgelora_" in name)
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


def test_on_a_quantised_base_the_start_is_the_identity_and_the_loss_needs_no_weight(tmp_path: Path) -> None:
    model = torchao_llama(tmp_path)
    base = LLAMA.output(model)
    model = get_peft_model(model, RidgeLoraConfig(target_modules=["q_proj", "v_proj"]))
    assert (LLAMA.output(model) - base).abs().max() <= 1e-5
    assert ridge_squashing_loss(model) == 0


def test_an_adapter_trained_on_a_torchao_model_loads_onto_a_plain_one(tmp_path: Path) -> None:
    config = RidgeLoraConfig(target_modules=["q_proj", "v_proj"], init_weights="gaussian")
    model = get_peft_model(torchao_llama(tmp_path), config)
    model.save_pretrained(tmp_path / "adapter")
    plain = PeftModel.from_pretrained(LLAMA.build(), tmp_path / "adapter")
    quantised = LLAMA.output(model.eval())
    assert (LLAMA.output(plain) - quantised).abs().max() <= 0.05 * quantised.abs().max()


def rounded(monkeypatch: pytest.MonkeyPatch, backend: QuantizationBackend, **options: str) -> PeftModel:
    config = RidgeLoraConfig(target_modules=["lin0", "lin1"], **{"init_weights": "gaussian", **options})
    return rounded_model(monkeypatch, ("ridgelora.merging",), backend, config)


@pytest.mark.filterwarnings("ignore:Unsupported layer type")
@pytest.mark.parametrize("connection", ["series", "parallel"])
def test_any_backends_layer_is_adapted_and_its_result_cloned(connection: str, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = RoundedBackend()
    model = rounded(monkeypatch, backend, connection=connection)
    PLAIN.logits(model).sum().backward()
    assert backend.clones == 2
    trained = {name for name, parameter in model.named_parameters() if parameter.grad is not None}
    assert trained == {name for name, _ in model.named_parameters() if "ridgelora_" in name}


@pytest.mark.filterwarnings("ignore:Unsupported layer type")
def test_a_merge_into_any_backends_layer_is_undone_exactly(monkeypatch: pytest.MonkeyPatch) -> None:
    model = rounded(monkeypatch, RoundedBackend())
    model.add_adapter("other", RidgeLoraConfig(r=3, target_modules=["lin0"], init_weights="gaussian"))
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
    merged = model.merge_and_unload()
    assert isinstance(merged.lin0, RoundedLinear)


@pytest.mark.filterwarnings("ignore:Unsupported layer type")
def test_a_backend_that_takes_no_merge_is_named_before_anything_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    model = rounded(monkeypatch, ForwardOnlyQuantizationBackend("gptq"))
    before = PLAIN.output(model)
    for call in (model.merge_adapter, model.merge_and_unload):
        with pytest.raises(ValueError, match="quantised by gptq takes no merge; load the base model unquantised"):
            call()
    assert torch.equal(PLAIN.output(model), before)


def test_a_layer_that_torchao_quantised_by_itself_trains_but_takes_no_merge() -> None:
    from torchao.quantization import Int8WeightOnlyConfig, quantize_

    base = nn.Sequential(nn.Linear(32, 32))
    quantize_(base, Int8WeightOnlyConfig())
    model = get_peft_model(base, RidgeLoraConfig(target_modules=["0"], init_weights="gaussian"))
    model(torch.randn(3, 32)).sum().backward()
    assert all(p.grad is not None for p in model.parameters() if p.requires_grad)
    with pytest.raises(ValueError, match="quantised by torchao takes no merge"):
        model.merge_adapter()
