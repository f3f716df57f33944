"""Surprisals, ablation, overlap, rotations, lens and similarity."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F
from transformers import AutoModelForCausalLM, OpenAIGPTConfig, PreTrainedModel

from bigram_subnet import (
    BigramCounts,
    SelfTarget,
    SparsifyConfig,
    SubnetworkMask,
    ablation_report,
    apply_mask,
    block_shares,
    covariance_similarity,
    distribution_cross_entropy,
    evaluate_subnetwork,
    layer_lens,
    layer_rotations,
    mask_overlap,
    residual_states,
    ridge_map,
    rotation_angle,
    select_subnetwork,
    surprisal,
    surprisal_correlation,
    train_subnetwork,
)
from bigram_subnet.layout import place_of

MakeModel = Callable[..., PreTrainedModel]


def random_mask(model: PreTrainedModel, share: float, seed: int) -> SubnetworkMask:
    generator = torch.Generator().manual_seed(seed)
    mask = SubnetworkMask.empty(model)
    for name in mask:
        mask[name].copy_(torch.rand(mask[name].shape, generator=generator) < share)
    return mask


# Surprisal


def test_surprisal_is_the_cross_entropy_in_bits(ids: Tensor) -> None:
    logits = torch.randn(3, 9, 40, generator=torch.Generator().manual_seed(0))
    bits = surprisal(logits, ids)
    assert bits.shape == (3, 8)
    expected = F.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten()) / math.log(2)
    torch.testing.assert_close(bits.mean(), expected)


def test_correlation_is_pearsons_and_knows_scale_and_sign() -> None:
    x = torch.randn(50, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    y = torch.randn(50, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    assert surprisal_correlation(x, y) == pytest.approx(float(torch.corrcoef(torch.stack([x, y]))[0, 1]))
    assert surprisal_correlation(x, 3 * x + 2) == pytest.approx(1.0)
    assert surprisal_correlation(x, -x) == pytest.approx(-1.0)
    assert math.isnan(surprisal_correlation(x, torch.ones(50)))


def test_infinite_values_are_dropped_or_clamped() -> None:
    inf = math.inf
    model, target = torch.tensor([1.0, 2.0, inf, 0.0]), torch.tensor([1.0, inf, 3.0, 0.5])
    dropped = surprisal_correlation(torch.tensor([1.0, 2.0, 0.0]), torch.tensor([1.0, 3.0, 0.5]))
    # the model's largest finite value among the tokens that are left is 1
    assert surprisal_correlation(model, target) == pytest.approx(
        surprisal_correlation(torch.tensor([1.0, 1.0, 0.0]), torch.tensor([1.0, 3.0, 0.5]))
    )
    assert surprisal_correlation(model, target) != pytest.approx(dropped)
    clamped = surprisal_correlation(torch.tensor([1.0, 2.0, 2.0, 0.0]), torch.tensor([1.0, 3.0, 3.0, 0.5]))
    assert surprisal_correlation(model, target, infinite="clamp") == pytest.approx(clamped)


def test_correlations_that_cannot_be_are_refused() -> None:
    one = torch.ones(3)
    with pytest.raises(ValueError, match="one shape"):
        surprisal_correlation(one, torch.ones(4))
    with pytest.raises(ValueError, match="NaN"):
        surprisal_correlation(one, torch.full((3,), math.nan))
    with pytest.raises(ValueError, match="at least two tokens"):
        surprisal_correlation(one, torch.full((3,), math.inf))
    with pytest.raises(ValueError, match="every surprisal is infinite"):
        surprisal_correlation(one, torch.full((3,), math.inf), infinite="clamp")
    with pytest.raises(ValueError, match="drop_target, clamp"):
        surprisal_correlation(one, one, infinite="ignore")  # type: ignore[arg-type]


def test_the_sparsest_subnetwork_within_the_tolerance_is_chosen() -> None:
    results = {0.0: 0.96, 1.0: 0.97, 10.0: 0.92, 100.0: 0.91}
    assert select_subnetwork(results) == 10.0
    assert select_subnetwork(results, tolerance=0.05) == 100.0
    assert select_subnetwork({5.0: 0.1}) == 5.0
    with pytest.raises(ValueError, match="at least one result"):
        select_subnetwork({})


# Ablation


def test_the_report_is_made_of_the_losses_of_masked_models(fused_model: PreTrainedModel, ids: Tensor) -> None:
    mask = random_mask(fused_model, 0.3, 0)
    report = ablation_report(fused_model, mask, ids, torch.Generator().manual_seed(5))
    random = mask.randomize_within_blocks(torch.Generator().manual_seed(5))
    masks = {"subnetwork": mask, "random": random, "ablated": mask.complement(), "random_ablated": random.complement()}
    assert report.keys() == {"full", *masks}
    for name, value in report.items():
        model = apply_mask(fused_model, masks[name]) if name in masks else fused_model
        with torch.no_grad():
            logits = model(input_ids=ids).logits
        expected = F.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())
        assert value == pytest.approx(float(expected), abs=1e-5)


def test_ids_outside_of_the_models_vocabulary_are_refused(make_model: MakeModel) -> None:
    model = make_model("gpt2")
    with pytest.raises(ValueError, match="vocabulary, 0 to 39, got 0 to 40"):
        ablation_report(model, SubnetworkMask.full(model), torch.tensor([[0, 40]]))
    with pytest.raises(ValueError, match="whole numbers"):
        ablation_report(model, SubnetworkMask.full(model), torch.tensor([[0.0, 1.0]]))


# Overlap


@pytest.mark.parametrize("null", ["uniform", "rows"])
def test_identical_masks_overlap_by_what_they_keep(null: str, any_model: PreTrainedModel) -> None:
    mask = random_mask(any_model, 0.2, 0)
    result = mask_overlap(mask, mask, null=null, draws=20)  # type: ignore[arg-type]
    assert result.overlap == mask.kept / mask.total
    assert result.contained == 1.0
    assert result.p_value == 1 / 21


@pytest.mark.parametrize("null", ["uniform", "rows"])
@pytest.mark.parametrize("family", ["gpt2", "gpt_neox", "llama"])
def test_the_closed_form_is_the_mean_of_the_draws(null: str, family: str, make_model: MakeModel) -> None:
    a, b = (random_mask(make_model(family), share, seed) for seed, share in ((1, 0.2), (2, 0.4)))
    for name in a:  # columns of unequal counts, so that the two nulls differ
        for mask in (a, b):
            place_of(name).oriented(mask[name])[:, :3] = True
    result = mask_overlap(a, b, null=null, draws=2000)  # type: ignore[arg-type]
    assert abs(result.null_mean - result.expected) < 4 * result.null_std / 2000**0.5
    other = mask_overlap(a, b, null="rows" if null == "uniform" else "uniform", draws=1)
    assert abs(other.expected - result.expected) > 4 * result.null_std / 2000**0.5


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 999), st.sampled_from(["uniform", "rows"]))
def test_swapping_the_masks_leaves_overlap_and_p(seed: int, null: str) -> None:
    generator = torch.Generator().manual_seed(seed)
    names = [f"transformer.h.0.{module}.weight" for module in ("mlp.c_fc", "mlp.c_proj", "attn.c_proj")]
    a, b = (
        SubnetworkMask({name: torch.rand(6, 5, generator=generator) < share for name in names}) for share in (0.3, 0.6)
    )
    there, back = mask_overlap(a, b, null, draws=50), mask_overlap(b, a, null, draws=50)  # type: ignore[arg-type]
    assert (there.overlap, there.expected, there.p_value) == (back.overlap, back.expected, back.p_value)
    assert there.contained == pytest.approx(there.overlap * there.total / a.kept)


@pytest.mark.parametrize("null", ["uniform", "rows"])
def test_the_draws_follow_the_exact_distribution(null: str) -> None:
    """One block of 4 x 1 entries, two kept in each mask: the overlap is 0, 1 or 2 with odds 1 : 4 : 1."""
    a = SubnetworkMask({"h.0.mlp.dense_h_to_4h.weight": torch.tensor([[True], [True], [False], [False]])})
    result = mask_overlap(a, a, null=null, draws=20000)  # type: ignore[arg-type]
    assert result.p_value == pytest.approx(1 / 6, abs=0.01)
    assert result.expected == 1 / 4


def test_random_masks_are_not_significant_and_a_shared_core_is(make_model: MakeModel) -> None:
    model = make_model("gpt2")
    a, b, core = (random_mask(model, 0.1, seed) for seed in (1, 2, 3))
    assert mask_overlap(a, b, draws=500).p_value > 0.01
    assert mask_overlap(a | core, b | core, draws=500).p_value == 1 / 501
    assert mask_overlap(a | core, b | core, draws=5).ratio > 2


def test_neox_per_head_needs_the_heads_and_blocks_does_not(make_model: MakeModel) -> None:
    model = make_model("gpt_neox")
    mask = random_mask(model, 0.3, 0)
    bare = SubnetworkMask(dict(mask))
    with pytest.raises(ValueError, match=r"query_key_value.*pass config"):
        mask_overlap(bare, bare, draws=5)
    assert mask_overlap(bare, bare, draws=5, layout="blocks").overlap == mask.kept / mask.total
    given = mask_overlap(bare, bare, draws=5, config=model.config)
    assert given == mask_overlap(mask, mask, draws=5)


def test_overlap_arguments_out_of_range_are_named(make_model: MakeModel) -> None:
    gpt2, neox = (SubnetworkMask.full(make_model(family)) for family in ("gpt2", "gpt_neox"))
    with pytest.raises(ValueError, match="different models"):
        mask_overlap(gpt2, neox)
    with pytest.raises(ValueError, match="uniform, rows"):
        mask_overlap(gpt2, gpt2, null="columns")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="draws"):
        mask_overlap(gpt2, gpt2, draws=0)


def test_an_empty_mask_has_no_containment(make_model: MakeModel) -> None:
    model = make_model("gpt2")
    result = mask_overlap(SubnetworkMask.empty(model), SubnetworkMask.full(model), draws=10)
    assert math.isnan(result.contained)
    assert (result.overlap, result.expected, result.p_value) == (0.0, 0.0, 1.0)


# Residual stream


def rotation(degrees: float, planes: int) -> Tensor:
    angle = math.radians(degrees)
    block = torch.tensor([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]], dtype=torch.float64)
    whole: Tensor = torch.block_diag(*[block] * planes)
    return whole


@pytest.mark.parametrize("degrees", [0.0, 30.0, 90.0, 179.0])
def test_an_exact_rotation_is_found(degrees: float) -> None:
    x = torch.randn(200, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    basis = torch.linalg.qr(torch.randn(8, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(1)))[0]
    turn = basis @ rotation(degrees, 4) @ basis.T
    coefficient, intercept = ridge_map(x, x @ turn.T + 5, alpha=1e-12)
    torch.testing.assert_close(coefficient, turn, atol=1e-9, rtol=0)
    torch.testing.assert_close(intercept, torch.full((8,), 5.0, dtype=torch.float64), atol=1e-9, rtol=0)
    assert rotation_angle(coefficient) == pytest.approx(degrees, abs=1e-3)


def test_the_identity_turns_by_nothing_and_its_negative_by_half_a_turn() -> None:
    assert rotation_angle(torch.eye(5)) == 0.0
    assert rotation_angle(-torch.eye(5)) == 180.0
    with pytest.raises(ValueError, match="square"):
        rotation_angle(torch.ones(2, 3))


def test_the_ridge_map_is_the_minimum_of_its_loss() -> None:
    generator = torch.Generator().manual_seed(0)
    x, y = (torch.randn(30, size, dtype=torch.float64, generator=generator) + 4 for size in (5, 3))
    found = [part.requires_grad_() for part in ridge_map(x, y, alpha=2.5)]
    loss = (y - x @ found[0].T - found[1]).pow(2).sum() + 2.5 * found[0].pow(2).sum()
    assert all(gradient.abs().max() < 1e-9 for gradient in torch.autograd.grad(loss, found))
    with pytest.raises(ValueError, match="rows of both"):
        ridge_map(x, y[:-1])
    with pytest.raises(ValueError, match="alpha"):
        ridge_map(x, y, alpha=-1)


def test_states_are_block_outputs_before_the_final_norm(any_model: PreTrainedModel, ids: Tensor) -> None:
    states = list(residual_states(any_model, ids, batch_size=2))
    assert [len(batch.input_ids) for batch in states] == [18, 9]
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in any_model.modules())
    assert len(states[0].layers) == 3
    with torch.no_grad():
        hidden = any_model(input_ids=ids[:2], output_hidden_states=True).hidden_states
    for ours, theirs in zip(states[0].layers[:-1], hidden[:-1], strict=True):
        torch.testing.assert_close(ours, theirs.flatten(0, 1))
    assert not torch.allclose(states[0].layers[-1], hidden[-1].flatten(0, 1))  # theirs is behind the norm


def test_the_first_layer_of_a_model_without_added_positions_is_its_embeddings(make_model: MakeModel) -> None:
    model = make_model("gpt_neox")
    ids = torch.randint(0, 40, (20, 16), generator=torch.Generator().manual_seed(0))
    angles = layer_rotations(model, ids)
    assert len(angles) == 3
    assert angles[0].to_input == pytest.approx(0.0, abs=1e-6)
    assert angles[-1].to_output == pytest.approx(0.0, abs=1e-6)
    assert angles[1].to_input > 5
    assert all(0 <= angle <= 180 for pair in angles for angle in pair)


def test_an_empty_mask_turns_less_than_the_model(make_model: MakeModel) -> None:
    model = make_model("llama")
    ids = torch.randint(0, 40, (20, 16), generator=torch.Generator().manual_seed(0))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    angles = layer_rotations(model, ids, SubnetworkMask.empty(model))
    assert all(angle == pytest.approx(0.0, abs=1e-6) for pair in angles for angle in pair)  # no biases: nothing moves
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_states_that_are_not_finite_are_dropped_up_to_one_percent(make_model: MakeModel, ids: Tensor) -> None:
    model = make_model("gpt_neox")
    with torch.no_grad():
        model.get_input_embeddings().weight[39] = math.nan
    good = ids.clamp(max=38)
    many = good.repeat(40, 1)
    many[0, -1] = 39
    assert sum(len(batch.input_ids) for batch in residual_states(model, many)) == many.numel() - 9  # its sequence
    good[:, -1] = 39
    with pytest.raises(ValueError, match="27 of 27 positions are not finite"):
        list(residual_states(model, good))


def test_the_lens_reads_the_input_off_the_first_layer(any_model: PreTrainedModel) -> None:
    ids = torch.randint(0, 40, (20, 16), generator=torch.Generator().manual_seed(0))
    results = layer_lens(any_model, ids, "output")
    assert len(results) == 3
    assert results[-1].correlation == pytest.approx(1.0, abs=1e-4)  # its map is the identity
    assert all(first.recall_at_1 <= first.recall_at_5 <= first.recall_at_10 <= 1 for first in results)
    results = layer_lens(any_model, ids, "input", SubnetworkMask.empty(any_model))
    matrix = any_model.get_input_embeddings().weight.detach()
    best = (matrix @ matrix.T).argmax(1)
    if any_model.config.model_type in ("gpt_neox", "llama"):  # nothing is added to the embeddings, nothing scales them
        expected = float((best[ids] == ids).float().mean())
        assert results[0].recall_at_1 == pytest.approx(expected, abs=0.03)
        assert results[0].correlation == pytest.approx(1.0, abs=1e-3)


def test_an_unknown_direction_is_named(make_model: MakeModel, ids: Tensor) -> None:
    with pytest.raises(ValueError, match="input, output"):
        layer_lens(make_model("gpt2"), ids, "back")  # type: ignore[arg-type]


def test_similarity_of_a_layer_with_itself_is_one_and_symmetric() -> None:
    generator = torch.Generator().manual_seed(0)
    x, y = (torch.randn(50, 6, generator=generator) @ torch.randn(6, 6, generator=generator) for _ in range(2))
    assert covariance_similarity(x, x) == pytest.approx(1.0, abs=1e-12)
    assert covariance_similarity(x, y) == pytest.approx(covariance_similarity(y, x), abs=1e-12)
    assert -1 <= covariance_similarity(x, y) < 1
    assert covariance_similarity(x, 3 * x + 7) == pytest.approx(1.0, abs=1e-9)


def test_the_top_direction_does_not_count() -> None:
    x = torch.zeros(400, 3, dtype=torch.float64)
    x[:, 1:] = torch.randn(400, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) * torch.tensor(
        [2, 1]
    )
    y = x.clone()
    y[:, 0] = 100 * torch.randn(400, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    centred = y - y.mean(0)
    left, values, right = torch.linalg.svd(centred, full_matrices=False)
    rest = centred - values[0] * torch.outer(left[:, 0], right[0])
    expected = rest.T @ rest
    alone = x - x.mean(0)
    direction = torch.linalg.svd(alone, full_matrices=False)[2][0]
    other = alone - torch.outer(alone @ direction, direction)
    cosine = F.cosine_similarity(expected.flatten(), (other.T @ other).flatten(), dim=0)
    assert covariance_similarity(y, x) == pytest.approx(float(cosine), abs=1e-9)
    with pytest.raises(ValueError, match="two samples"):
        covariance_similarity(x[:1], x)


# Edge cases


def test_a_series_that_does_not_vary_has_no_correlation() -> None:
    """Around its rounded mean, 0.1 seven times would vary by the last bit."""
    for constant in (torch.full((7,), 0.1, dtype=torch.float64), torch.full((7,), 1e17, dtype=torch.float64)):
        assert math.isnan(surprisal_correlation(constant, torch.arange(7.0)))
        assert math.isnan(surprisal_correlation(torch.arange(7.0), constant))


def test_surprisal_takes_ids_of_any_width_and_names_those_outside_of_the_vocabulary() -> None:
    logits = torch.randn(2, 3, 5, generator=torch.Generator().manual_seed(0))
    ids = torch.tensor([[1, 2, 3], [0, 4, 4]])
    for dtype in (torch.uint8, torch.int32):
        assert torch.equal(surprisal(logits, ids.to(dtype)), surprisal(logits, ids))
    for wrong in (-1, 5):
        ids[1, 2] = wrong
        with pytest.raises(ValueError, match="vocabulary, 0 to 4"):
            surprisal(logits, ids)


def test_a_negative_tolerance_is_refused() -> None:
    with pytest.raises(ValueError, match=r"tolerance must be at least 0, got -0\.1"):
        select_subnetwork({0.0: 0.9}, -0.1)


def test_several_random_masks_give_mean_and_spread(make_model: MakeModel, ids: Tensor) -> None:
    model = make_model("gpt2")
    mask, generator = random_mask(model, 0.5, 0), torch.Generator().manual_seed(5)
    found = ablation_report(model, mask, ids, generator, draws=3)
    again = torch.Generator().manual_seed(5)
    each = [ablation_report(model, mask, ids, again) for _ in range(3)]
    for name in ("random", "random_ablated"):
        values = torch.tensor([one[name] for one in each], dtype=torch.float64)
        assert (found[name], found[f"{name}_std"]) == pytest.approx((float(values.mean()), float(values.std())))
    assert {name: found[name] for name in ("full", "subnetwork", "ablated")} == {
        name: each[0][name] for name in ("full", "subnetwork", "ablated")
    }
    with pytest.raises(ValueError, match="draws must be at least 1, got 0"):
        ablation_report(model, mask, ids, draws=0)


def test_sequences_of_one_token_have_no_loss(make_model: MakeModel) -> None:
    model = make_model("gpt2")
    with pytest.raises(ValueError, match="at least 2 tokens, so that one is predicted; got 1"):
        ablation_report(model, SubnetworkMask.full(model), torch.tensor([[1], [2]]))


def test_sequences_that_a_model_was_not_made_for_are_refused(make_model: MakeModel) -> None:
    """GPT-2 would end in an IndexError, and models with rotary positions give numbers that mean nothing."""
    for family in ("gpt2", "gpt_neox"):
        model, words = make_model(family), r"sequences of 33 tokens are too long: the model takes at most 32"
        full, ids = SubnetworkMask.full(model), torch.zeros(2, 33, dtype=torch.long)
        with pytest.raises(ValueError, match=words):
            ablation_report(model, full, ids)
        with pytest.raises(ValueError, match=words):
            layer_rotations(model, ids)
        with pytest.raises(ValueError, match=words):
            train_subnetwork(model, SelfTarget(model), ids, SparsifyConfig(batch_size=2, max_steps=1))
        with pytest.raises(ValueError, match=words):
            train_subnetwork(model, SelfTarget(model), ids.tolist(), SparsifyConfig(batch_size=2, max_steps=1))
        assert ablation_report(model, full, ids[:, :32])["full"] > 0


def test_the_evaluation_is_made_of_surprisals_and_cross_entropies_of_masked_models(
    any_model: PreTrainedModel, ids: Tensor
) -> None:
    counts = BigramCounts.from_sequences(ids, 40)
    mask = random_mask(any_model, 0.5, 0)
    before = {name: value.clone() for name, value in any_model.state_dict().items()}
    found = evaluate_subnetwork(any_model, mask, counts, ids, torch.Generator().manual_seed(3), batch_size=2)
    assert all(torch.equal(value, before[name]) for name, value in any_model.state_dict().items())
    bits, target = counts.token_surprisal(ids)[:, 1:], counts.next_token_probs(ids)
    with torch.no_grad():
        full, ours = (model(input_ids=ids).logits for model in (any_model, apply_mask(any_model, mask)))
        control = mask.randomize_within_blocks(torch.Generator().manual_seed(3))
        random = apply_mask(any_model, control)(input_ids=ids).logits
    expected = {
        "ngram_corr_dropinf": surprisal_correlation(surprisal(ours, ids), bits),
        "ngram_correlation": surprisal_correlation(surprisal(ours, ids), bits, infinite="clamp"),
        "ngram_xent": float(distribution_cross_entropy(ours, target)),
        "distill_correlation": surprisal_correlation(surprisal(ours, ids), surprisal(full, ids)),
        "distill_xent": float(distribution_cross_entropy(ours, full.softmax(-1))),
    }
    assert {name: found[name] for name in expected} == pytest.approx(expected, abs=1e-5)
    assert found["controls"].keys() == {"full", "random", "empty"}
    assert found["controls"]["random"]["ngram_xent"] == pytest.approx(
        float(distribution_cross_entropy(random, target)), abs=1e-5
    )


def test_an_evaluation_that_cannot_be_is_refused_before_the_model_is_asked(make_model: MakeModel) -> None:
    model, counts = make_model("gpt2"), BigramCounts.from_sequences([[0, 1, 2]], 3)
    full = SubnetworkMask.full(model)
    for ids, words in (
        ([[1, 2, 3]], "token id 3 is outside of the counts'"),
        ([[1]], "at least 2 tokens"),
        ([[1, 2]], "two tokens behind others"),
        ([[1, 2] * 17], r"sequences of 34 tokens are too long: the model takes at most 32"),
    ):
        with pytest.raises(ValueError, match=words):
            evaluate_subnetwork(model, full, counts, torch.tensor(ids))


@pytest.mark.parametrize("null", ["uniform", "rows"])
def test_weights_without_entries_overlap_by_nothing(null: Literal["uniform", "rows"]) -> None:
    name = "transformer.h.0.mlp.c_fc.weight"
    mask = SubnetworkMask({name: torch.zeros(0, 5, dtype=torch.bool)})
    result = mask_overlap(mask, mask, null, draws=10)
    assert (result.overlap, result.expected, result.p_value, result.total) == (0.0, 0.0, 1.0, 0)
    assert [row["density"] for row in block_shares(mask)] == [0.0]


@pytest.mark.parametrize("draws", [True, 0, 1.5])
def test_draws_are_whole_numbers(draws: int, make_model: MakeModel) -> None:
    mask = SubnetworkMask.full(make_model("gpt2"))
    with pytest.raises(ValueError, match="draws must be a whole number"):
        mask_overlap(mask, mask, draws=draws)


def test_the_draws_of_huge_blocks_have_the_hypergeometric_mean_and_variance() -> None:
    """A block of 4096 x 4096 weights, nearly half of them kept."""
    size = 4096
    generator = torch.Generator().manual_seed(0)
    name = "transformer.h.0.mlp.c_fc.weight"
    a, b = (SubnetworkMask({name: torch.rand(size, size, generator=generator) < 0.45}) for _ in range(2))
    result = mask_overlap(a, b, draws=2000)
    n, k, m = size**2, a.kept, b.kept
    std = math.sqrt(k * (m / n) * (1 - m / n) * (n - k) / (n - 1)) / n
    assert result.expected == pytest.approx(k * m / n**2, rel=1e-12)
    assert abs(result.null_mean - result.expected) < 4 * std / math.sqrt(2000)
    assert result.null_std == pytest.approx(std, rel=4 / math.sqrt(2 * 2000))


def test_where_one_direction_is_all_there_is_no_similarity() -> None:
    line = torch.randn(50, 1, generator=torch.Generator().manual_seed(0)) @ torch.randn(1, 6)
    plane = torch.randn(50, 6, generator=torch.Generator().manual_seed(1))
    for x, y in ((line, line), (line, plane), (torch.ones(5, 3), torch.ones(5, 3)), (plane[:, :1], plane[:, :1])):
        assert math.isnan(covariance_similarity(x, y))
    assert covariance_similarity(plane.half(), plane.half()) == pytest.approx(1.0)


def test_states_that_are_not_finite_have_no_similarity() -> None:
    bad = torch.ones(5, 3)
    bad[2, 1] = math.inf
    with pytest.raises(ValueError, match="finite"):
        covariance_similarity(bad, torch.ones(5, 3))


def test_constant_states_map_to_the_mean_and_turn_by_nothing() -> None:
    y = torch.randn(9, 3, generator=torch.Generator().manual_seed(0))
    coefficient, intercept = ridge_map(torch.full((9, 3), 1e3), y)
    assert float(coefficient.abs().max()) < 1e-9
    torch.testing.assert_close(intercept, y.mean(0))
    assert rotation_angle(torch.tensor([[-2.0]])) == 180.0
    with pytest.raises(ValueError, match="alpha must be finite and at least 0, got inf"):
        ridge_map(y, y, alpha=math.inf)


def test_blocks_that_return_lists_have_states_too(ids: Tensor) -> None:
    config = OpenAIGPTConfig(vocab_size=40, n_positions=16, n_embd=16, n_layer=2, n_head=4)
    model = AutoModelForCausalLM.from_config(config).eval()
    assert len(layer_rotations(model, ids)) == 3
