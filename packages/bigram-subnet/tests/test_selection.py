"""Which weights a mask covers, for every family."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, prune
from transformers import AutoModelForCausalLM, GPT2Config, MixtralConfig, PreTrainedModel

from bigram_subnet import ContinuousSparsifier, SubnetworkMask, apply_mask, maskable_weights

GROUPED = ("llama", "qwen2", "qwen3", "mistral", "olmo", "olmo2", "gemma", "gemma2")
MakeModel = Callable[..., PreTrainedModel]


def test_gpt2_and_neox_mask_twelve_d_squared_per_layer(fused_model: PreTrainedModel) -> None:
    weights = maskable_weights(fused_model)
    assert sum(weight.numel() for weight in weights.values()) == 12 * 16**2 * 2


@pytest.mark.parametrize("family", GROUPED)
def test_separate_projections_and_gated_mlps_are_all_masked(family: str, make_model: MakeModel) -> None:
    weights = maskable_weights(make_model(family))
    attention, mlp = 2 * 16 * 16 + 2 * 8 * 16, 3 * 16 * 24  # q, o; k, v; gate, up, down
    assert len(weights) == 7 * 2
    assert sum(weight.numel() for weight in weights.values()) == 2 * (attention + mlp)


def test_no_embedding_head_norm_or_bias_is_masked(any_model: PreTrainedModel) -> None:
    weights = maskable_weights(any_model)
    own = {id(weight) for weight in weights.values()}
    for layer in (any_model.get_input_embeddings(), any_model.get_output_embeddings()):
        assert id(layer.weight) not in own
    for name, parameter in any_model.named_parameters():
        masked = name in weights
        assert masked == ((parameter.ndim == 2 and ".0." in name) or (parameter.ndim == 2 and ".1." in name))


def test_weights_are_the_parameters_themselves_in_model_order(any_model: PreTrainedModel) -> None:
    weights, parameters = maskable_weights(any_model), dict(any_model.named_parameters())
    assert list(weights) == [name for name in parameters if name in weights]
    assert all(weights[name] is parameters[name] for name in weights)


def test_the_neox_head_is_left_out_under_its_old_and_new_name(make_model: MakeModel) -> None:
    model = make_model("gpt_neox")
    assert any(name in ("embed_out.weight", "lm_head.weight") for name, _ in model.named_parameters())
    assert not any("lm_head" in name or "embed" in name for name in maskable_weights(model))


def test_a_model_that_is_no_transformers_model_is_refused() -> None:
    with pytest.raises(ValueError, match="transformers causal language model, got Linear"):
        maskable_weights(nn.Linear(2, 2))


def test_stacked_experts_are_refused_by_name() -> None:
    config = MixtralConfig(
        vocab_size=40, hidden_size=16, intermediate_size=24, num_hidden_layers=1, num_attention_heads=4,
        num_key_value_heads=2, num_local_experts=2, bos_token_id=0, eos_token_id=0,
    )  # fmt: skip
    model = AutoModelForCausalLM.from_config(config)
    stacked = [name for name, parameter in model.named_parameters() if parameter.ndim == 3]
    if not stacked:
        pytest.skip("this transformers keeps experts as linear layers")
    with pytest.raises(ValueError) as caught:
        maskable_weights(model)
    assert all(name in str(caught.value) for name in stacked)


def test_quantised_weights_are_refused(make_model: MakeModel) -> None:
    model = make_model("llama")
    layer = model.get_submodule("model.layers.0.mlp.up_proj")
    layer.weight = nn.Parameter(layer.weight.detach().to(torch.int8), requires_grad=False)
    with pytest.raises(ValueError, match=r"model\.layers\.0\.mlp\.up_proj\.weight is torch\.int8"):
        maskable_weights(model)


def test_a_model_of_one_block_is_found_too() -> None:
    config = GPT2Config(vocab_size=5, n_positions=4, n_embd=8, n_layer=1, n_head=2, bos_token_id=0, eos_token_id=0)
    assert len(maskable_weights(AutoModelForCausalLM.from_config(config))) == 4


def test_a_model_whose_weights_are_not_loaded_is_refused_where_they_are_needed() -> None:
    config = GPT2Config(vocab_size=5, n_positions=4, n_embd=8, n_layer=1, n_head=2, bos_token_id=0, eos_token_id=0)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    mask = SubnetworkMask.full(model)  # needs no values
    for call in (lambda: apply_mask(model, mask), lambda: ContinuousSparsifier(model)):
        with pytest.raises(ValueError, match=r"not in memory .*transformer\.h\.0\.attn\.c_attn\.weight"):
            call()


def test_pruned_parametrised_and_eight_bit_weights_are_refused_by_name(make_model: MakeModel) -> None:
    def pruned(layer: nn.Module) -> None:
        prune.random_unstructured(layer, "weight", amount=0.5)

    def parametrised(layer: nn.Module) -> None:
        parametrizations.weight_norm(layer)

    def eight_bit(layer: nn.Module) -> None:
        layer.weight = nn.Parameter(layer.weight.detach().to(torch.float8_e4m3fn), requires_grad=False)

    for change, words in (
        (pruned, "no parameter of its own"),
        (parametrised, "no parameter of its own"),
        (eight_bit, "torch.float8_e4m3fn"),
    ):
        model = make_model("llama")
        for name in ("up_proj", "down_proj"):
            change(model.get_submodule(f"model.layers.1.mlp.{name}"))
        with pytest.raises(ValueError) as caught:
            maskable_weights(model)
        for name in ("up_proj", "down_proj"):
            assert f"model.layers.1.mlp.{name}.weight is {words}" in str(caught.value)


def test_a_wrapper_of_torch_compile_is_refused_and_compiling_in_place_is_not(make_model: MakeModel) -> None:
    model = make_model("gpt2")
    with pytest.raises(ValueError, match=r"torch\.compile, which renames its weights"):
        maskable_weights(torch.compile(model))  # type: ignore[arg-type]
    model.compile()
    assert list(maskable_weights(model)) == list(maskable_weights(make_model("gpt2")))
