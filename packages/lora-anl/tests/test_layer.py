"""The adapted layer and what is AuroRA's own about it; what all peft methods share is in test_peft_suite.py."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from peft import PeftModel, get_peft_model
from peft.tuners.tuners_utils import BaseTunerLayer
from torch import Tensor, nn
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    RobertaConfig,
    RobertaModel,
    ViTConfig,
    ViTModel,
)

from lora_anl import AuroraConfig, AuroraLinear
from nips_common.testing.tiny_models import LLAMA, PLAIN, ROBERTA


def adapted(model: nn.Module | None = None, **options: Any) -> PeftModel:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 5)) if model is None else model
    return get_peft_model(model, AuroraConfig(**{"target_modules": ["0"], "init_weights": False, **options}))


def layer_of(model: nn.Module) -> AuroraLinear:
    return next(module for module in model.modules() if isinstance(module, AuroraLinear))


def weights(layer: AuroraLinear) -> tuple[Tensor, Tensor]:
    return layer.aurora_A["default"].weight, layer.aurora_B["default"].weight


# sizes


def on_meta(make: Any, config: Any) -> nn.Module:
    with torch.device("meta"):
        return make(config)


@pytest.mark.parametrize(
    ("make", "config", "targets", "trained"),
    [
        (RobertaModel, RobertaConfig(), ["query", "value"], 74_208),
        (
            LlamaForCausalLM,
            LlamaConfig(hidden_size=4096, intermediate_size=14336, num_key_value_heads=8, vocab_size=128),
            ["q_proj", "k_proj", "v_proj", "up_proj", "down_proj"],
            3_542_144,
        ),
        (
            ViTModel,
            ViTConfig(hidden_size=1024, num_hidden_layers=24, num_attention_heads=16, intermediate_size=4096),
            ["query", "value", "q_proj", "v_proj"],
            197_568,
        ),
    ],
    ids=["roberta-base", "llama-3-8b", "vit-large"],
)
def test_the_number_of_parameters_is_the_papers(make: Any, config: Any, targets: list[str], trained: int) -> None:
    model = get_peft_model(on_meta(make, config), AuroraConfig(target_modules=targets))
    assert model.get_nb_trainable_parameters()[0] == trained


@pytest.mark.parametrize(
    ("options", "count"),
    [
        ({"r": 3, "grid_size": 4, "spline_order": 2}, 3 * 11 + 9 + 3 * 6),
        ({"r": 3, "use_fixed": False}, 3 * 11 + 3 * 8),
        ({"r": 3, "use_spline": False}, 3 * 11 + 9),
    ],
)
def test_ranks_grids_and_ablations_count_as_they_should(options: dict[str, Any], count: int) -> None:
    assert adapted(**options).get_nb_trainable_parameters()[0] == count


def test_ranks_and_scales_follow_their_patterns() -> None:
    config = AuroraConfig(
        target_modules=["q_proj", "v_proj"],
        rank_pattern={"v_proj": 5, r"layers\.1\.self_attn\.q_proj": 3},
        alpha_pattern={r"^model\.layers\.0\..*v_proj": 10},
    )
    model = get_peft_model(LLAMA.build(), config)
    found = {
        (name.split(".")[4], name[-6:]): (layer.r["default"], layer.scaling["default"])
        for name, layer in model.named_modules()
        if isinstance(layer, AuroraLinear)
    }
    assert found == {
        ("0", "q_proj"): (2, 2.0),
        ("0", "v_proj"): (5, 2.0),
        ("1", "q_proj"): (3, 4 / 3),
        ("1", "v_proj"): (5, 4 / 5),
    }
    assert model.get_nb_trainable_parameters()[0] == sum(
        r * (32 + out) + r * r + r * 8 for r, out in [(2, 32), (5, 32), (3, 32), (5, 32)]
    )


# start


def test_the_projections_start_as_described() -> None:
    torch.manual_seed(0)
    layer = layer_of(get_peft_model(nn.Sequential(nn.Linear(4000, 300)), AuroraConfig(target_modules=["0"], r=16)))
    down, up = weights(layer)
    assert float(down.detach().std()) == pytest.approx(4000**-0.5, rel=0.01)
    assert not up.any()
    layer.reset_aurora_parameters("default", "kaiming_uniform")
    bound = 4000**-0.5
    assert 0.99 * bound < down.abs().max() <= bound
    assert float(down.detach().std()) == pytest.approx(bound / math.sqrt(3), rel=0.02)
    assert not up.any()
    layer.reset_aurora_parameters("default", False)
    assert up.any()


# function


@pytest.mark.parametrize("options", [{"r": 2}, {"r": 3, "spline_mode": "per_channel"}, {"activation": "sigmoid"}])
def test_the_output_is_the_papers_formula(options: dict[str, Any]) -> None:
    model = adapted(nn.Sequential(nn.Linear(6, 5)).double(), aurora_alpha=5, **options)
    layer, x = layer_of(model), torch.randn(4, 3, 6, dtype=torch.float64)
    down, up = weights(layer)
    sigma = layer.aurora_anl["default"]
    expected = layer.base_layer(x) + (5 / layer.r["default"]) * sigma(x @ down.T) @ up.T
    assert (model(x) - expected).abs().max() <= 1e-14


def test_a_dynamic_adapter_is_not_linear_and_a_static_one_is() -> None:
    x = torch.randn(50, 6)
    for mode, least, most in (("dynamic", 0.1, math.inf), ("static", 0, 1e-5)):
        model = adapted(forward_mode=mode)
        zero = model(torch.zeros(1, 6))
        bend = (model(2 * x) - zero - 2 * (model(x) - zero)).abs().max()
        assert least <= bend <= most


def test_a_static_layer_is_its_base_with_the_delta_of_low_rank() -> None:
    model = adapted(nn.Sequential(nn.Linear(40, 30)), r=3, forward_mode="static")
    layer, x = layer_of(model), torch.randn(20, 40)
    delta = layer.get_delta_weight("default")
    assert delta.shape == (30, 40)
    expected = x @ (layer.base_layer.weight + delta).T + layer.base_layer.bias
    assert (model(x) - expected).abs().max() <= 1e-5
    assert torch.linalg.matrix_rank(delta) <= 3


def test_the_update_stays_within_its_bound() -> None:
    model = adapted(r=4)
    layer, x = layer_of(model), 10 * torch.randn(200, 6)
    _, up = weights(layer)
    largest = layer.aurora_anl["default"].spline_weight.abs().max()
    bound = layer.scaling["default"] * torch.linalg.matrix_norm(up, 2) * (2 + 4 * 2 * largest)
    assert (model(x) - layer.base_layer(x)).norm(dim=-1).max() <= bound


def test_dropout_acts_before_the_down_projection_and_in_training_only() -> None:
    model = adapted(nn.Sequential(nn.Linear(400, 5)), aurora_dropout=0.5)
    layer, x = layer_of(model), torch.ones(1, 400)
    seen: list[Tensor] = []
    layer.aurora_A["default"].register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    model.train()(x)
    assert set(seen[0].unique().tolist()) == {0.0, 2.0}
    model.eval()(x)
    assert torch.equal(seen[1], x)


def test_several_active_adapters_add_up() -> None:
    model = adapted()
    model.add_adapter("other", AuroraConfig(target_modules=["0"], init_weights=False, spline_mode="per_channel", r=3))
    layer, x = layer_of(model), torch.randn(7, 6)
    model.base_model.set_adapter(["default", "other"])
    expected = layer.base_layer(x) + layer.adapter_output("default", x) + layer.adapter_output("other", x)
    assert (model(x) - expected).abs().max() <= 1e-6


def test_a_float64_base_is_adapted_in_float64() -> None:
    model = adapted(nn.Sequential(nn.Linear(6, 5)).double())
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float64}
    assert model(torch.randn(2, 6, dtype=torch.float64)).dtype == torch.float64


def test_a_bfloat16_base_loses_only_the_rounding_of_its_own_layer() -> None:
    model, x = adapted(nn.Sequential(nn.Linear(6, 5)).bfloat16()), torch.randn(30, 6).bfloat16()
    layer = layer_of(model)
    added = layer.adapter_output("default", x)
    assert added.dtype == torch.float32
    down, up = weights(layer)
    exact = 2 * layer.aurora_anl["default"](x.float() @ down.T) @ up.T
    assert (added - exact).abs().max() <= 1e-5


def test_the_layer_is_named_in_print() -> None:
    assert repr(layer_of(adapted())).startswith("aurora.AuroraLinear(")


def test_checkpoint_keys_are_these() -> None:
    from peft import get_peft_model_state_dict

    keys = [key.removeprefix("base_model.model.0.") for key in get_peft_model_state_dict(adapted())]
    assert sorted(keys) == ["aurora_A.weight", "aurora_B.weight", "aurora_anl.proj", "aurora_anl.spline_weight"]


def test_a_targeted_head_of_roberta_is_found_by_default_targets() -> None:
    model = get_peft_model(ROBERTA.build(), AuroraConfig(task_type="SEQ_CLS"))
    names = {name.rpartition(".")[2] for name, module in model.named_modules() if isinstance(module, BaseTunerLayer)}
    assert names == {"query", "value"}
    assert any(p.requires_grad for name, p in model.named_parameters() if "classifier.modules_to_save" in name)


# GPT-2's Conv1D


def gpt2(**options: Any) -> PeftModel:
    torch.manual_seed(0)
    config = GPT2Config(n_embd=32, n_layer=2, n_head=4, vocab_size=64, n_positions=32)
    return get_peft_model(GPT2LMHeadModel(config).eval(), AuroraConfig(init_weights=False, **options))


def test_conv1d_merges_and_unmerges_like_a_linear_layer() -> None:
    model, ids = gpt2(forward_mode="static", target_modules=["c_attn", "c_fc"]), torch.arange(8).unsqueeze(0)
    layer = layer_of(model)
    assert (layer.in_features, layer.out_features) == (32, 96)
    assert layer.get_delta_weight("default").shape == (96, 32)
    apart, before = model(ids).logits, layer.weight.clone()
    model.merge_adapter()
    assert (model(ids).logits - apart).abs().max() <= 1e-5
    assert not torch.equal(layer.weight, before)
    model.unmerge_adapter()
    assert torch.equal(layer.weight, before)


def test_conv1d_computes_the_formula_and_trains() -> None:
    model = gpt2()
    layer, x = layer_of(model), torch.randn(3, 32)
    down, up = weights(layer)
    expected = x @ layer.base_layer.weight + layer.base_layer.bias
    expected = expected + 2 * layer.aurora_anl["default"](x @ down.T) @ up.T
    assert (layer(x) - expected).abs().max() <= 1e-6
    ids = torch.arange(8).unsqueeze(0)
    model(ids, labels=ids).loss.backward()
    assert all(p.grad is not None for name, p in model.named_parameters() if "aurora_" in name)


def test_a_fan_in_fan_out_that_does_not_fit_is_warned_about() -> None:
    with pytest.warns(UserWarning, match="fan_in_fan_out is True, but 'lin0' is a torch.nn.Linear"):
        get_peft_model(PLAIN.build(), AuroraConfig(target_modules=["lin0"], fan_in_fan_out=True))
