"""Masks: sets of weights, random controls, and models under them."""

from __future__ import annotations

import operator
from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import PreTrainedModel

from bigram_subnet import SubnetworkMask, apply_mask, maskable_weights, masked
from bigram_subnet.mismatch import mismatch

NAME = "transformer.h.0.mlp.c_fc.weight"

MakeModel = Callable[..., PreTrainedModel]


def random_mask(model: PreTrainedModel, share: float = 0.5, seed: int = 0) -> SubnetworkMask:
    generator = torch.Generator().manual_seed(seed)
    masks = {
        name: torch.rand(weight.shape, generator=generator) < share for name, weight in maskable_weights(model).items()
    }
    return SubnetworkMask(masks, config=model.config)


def logits_of(model: PreTrainedModel, ids: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        logits: torch.Tensor = model(input_ids=ids).logits
    return logits


def test_a_masked_model_computes_with_weights_times_mask(
    any_model: PreTrainedModel, ids: torch.Tensor, make_model: MakeModel
) -> None:
    mask = random_mask(any_model)
    by_hand = make_model(any_model.config.model_type)
    with torch.no_grad():
        for name, weight in maskable_weights(by_hand).items():
            weight.mul_(mask[name])
    assert torch.allclose(logits_of(apply_mask(any_model, mask), ids), logits_of(by_hand, ids), atol=1e-6, rtol=0)


def test_the_subnetwork_and_its_complement_sum_to_the_model(any_model: PreTrainedModel) -> None:
    mask = random_mask(any_model)
    kept, rest = (maskable_weights(apply_mask(any_model, each)) for each in (mask, mask.complement()))
    for name, weight in maskable_weights(any_model).items():
        assert torch.equal(kept[name] + rest[name], weight)


def test_apply_mask_leaves_the_model_unless_it_is_told_to_change_it(make_model: MakeModel) -> None:
    model = make_model("gpt2")
    before = {name: value.clone() for name, value in model.state_dict().items()}
    mask = SubnetworkMask.empty(model)
    assert apply_mask(model, mask) is not model
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert apply_mask(model, mask, inplace=True) is model
    assert not any(weight.any() for weight in maskable_weights(model).values())
    outside = before.keys() - mask.keys()
    assert all(torch.equal(model.state_dict()[name], before[name]) for name in outside)


def test_a_with_block_restores_the_weights_bit_for_bit_even_after_an_error(
    ids: torch.Tensor, make_model: MakeModel
) -> None:
    model = make_model("gpt_neox")
    weight = maskable_weights(model)["gpt_neox.layers.0.mlp.dense_h_to_4h.weight"]
    with torch.no_grad():
        weight[0, 0] = float("nan")
        weight[0, 1] = float("inf")
    before = weight.detach().clone()
    with pytest.raises(RuntimeError, match="in the middle"), masked(model, SubnetworkMask.empty(model)):  # noqa: PT012
        assert not weight.any()
        assert logits_of(model, ids).isfinite().all()
        raise RuntimeError("in the middle")
    assert torch.equal(weight.view(torch.int32), before.view(torch.int32))


def test_a_tied_head_is_not_masked(ids: torch.Tensor, make_model: MakeModel) -> None:
    model = make_model("gpt2")
    head = model.get_output_embeddings().weight
    before = head.detach().clone()
    with masked(model, SubnetworkMask.empty(model)):
        assert torch.equal(head, before)
        assert head is model.get_input_embeddings().weight


def test_a_mask_for_another_model_names_every_difference_at_once(make_model: MakeModel) -> None:
    model = make_model("gpt2")
    masks = dict(SubnetworkMask.full(model))
    masks["transformer.h.7.mlp.c_fc.weight"] = masks.pop(NAME)
    masks["transformer.h.1.attn.c_proj.weight"] = torch.ones(3, 4, dtype=torch.bool)
    for call in (
        lambda mask: apply_mask(model, mask),
        lambda mask: masked(model, mask).__enter__(),
    ):
        before = {name: value.clone() for name, value in model.state_dict().items()}
        with pytest.raises(ValueError) as caught:
            call(SubnetworkMask(masks))
        words = (
            "transformer.h.7.mlp.c_fc.weight",
            NAME,
            "transformer.h.1.attn.c_proj.weight is (3, 4), must be (16, 16)",
        )
        assert all(word in str(caught.value) for word in words)
        assert "\n" not in str(caught.value)
        assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_counts_and_the_summary_agree(make_model: MakeModel) -> None:
    model = make_model("llama")
    mask = random_mask(model, 0.25)
    summary = mask.summary()
    assert summary["kept"] == mask.kept == sum(int(each.sum()) for each in mask.values())
    assert summary["total"] == mask.total == SubnetworkMask.full(model).kept
    assert sum(row["kept"] for row in summary["weights"].values()) == mask.kept
    assert SubnetworkMask.empty(model).kept == 0


def bits(size: int = 12) -> st.SearchStrategy[list[bool]]:
    return st.lists(st.booleans(), min_size=size, max_size=size)


@given(bits(), bits())
def test_set_operations_obey_the_laws_of_sets(left: list[bool], right: list[bool]) -> None:
    a, b = (SubnetworkMask({NAME: torch.tensor(values).view(3, 4)}) for values in (left, right))
    assert a.complement().complement() == a
    assert (a | b) == (a.complement() & b.complement()).complement()
    assert (a - b) == (a & b.complement())
    assert (a & b).kept + (a | b).kept == a.kept + b.kept


@given(bits(), st.integers(0, 1000))
def test_a_random_control_keeps_the_count_of_every_matrix(values: list[bool], seed: int) -> None:
    other = NAME.replace(".0.", ".1.")
    mask = SubnetworkMask({NAME: torch.tensor(values).view(3, 4), other: ~torch.tensor(values).view(4, 3)})
    random = mask.randomize_within_blocks(torch.Generator().manual_seed(seed))
    assert [int(each.sum()) for each in random.values()] == [int(each.sum()) for each in mask.values()]
    assert random == mask.randomize_within_blocks(torch.Generator().manual_seed(seed))


def test_a_random_control_reaches_every_place() -> None:
    mask = SubnetworkMask({NAME: torch.tensor([[True, False, False], [False, False, False]])})
    generator = torch.Generator().manual_seed(0)
    places = {int(mask.randomize_within_blocks(generator)[NAME].flatten().int().argmax()) for _ in range(200)}
    assert places == set(range(6))


def test_masks_of_different_models_do_not_combine(make_model: MakeModel) -> None:
    a, b = (SubnetworkMask.full(make_model(family)) for family in ("gpt2", "gpt_neox"))
    with pytest.raises(ValueError, match="different models") as told:
        a & b
    assert str(told.value) == (
        "the masks are of different models: 8 only in the first: transformer.h.{0-1}.attn.c_attn.weight, "
        "transformer.h.{0-1}.attn.c_proj.weight, transformer.h.{0-1}.mlp.c_fc.weight, "
        "transformer.h.{0-1}.mlp.c_proj.weight; 8 only in the second: gpt_neox.layers.{0-1}.attention.dense.weight, "
        "gpt_neox.layers.{0-1}.attention.query_key_value.weight, gpt_neox.layers.{0-1}.mlp.dense_4h_to_h.weight, "
        "gpt_neox.layers.{0-1}.mlp.dense_h_to_4h.weight"
    )


def test_masks_combine_with_masks_only() -> None:
    mask = SubnetworkMask({"h.0.a.weight": torch.ones(2, 3, dtype=torch.bool)})
    for join in (operator.and_, operator.or_, operator.sub):
        with pytest.raises(TypeError, match="a mask is joined with another SubnetworkMask, got int"):
            join(mask, 3)


def test_all_differences_between_a_mask_and_a_model_are_named_counts_first() -> None:
    def weights(**shapes: tuple[int, ...]) -> dict[str, torch.Tensor]:
        return {name.replace("_", "."): torch.zeros(shape, dtype=torch.bool) for name, shape in shapes.items()}

    found = {f"h.{block}.a.weight": torch.zeros(2, 3) for block in (0, 1, 2, 4, 10)} | weights(h_1_b=(2, 2), x=(1,))
    wanted = {f"h.{block}.c.weight": torch.zeros(2, 3) for block in (3,)} | weights(h_1_b=(2, 3))
    assert mismatch(found, wanted, ("unknown", "missing", ", must be ")) == (
        "6 unknown: h.{0-2,4,10}.a.weight, x; 1 missing: h.3.c.weight; "
        "1 of another shape: h.1.b is (2, 2), must be (2, 3)"
    )
    assert mismatch(wanted, wanted, ("unknown", "missing", ", must be ")) == ""


def test_a_tilde_is_the_complement_and_arrays_are_masks_too(make_model: MakeModel) -> None:
    full = SubnetworkMask.full(make_model("gpt2"))
    assert ~full == full.complement() == SubnetworkMask.empty(make_model("gpt2"))
    arrays = {name: np.asarray(mask) for name, mask in full.items()}
    for array in arrays.values():
        array.setflags(write=False)
    mask = SubnetworkMask(arrays, config=full.config)
    assert mask == full
    assert mask.set_layer(0, keep=False).kept == full.total // 2 < full.kept == full.total
    with pytest.raises(ValueError, match="a mask must be a bool tensor or array, got float64"):
        SubnetworkMask({"h.0.mlp.c_fc.weight": np.ones((2, 2))})


@pytest.mark.parametrize(
    ("masks", "words"),
    [
        ({}, "at least one weight"),
        ({NAME: torch.ones(2, 2)}, "bool tensor or array, got torch.float32"),
        ({NAME: [[True]]}, "bool tensor or array, got list"),
        (
            {"lm_head.weight": torch.ones(2, 2, dtype=torch.bool)},
            "lm_head.weight: not the name of a weight inside a block",
        ),
    ],
)
def test_what_is_no_mask_is_refused(masks: dict[str, torch.Tensor], words: str) -> None:
    with pytest.raises(ValueError) as caught:
        SubnetworkMask(masks)
    assert words in str(caught.value)


@pytest.mark.parametrize("value", [torch.ones(16, 16), torch.full((16, 16), float("nan"), dtype=torch.bfloat16)])
def test_masks_that_are_not_bool_are_refused_before_any_weight_is_changed(
    value: torch.Tensor, make_model: MakeModel
) -> None:
    model = make_model("gpt2")
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    masks = dict(SubnetworkMask.empty(model))
    last = "transformer.h.1.attn.c_proj.weight"
    masks[last] = value
    with pytest.raises(ValueError, match=f"bool tensors, got {value.dtype} for {last}"):
        apply_mask(model, masks, inplace=True)
    assert all(torch.equal(weight, before[name]) for name, weight in model.state_dict().items())


def test_nested_blocks_restore_one_after_the_other(make_model: MakeModel) -> None:
    model = make_model("llama").to(torch.bfloat16)
    outer, inner = random_mask(model, seed=1), random_mask(model, seed=2)
    before = {name: weight.detach().clone() for name, weight in maskable_weights(model).items()}
    with masked(model, outer):
        between = {name: weight.detach().clone() for name, weight in maskable_weights(model).items()}
        with pytest.raises(KeyboardInterrupt), masked(model, inner):
            raise KeyboardInterrupt
        assert all(torch.equal(weight, between[name]) for name, weight in maskable_weights(model).items())
    assert all(torch.equal(weight, before[name]) for name, weight in maskable_weights(model).items())


def test_generating_with_a_cache_under_a_mask_is_that_of_the_masked_model(
    any_model: PreTrainedModel, ids: torch.Tensor
) -> None:
    mask = random_mask(any_model)
    options = {"max_new_tokens": 5, "do_sample": False, "attention_mask": torch.ones_like(ids)}
    alone = apply_mask(any_model, mask).generate(ids, **options)  # type: ignore[operator]
    with masked(any_model, mask):
        cached = any_model.generate(ids, **options)  # type: ignore[operator]
        plain = any_model.generate(ids, use_cache=False, **options)  # type: ignore[operator]
    assert torch.equal(cached, alone)
    assert torch.equal(cached, plain)


def test_a_mask_without_entries_keeps_nothing_of_nothing() -> None:
    mask = SubnetworkMask({NAME: torch.zeros(4, 0, dtype=torch.bool)})
    assert (mask.kept, mask.total, mask.proportion_kept) == (0, 0, 0.0)
    assert mask.randomize_within_blocks() == mask == mask.complement()
    assert "0 of 0" in repr(mask)
