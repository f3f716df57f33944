"""Edits of masks by block, head and unit, checked on what the models compute."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from transformers import (
    AutoModelForCausalLM,
    GPT2Config,
    GPTBigCodeConfig,
    GPTNeoXConfig,
    LlamaConfig,
    PreTrainedModel,
    Starcoder2Config,
)

from bigram_subnet import SubnetworkMask, block_shares, mask_overlap, masked
from bigram_subnet.layout import split_layers

OUTPUT = {
    "gpt2": "transformer.h.{}.attn.c_proj",
    "gpt_neox": "gpt_neox.layers.{}.attention.dense",
}

OUTPUT_WEIGHT = "model.layers.0.self_attn.o_proj.weight"
GROUPED = ("llama", "qwen2", "qwen3", "mistral", "olmo", "olmo2", "gemma", "gemma2")
MakeModel = Callable[..., PreTrainedModel]


def attention_output(model: PreTrainedModel, ids: Tensor, layer: int = 0) -> Tensor:
    """What the attention hands to its output projection, (batch, sequence, heads * head_size)."""
    name = OUTPUT.get(model.config.model_type, "model.layers.{}.self_attn.o_proj").format(layer)
    seen: list[Tensor] = []
    hook = model.get_submodule(name).register_forward_pre_hook(lambda module, args: seen.append(args[0].detach()))
    with torch.no_grad():
        model(input_ids=ids)
    hook.remove()
    return seen[0]


def changed_heads(model: PreTrainedModel, mask: SubnetworkMask, ids: Tensor, heads: int) -> set[int]:
    before = attention_output(model, ids).unflatten(-1, (heads, -1))
    with masked(model, mask):
        after = attention_output(model, ids).unflatten(-1, (heads, -1))
    return {head for head in range(heads) if not torch.allclose(before[..., head, :], after[..., head, :], atol=1e-6)}


def model_with_heads(family: str, heads: int) -> PreTrainedModel:
    ids = {"bos_token_id": 0, "eos_token_id": 0}
    torch.manual_seed(0)
    config: GPT2Config | GPTNeoXConfig = GPT2Config(
        vocab_size=40, n_positions=16, n_embd=24, n_layer=2, n_head=heads, **ids
    )
    if family == "gpt_neox":
        sizes = {"hidden_size": 24, "intermediate_size": 32, "num_hidden_layers": 2, "max_position_embeddings": 16}
        config = GPTNeoXConfig(vocab_size=40, num_attention_heads=heads, **sizes, **ids)
    model: PreTrainedModel = AutoModelForCausalLM.from_config(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return model


@pytest.mark.parametrize("heads", [1, 2, 3, 6])
@pytest.mark.parametrize("family", ["gpt2", "gpt_neox"])
def test_dropping_one_head_changes_only_its_slice(family: str, heads: int, ids: Tensor) -> None:
    model = model_with_heads(family, heads)
    for head in range(heads):
        mask = SubnetworkMask.full(model).set_attention_head(0, head, keep=False)
        assert changed_heads(model, mask, ids, heads) == {head}


def test_the_official_reading_of_neox_changes_other_heads_too(ids: Tensor) -> None:
    model = model_with_heads("gpt_neox", 3)
    mask = SubnetworkMask.full(model).set_attention_head(0, 0, keep=False, layout="blocks")
    assert changed_heads(model, mask, ids, 3) != {0}


@pytest.mark.parametrize("family", GROUPED)
def test_dropping_one_grouped_head_changes_only_its_slice(family: str, ids: Tensor, make_model: MakeModel) -> None:
    model = make_model(family)
    for head in range(4):
        mask = SubnetworkMask.full(model).set_attention_head(0, head, keep=False)
        # in OLMo 2 the slice stays (values are shared, queries normed with the others'), but it is not read
        assert changed_heads(model, mask, ids, 4) == (set() if family == "olmo2" else {head})
        assert int((~mask[OUTPUT_WEIGHT]).sum()) == 4 * 16


@pytest.mark.parametrize("family", [family for family in GROUPED if family != "olmo2"])
def test_keys_and_values_go_with_the_last_head_of_their_group(family: str, make_model: MakeModel) -> None:
    mask = SubnetworkMask.full(make_model(family))
    keys, values = (mask[f"model.layers.1.self_attn.{part}_proj.weight"] for part in "kv")
    mask.set_attention_head(1, 2, keep=False)
    assert keys.all()
    assert values.all()
    mask.set_attention_head(1, 3, keep=False)
    assert not keys[4:].any()
    assert not values[4:].any()
    assert keys[:4].all()
    mask.set_attention_head(1, 3, keep=True)
    assert keys.all()


def test_where_one_norm_sees_all_heads_a_dropped_head_leaves_queries_and_keys(make_model: MakeModel) -> None:
    mask = SubnetworkMask.full(make_model("olmo2"))
    for head in (0, 1):
        mask.set_attention_head(0, head, keep=False)
    dropped = {name.split(".")[-2]: int((~value).sum()) for name, value in mask.items() if not value.all()}
    assert dropped == {"v_proj": 4 * 16, "o_proj": 16 * 8}


def test_one_key_value_head_serves_all_heads() -> None:
    config = LlamaConfig(
        vocab_size=9, hidden_size=16, intermediate_size=8, num_hidden_layers=1, num_attention_heads=4,
        num_key_value_heads=1, bos_token_id=0, eos_token_id=0,
    )  # fmt: skip
    mask = SubnetworkMask.empty(AutoModelForCausalLM.from_config(config)).set_attention_head(0, 3)
    kept = {name.split(".")[-2]: int(value.sum()) for name, value in mask.items() if value.any()}
    assert kept == {"q_proj": 4 * 16, "k_proj": 4 * 16, "v_proj": 4 * 16, "o_proj": 16 * 4}


def test_keeping_all_heads_and_units_keeps_everything(any_model: PreTrainedModel) -> None:
    mask = SubnetworkMask.empty(any_model)
    units = 24 if any_model.config.model_type not in OUTPUT else 64
    for layer in range(2):
        mask.set_mlp_units(layer, range(units))
        for head in range(4):
            mask.set_attention_head(layer, head)
    assert mask == SubnetworkMask.full(any_model)


def test_heads_are_disjoint_where_they_share_nothing(fused_model: PreTrainedModel) -> None:
    masks = [SubnetworkMask.empty(fused_model).set_attention_head(1, head) for head in range(4)]
    assert all(mask.kept == 4 * 16 * 4 for mask in masks)
    assert all((masks[i] & masks[j]).kept == 0 for i in range(4) for j in range(i))


def test_a_dropped_unit_no_longer_matters(any_model: PreTrainedModel, ids: Tensor) -> None:
    """With the unit dropped, its weights can take any value."""
    mask = SubnetworkMask.full(any_model).set_mlp_units(0, 5, keep=False)
    dropped = {name: int((~value).sum()) for name, value in mask.items() if not value.all()}
    matrices = 2 if any_model.config.model_type in OUTPUT else 3
    assert len(dropped) == matrices
    assert set(dropped.values()) == {16}
    with torch.no_grad(), masked(any_model, mask):
        before = any_model(input_ids=ids).logits
    with torch.no_grad():
        for name, value in mask.items():
            any_model.get_parameter(name).masked_fill_(~value, 3.0)
        with masked(any_model, mask):
            assert torch.equal(any_model(input_ids=ids).logits, before)


def test_layers_are_matched_exactly() -> None:
    config = GPT2Config(vocab_size=9, n_positions=4, n_embd=4, n_layer=12, n_head=2, bos_token_id=0, eos_token_id=0)
    mask = SubnetworkMask.empty(AutoModelForCausalLM.from_config(config)).set_layer(1)
    assert {name.split(".")[2] for name, value in mask.items() if value.any()} == {"1"}
    assert mask.kept == 12 * 16
    assert mask.set_layer(1, keep=False).kept == 0


def test_edits_change_the_mask_and_return_it(make_model: MakeModel) -> None:
    mask = SubnetworkMask.full(make_model("gpt2"))
    assert mask.set_layer(0, keep=False) is mask
    assert mask.set_mlp_units(1, [0], keep=False) is mask
    assert mask.set_attention_head(1, 0, keep=False) is mask


def test_a_head_needs_the_number_of_heads(make_model: MakeModel) -> None:
    model = make_model("gpt2")
    mask = SubnetworkMask(SubnetworkMask.full(model))
    with pytest.raises(ValueError, match="pass config, the model's transformers config"):
        mask.set_attention_head(0, 0, keep=False)
    assert mask.set_attention_head(0, 0, keep=False, config=model.config).kept == mask.total - 4 * 4 * 16


@pytest.mark.parametrize("family", ["gpt2", "gpt_neox", "llama"])
def test_what_does_not_exist_is_named_and_nothing_is_changed(family: str, make_model: MakeModel) -> None:
    mask = SubnetworkMask.empty(make_model(family))
    with pytest.raises(ValueError, match=r"layer must be .* got 2"):
        mask.set_layer(2)
    with pytest.raises(ValueError, match=r"layer must be .* got 2"):
        mask.set_attention_head(2, 0)
    with pytest.raises(ValueError, match="head must be between 0 and 3, got 4"):
        mask.set_attention_head(0, 4)
    with pytest.raises(ValueError, match="head must be between 0 and 3, got -1"):
        mask.set_attention_head(0, -1)
    with pytest.raises(ValueError, match=r"units must be between 0 and \d+, got 64"):
        mask.set_mlp_units(0, [1, 64])
    with pytest.raises(ValueError, match="layout must be one of per_head, blocks, got 'rows'"):
        mask.set_attention_head(0, 0, layout="rows")  # type: ignore[arg-type]
    assert mask.kept == 0


def test_an_unknown_family_is_named_with_the_known_ones() -> None:
    mask = SubnetworkMask({"model.layers.0.mixer.in_proj.weight": torch.ones(4, 4, dtype=torch.bool)})
    with pytest.raises(ValueError, match=r"mixer\.in_proj.*GPT-NeoX"):
        mask.set_mlp_units(0, [0])
    assert mask.set_layer(0, keep=False).kept == 0  # needs no layout


def test_splitting_covers_every_entry_once(any_model: PreTrainedModel) -> None:
    full = SubnetworkMask.full(any_model)
    parts = split_layers(full, "per_head", any_model.config)
    assert sum(part.numel() for part in parts.values()) == full.total
    assert {"0.q", "0.k", "0.v", "0.o", "0.mlp_in", "0.mlp_out", "1.q"} <= parts.keys()


def test_the_split_of_neox_puts_each_heads_rows_into_its_part(make_model: MakeModel) -> None:
    model = make_model("gpt_neox")
    mask = SubnetworkMask.empty(model).set_attention_head(0, 2)
    parts = split_layers(mask, "per_head", model.config)
    for part in "qkv":
        assert parts[f"0.{part}"].nonzero()[:, 0].unique().tolist() == [8, 9, 10, 11]
    assert parts["0.o"].nonzero()[:, 1].unique().tolist() == [8, 9, 10, 11]


@pytest.mark.parametrize("family", ["starcoder2", "gpt_bigcode", "gpt_bigcode_shared"])
def test_families_that_borrow_gpt2s_names_but_store_their_weights_otherwise_are_refused(family: str) -> None:
    if family == "starcoder2":
        config: Any = Starcoder2Config(
            vocab_size=9, hidden_size=16, intermediate_size=24, num_hidden_layers=1, num_attention_heads=4,
            num_key_value_heads=2, bos_token_id=0, eos_token_id=0,
        )  # fmt: skip
    else:
        config = GPTBigCodeConfig(
            vocab_size=9, n_embd=16, n_layer=1, n_head=4, n_positions=8, multi_query=family.endswith("shared"),
            bos_token_id=0, eos_token_id=0,
        )  # fmt: skip
    mask = SubnetworkMask.full(AutoModelForCausalLM.from_config(config))
    for edit in (
        lambda: mask.set_mlp_units(0, 3, keep=False),
        lambda: mask.set_attention_head(0, 1, keep=False),
        lambda: block_shares(mask),
        lambda: mask_overlap(mask, mask),
    ):
        with pytest.raises(ValueError, match="no known layout"):
            edit()
    assert mask.kept == mask.total


def test_a_config_of_another_model_is_refused_and_changes_nothing(make_model: MakeModel) -> None:
    neox = SubnetworkMask.full(make_model("gpt_neox"))
    other = GPT2Config(n_head=5, n_embd=20)
    with pytest.raises(ValueError, match="48 rows of a fused projection do not divide into q, k, v of 5 heads"):
        neox.set_attention_head(0, 1, keep=False, config=other)
    llama = SubnetworkMask.full(make_model("llama"))
    for heads, groups in ((8, 2), (4, 4), (2, 2)):
        config = LlamaConfig(num_attention_heads=heads, num_key_value_heads=groups, hidden_size=16)
        with pytest.raises(ValueError, match="do not share the key heads"):
            llama.set_attention_head(0, 1, keep=False, config=config)
    assert (neox.kept, llama.kept) == (neox.total, llama.total)


def test_numpy_and_torch_numbers_name_units_and_heads(make_model: MakeModel) -> None:
    model = make_model("gpt2")
    for one, plain in ((np.int64(3), 3), (torch.tensor(3), 3), (torch.tensor([1, 3]), [1, 3]), (range(2), [0, 1])):
        assert SubnetworkMask.empty(model).set_mlp_units(0, one) == SubnetworkMask.empty(model).set_mlp_units(0, plain)
    assert SubnetworkMask.empty(model).set_attention_head(0, np.int64(1)).kept > 0
    for wrong in (1.0, "1", None):
        with pytest.raises(ValueError, match="head must be between 0 and 3"):
            SubnetworkMask.empty(model).set_attention_head(0, wrong)  # type: ignore[arg-type]
    for units in (1.5, [True], torch.tensor([1.0]), ["1"]):
        with pytest.raises(ValueError, match="units must be between 0 and 63"):
            SubnetworkMask.empty(model).set_mlp_units(0, units)  # type: ignore[arg-type]
