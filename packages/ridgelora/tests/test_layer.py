"""The adapted layer and what is RidgeLoRA's own about it; what all peft methods share is in test_peft_suite.py."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from peft import PeftModel, get_peft_model, get_peft_model_state_dict
from torch import Tensor, nn
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

from nips_common.testing.tiny_models import LLAMA, PLAIN, ROBERTA, TINY_MODELS, TinyModel
from ridgelora import RidgeLoraConfig, RidgeLoraLinear, ridge_transform

SEVEN = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


def adapted(model: nn.Module | None = None, **options: Any) -> PeftModel:
    """A linear layer with an adapter that has moved."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 5)) if model is None else model
    model = get_peft_model(model, RidgeLoraConfig(**{"r": 2, "target_modules": ["0"], **options}))
    move(model)
    return model


def move(model: nn.Module, size: float = 0.3) -> None:
    for name, parameter in model.named_parameters():
        if "ridgelora_" in name:
            parameter.data += size * torch.randn_like(parameter)


def layer_of(model: nn.Module) -> RidgeLoraLinear:
    return next(module for module in model.modules() if isinstance(module, RidgeLoraLinear))


def explicit(layer: RidgeLoraLinear, name: str = "default") -> Tensor:
    """M in torch layout."""
    lam, sigma, A, B = layer.adapter_weights(name)
    M = torch.diag(lam * sigma) + layer.scaling[name] * B @ A
    if (offset := layer.adapter_offset(name)) is not None:
        M = torch.cat([M[: len(offset)] + offset, M[len(offset) :]])
    return M


# sizes


@pytest.mark.parametrize(
    ("sizes", "r", "trained"),
    [
        ({"intermediate_size": 11008}, 8, 19_357_920),
        ({"intermediate_size": 11008}, 64, 146_890_976),
        ({"intermediate_size": 14336, "num_key_value_heads": 8}, 8, 21_168_352),
        ({"intermediate_size": 14336, "num_key_value_heads": 8}, 64, 160_628_960),
    ],
    ids=["llama-2-7b-8", "llama-2-7b-64", "llama-3.1-8b-8", "llama-3.1-8b-64"],
)
def test_the_number_of_parameters_is_the_papers(sizes: dict[str, int], r: int, trained: int) -> None:
    with torch.device("meta"):
        base = LlamaForCausalLM(LlamaConfig(hidden_size=4096, vocab_size=128, **sizes))
    model = get_peft_model(base, RidgeLoraConfig(r=r, target_modules=SEVEN))
    assert all(parameter.is_meta for parameter in model.parameters())
    assert model.get_nb_trainable_parameters()[0] == trained


def test_ranks_and_scales_follow_their_patterns() -> None:
    config = RidgeLoraConfig(
        r=2,
        ridgelora_alpha=4,
        target_modules=["q_proj", "v_proj"],
        rank_pattern={"v_proj": 5, r"layers\.1\.self_attn\.q_proj": 3},
        alpha_pattern={r"^model\.layers\.0\..*v_proj": 10},
    )
    model = get_peft_model(LLAMA.build(), config)
    found = {
        (name.split(".")[4], name[-6:]): (layer.r["default"], layer.scaling["default"])
        for name, layer in model.named_modules()
        if isinstance(layer, RidgeLoraLinear)
    }
    assert found == {
        ("0", "q_proj"): (2, 2.0),
        ("0", "v_proj"): (5, 2.0),
        ("1", "q_proj"): (3, 4 / 3),
        ("1", "v_proj"): (5, 4 / 5),
    }
    assert model.get_nb_trainable_parameters()[0] == sum(2 * r * 32 + 32 + 1 for r in (2, 5, 3, 5))


def test_rslora_scales_by_the_root_of_the_rank_and_starts_at_the_identity_too() -> None:
    for tiny in (LLAMA, PLAIN):
        base = tiny.output(tiny.build())
        config = RidgeLoraConfig(r=9, ridgelora_alpha=6, use_rslora=True, target_modules=list(tiny.target_modules))
        model = get_peft_model(tiny.build(), config)
        assert layer_of(model).scaling == {"default": 2.0}
        assert (tiny.output(model) - base).abs().max() <= 1e-5


# start


@pytest.mark.parametrize("init", ["exact", "diagonal", "gaussian_calibrated"])
@pytest.mark.parametrize("tiny", TINY_MODELS, ids=lambda tiny: tiny.name)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_an_adapter_that_starts_at_the_identity_changes_nothing(init: str, tiny: TinyModel, dtype: torch.dtype) -> None:
    base = tiny.output(tiny.build(dtype))
    config = RidgeLoraConfig(r=8, init_weights=init, target_modules=list(tiny.target_modules))
    model = get_peft_model(tiny.build(dtype), config)
    assert (tiny.output(model) - base).abs().max() <= 1e-6 * max(1.0, float(base.abs().max()))


@pytest.mark.parametrize("init", ["gaussian", "kaiming_normal", "kaiming_uniform", "xavier_normal", "xavier_uniform"])
def test_the_published_start_changes_the_first_r_inputs_only(init: str) -> None:
    torch.manual_seed(0)
    config = RidgeLoraConfig(r=3, init_weights=init, target_modules=["0"])
    layer, x = layer_of(get_peft_model(nn.Sequential(nn.Linear(20, 20)), config)), torch.randn(50, 20)
    change = (layer.transformed("default", x) - x).abs().amax(0)
    assert bool((change[:3] > 1e-3).all())
    assert bool((change[3:] <= 1e-6).all())


def test_all_weights_have_gradients_at_the_start() -> None:
    """Other than in LoRA, where A has none while B is 0."""
    for init in ("exact", "gaussian", "gaussian_calibrated"):
        torch.manual_seed(0)
        config = RidgeLoraConfig(r=2, init_weights=init, target_modules=["0"])
        model = get_peft_model(nn.Sequential(nn.Linear(6, 5)), config)
        model(torch.randn(9, 6)).square().mean().backward()
        for weight in layer_of(model).adapter_weights("default"):
            assert torch.isfinite(weight.grad).all()
            assert weight.grad.abs().max() > 1e-4


def test_resetting_draws_anew() -> None:
    model = adapted()
    layer, x = layer_of(model), torch.randn(4, 6)
    layer.reset_ridgelora_parameters("default", model.peft_config["default"])
    assert (model(x) - layer.base_layer(x)).abs().max() <= 1e-5


# function


@pytest.mark.parametrize(
    "options", [{"r": 2}, {"r": 6}, {"use_rslora": True, "r": 3}, {"init_weights": "gaussian_calibrated"}], ids=str
)
def test_the_output_is_the_papers_formula(options: dict[str, Any]) -> None:
    model = adapted(nn.Sequential(nn.Linear(6, 5)).double(), ridgelora_alpha=5, **options)
    layer, x = layer_of(model), torch.randn(4, 3, 6, dtype=torch.float64)
    expected = x @ explicit(layer).T @ layer.base_layer.weight.T + layer.base_layer.bias
    assert (model(x) - expected).abs().max() <= 1e-13
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float64}


def test_the_update_has_full_rank_once_the_ridge_has_moved() -> None:
    torch.manual_seed(0)
    model = get_peft_model(nn.Sequential(nn.Linear(30, 20)), RidgeLoraConfig(r=2, target_modules=["0"]))
    layer = layer_of(model)
    assert torch.linalg.matrix_rank(layer.get_delta_weight("default"), atol=1e-5) == 0
    layer.ridgelora_sigma["default"].data += 0.1 * torch.randn(30)
    assert torch.linalg.matrix_rank(layer.get_delta_weight("default"), atol=1e-5) == 20
    assert torch.linalg.matrix_rank(explicit(layer)) == 30


@pytest.mark.parametrize("connections", [["series", "series"], ["series", "parallel"]], ids="-".join)
def test_several_active_adapters_add_up_from_the_same_weight(connections: list[str]) -> None:
    model = adapted(connection=connections[0])
    model.add_adapter("other", RidgeLoraConfig(r=3, target_modules=["0"], connection=connections[1]))
    move(model, 0.1)
    layer, x = layer_of(model), torch.randn(7, 6)
    single = []
    for name in ("default", "other"):
        model.set_adapter(name)
        single.append(model(x) - layer.base_layer(x))
    for names in (["default", "other"], ["other", "default"]):
        model.base_model.set_adapter(names)
        assert (model(x) - layer.base_layer(x) - single[0] - single[1]).abs().max() <= 1e-5
        apart = model(x)
        model.merge_adapter()
        assert (model(x) - apart).abs().max() <= 1e-5
        model.unmerge_adapter()


def test_dropout_acts_on_the_low_rank_path_and_in_training_only() -> None:
    model = adapted(nn.Sequential(nn.Linear(400, 5)), ridgelora_dropout=0.5)
    layer, x = layer_of(model), torch.ones(1, 400)
    lam, sigma, A, B = layer.adapter_weights("default")
    seen: list[Tensor] = []
    layer.ridgelora_dropout["default"].register_forward_hook(lambda _, inputs, output: seen.append(output))
    trained = layer.transformed("default", x)
    assert set(seen[0].unique().tolist()) == {0.0, 2.0}
    expected = x * lam * sigma + layer.scaling["default"] * (seen[0] @ A.T) @ B.T
    assert (trained - expected).abs().max() <= 1e-4
    evaluated = layer.eval().transformed("default", x)
    assert torch.equal(evaluated, ridge_transform(x, lam, sigma, A, B, layer.scaling["default"]))


def test_a_bfloat16_base_gets_an_input_that_is_rounded_once() -> None:
    model, x = adapted(nn.Sequential(nn.Linear(6, 5)).bfloat16()), torch.randn(30, 6).bfloat16()
    layer = layer_of(model)
    assert {weight.dtype for weight in layer.adapter_weights("default")} == {torch.float32}
    exact = x.float() @ explicit(layer).T
    assert torch.equal(model(x), layer.base_layer(layer.transformed("default", x)))
    assert ((layer.transformed("default", x).float() - exact).abs() <= 0.51 * 2**-7 * exact.abs() + 1e-5).all()


def test_an_adapter_without_autocast_is_rounded_to_its_base() -> None:
    base = nn.Sequential(nn.Linear(6, 5)).bfloat16()
    config = RidgeLoraConfig(r=2, target_modules=["0"], init_weights="gaussian_calibrated")
    layer = layer_of(get_peft_model(base, config, autocast_adapter_dtype=False))
    assert {weight.dtype for weight in layer.adapter_weights("default")} == {torch.bfloat16}
    assert layer.adapter_offset("default").dtype == torch.bfloat16


def test_the_layer_is_named_in_print() -> None:
    assert repr(layer_of(adapted())).startswith("ridgelora.RidgeLoraLinear(")


def test_checkpoint_keys_are_these() -> None:
    keys = [key.removeprefix("base_model.model.0.") for key in get_peft_model_state_dict(adapted())]
    assert sorted(keys) == ["ridgelora_A", "ridgelora_B", "ridgelora_lambda", "ridgelora_sigma"]
    calibrated = get_peft_model_state_dict(adapted(init_weights="gaussian_calibrated"))
    assert "base_model.model.0.ridgelora_offset" in calibrated


def test_a_head_of_roberta_is_saved_with_default_targets() -> None:
    model = get_peft_model(ROBERTA.build(), RidgeLoraConfig(task_type="SEQ_CLS"))
    names = {name.rpartition(".")[2] for name, part in model.named_modules() if isinstance(part, RidgeLoraLinear)}
    assert names == {"query", "value"}
    assert any(p.requires_grad for name, p in model.named_parameters() if "classifier.modules_to_save" in name)


# parallel


@pytest.mark.parametrize(("width", "out"), [(6, 9), (9, 6), (7, 7)])
def test_a_parallel_ridge_is_a_rectangular_diagonal_beside_the_weight(width: int, out: int) -> None:
    torch.manual_seed(0)
    base = nn.Sequential(nn.Linear(width, out))
    x = torch.randn(4, width)
    model = get_peft_model(base, RidgeLoraConfig(r=2, target_modules=["0"], connection="parallel"))
    layer = layer_of(model)
    assert torch.equal(model(x), layer.base_layer(x))
    assert model.get_nb_trainable_parameters()[0] == 2 * (width + out) + min(width, out) + 1
    move(model)
    lam, sigma, A, B = layer.adapter_weights("default")
    ridge = torch.zeros(out, width)
    ridge.diagonal().copy_((lam * sigma).detach())
    delta = layer.scaling["default"] * B @ A + ridge
    apart = model(x)
    assert (apart - layer.base_layer(x) - x @ delta.T).abs().max() <= 1e-5
    assert (layer.get_delta_weight("default") - delta).abs().max() <= 1e-5
    model.merge_adapter()
    assert (model(x) - apart).abs().max() <= 1e-5


# GPT-2's Conv1D


def gpt2(**options: Any) -> PeftModel:
    torch.manual_seed(0)
    config = GPT2Config(n_embd=32, n_layer=2, n_head=4, vocab_size=64, n_positions=32)
    return adapted(GPT2LMHeadModel(config).eval(), target_modules=["c_attn", "c_fc"], **options)


@pytest.mark.parametrize("options", [{}, {"connection": "parallel"}, {"init_weights": "gaussian_calibrated"}], ids=str)
def test_conv1d_computes_the_formula_merges_and_unmerges(options: dict[str, Any]) -> None:
    model, ids = gpt2(fan_in_fan_out=True, **options), torch.arange(8).unsqueeze(0)
    layer, x = layer_of(model), torch.randn(3, 32)
    assert (layer.in_features, layer.out_features) == (32, 96)
    assert layer.get_delta_weight("default").shape == (96, 32)
    if not options:
        expected = x @ explicit(layer).T @ layer.base_layer.weight + layer.base_layer.bias
        assert (layer(x) - expected).abs().max() <= 1e-5
    apart, before = model(ids).logits, layer.weight.clone()
    model.merge_adapter()
    assert (model(ids).logits - apart).abs().max() <= 1e-4
    assert not torch.equal(layer.weight, before)
    model.unmerge_adapter()
    assert torch.equal(layer.weight, before)
    model(ids, labels=ids).loss.backward()
    assert all(p.grad is not None for name, p in model.named_parameters() if "ridgelora_" in name)


def test_a_fan_in_fan_out_that_does_not_fit_is_warned_about() -> None:
    with pytest.warns(UserWarning, match="fan_in_fan_out is True, but 'lin0' is a torch.nn.Linear"):
        get_peft_model(PLAIN.build(), RidgeLoraConfig(target_modules=["lin0"], fan_in_fan_out=True))
