"""Soft masks: values, gradients, limits, and a model that is left alone."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from bigram_subnet import (
    BigramCounts,
    ContinuousSparsifier,
    MaskCounts,
    NgramTarget,
    SparsifyConfig,
    SubnetworkMask,
    apply_mask,
    maskable_weights,
    train_subnetwork,
)

MakeModel = Callable[..., PreTrainedModel]


def fill(sparsifier: ContinuousSparsifier, value: float) -> ContinuousSparsifier:
    for score in sparsifier.mask_scores.values():
        score.data.fill_(value)
    return sparsifier


def test_every_soft_mask_starts_at_one_half(any_model: PreTrainedModel) -> None:
    sparsifier = ContinuousSparsifier(any_model)
    assert sparsifier.temperature == 1.0
    assert all(bool((soft == 0.5).all()) for soft in sparsifier.soft_masks().values())
    assert sparsifier.mean_mask().item() == 0.5
    assert sparsifier.hard_mask().kept == 0  # s = 0 is dropped
    assert sparsifier.mask_counts() == MaskCounts(0, 0, sparsifier.total)


def test_far_scores_are_the_full_and_the_empty_model(any_model: PreTrainedModel, ids: Tensor) -> None:
    sparsifier = ContinuousSparsifier(any_model)
    with torch.no_grad():
        full, empty = any_model(ids).logits, apply_mask(any_model, SubnetworkMask.empty(any_model))(ids).logits
        torch.testing.assert_close(fill(sparsifier, 1e4)(ids).logits, full, atol=1e-6, rtol=0)
        torch.testing.assert_close(fill(sparsifier, -1e4)(ids).logits, empty, atol=1e-6, rtol=0)


def test_at_a_high_temperature_soft_masks_are_the_hard_mask(make_model: MakeModel) -> None:
    sparsifier = ContinuousSparsifier(make_model("gpt2"))
    for score in sparsifier.mask_scores.values():
        sign = torch.randint(0, 2, score.shape) * 2 - 1
        score.data.copy_(sign * (0.05 + torch.rand(score.shape)))
    sparsifier.temperature = 200.0
    hard = sparsifier.hard_mask()
    for name, soft in sparsifier.soft_masks().items():
        assert (soft - hard[name].float()).abs().max() < 1e-4


def test_the_gradient_of_the_mask_term_is_its_closed_form(make_model: MakeModel) -> None:
    sparsifier = ContinuousSparsifier(make_model("llama"))
    for score in sparsifier.mask_scores.values():
        score.data.normal_()
    sparsifier.temperature = 1.7
    (10 * sparsifier.mean_mask()).backward()
    for name, score in sparsifier.mask_scores.items():
        soft = sparsifier.soft_masks()[name].detach().double()
        expected = 10 * 1.7 * soft * (1 - soft) / sparsifier.total
        assert score.grad is not None
        assert (score.grad - expected).abs().max() < 1e-7


def test_the_gradient_of_the_forward_is_that_of_plain_autograd(any_model: PreTrainedModel, ids: Tensor) -> None:
    sparsifier = ContinuousSparsifier(any_model)
    for score in sparsifier.mask_scores.values():
        score.data.normal_()
    sparsifier.temperature = 1.3
    sparsifier(ids).logits.logsumexp(-1).sum().backward()
    plain = {name: score.detach().clone().requires_grad_() for name, score in sparsifier.mask_scores.items()}
    weights = {name: any_model.get_parameter(name) * torch.sigmoid(1.3 * score) for name, score in plain.items()}
    torch.func.functional_call(any_model, weights, (ids,)).logits.logsumexp(-1).sum().backward()
    for name, score in sparsifier.mask_scores.items():
        torch.testing.assert_close(score.grad, plain[name].grad, atol=1e-5, rtol=1e-4)


def test_only_the_scores_train_and_the_weights_stay_bit_for_bit(make_model: MakeModel) -> None:
    model = make_model("gpt2")
    before = {name: value.clone() for name, value in model.state_dict().items()}
    modules = dict(model.named_modules())
    data = torch.randint(0, 40, (8, 12), generator=torch.Generator().manual_seed(0))
    target = NgramTarget(BigramCounts.from_sequences(data, 40))
    train_subnetwork(model, target, data, SparsifyConfig(batch_size=4, max_steps=3, learning_rate=0.1))
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(weight.grad is None for weight in model.parameters())
    assert dict(model.named_modules()) == modules
    sparsifier = ContinuousSparsifier(model)
    trained = [parameter for parameter in sparsifier.parameters() if parameter.requires_grad]
    assert {id(parameter) for parameter in trained} == {id(score) for score in sparsifier.mask_scores.values()}
    assert sum(parameter.numel() for parameter in trained) == 12 * 16**2 * 2


def test_the_model_stays_in_eval_mode(make_model: MakeModel) -> None:
    model = make_model("gpt2").train()
    sparsifier = ContinuousSparsifier(model)
    assert not model.training
    sparsifier.train()
    assert sparsifier.training
    assert not any(module.training for module in model.modules())
    assert any(isinstance(module, nn.Dropout) for module in model.modules())


def test_weights_that_are_zero_are_dropped_for_good(make_model: MakeModel) -> None:
    model = make_model("gpt_neox")
    name = "gpt_neox.layers.1.mlp.dense_4h_to_h.weight"
    with torch.no_grad():
        model.get_parameter(name)[:, :3] = 0
    scores = ContinuousSparsifier(model, init=0.5).mask_scores[name]
    assert bool((scores[:, :3] == -1e6).all())
    assert bool((scores[:, 3:] == 0.5).all())
    assert bool((ContinuousSparsifier(model, mask_zero_weights=False).mask_scores[name] == 0).all())


def test_counts_follow_the_temperature(make_model: MakeModel) -> None:
    sparsifier = ContinuousSparsifier(make_model("gpt2"))
    score = fill(sparsifier, 0.0).mask_scores["transformer.h.0.attn.c_attn.weight"]
    score.data.flatten()[:5] = torch.tensor([3.0, 2.0, -3.0, -2.0, 1.0])
    assert sparsifier.mask_counts()[:2] == (1, 1)
    sparsifier.temperature = 1.2
    assert sparsifier.mask_counts()[:2] == (2, 2)
    sparsifier.temperature = 3.0
    assert sparsifier.mask_counts()[:2] == (2, 3)
    assert sum(sparsifier.mask_counts()) == sparsifier.total


def test_scores_are_float32_over_a_bfloat16_model(ids: Tensor, make_model: MakeModel) -> None:
    model = make_model("llama").to(torch.bfloat16)
    sparsifier = ContinuousSparsifier(model)
    assert {score.dtype for score in sparsifier.mask_scores.values()} == {torch.float32}
    logits = sparsifier(ids).logits
    assert logits.dtype == torch.bfloat16
    logits.float().logsumexp(-1).mean().backward()
    assert all(score.grad is not None and score.grad.dtype == torch.float32 for score in sparsifier.scores)


def test_the_forward_takes_an_attention_mask(ids: Tensor, make_model: MakeModel) -> None:
    model = make_model("llama")
    attention_mask = torch.ones_like(ids)
    attention_mask[0, :4] = 0
    sparsifier = fill(ContinuousSparsifier(model), 1e4)
    with torch.no_grad():
        expected = model(ids, attention_mask=attention_mask).logits
        torch.testing.assert_close(sparsifier(ids, attention_mask=attention_mask).logits, expected)


def test_the_hard_mask_keeps_scores_above_zero(make_model: MakeModel) -> None:
    model = make_model("gpt2")
    sparsifier = ContinuousSparsifier(model)
    for score in sparsifier.mask_scores.values():
        score.data.normal_()
        score.data.flatten()[0] = 0.0
    mask = sparsifier.hard_mask()
    assert list(mask) == list(maskable_weights(model))
    assert all(torch.equal(mask[name], score > 0) for name, score in sparsifier.mask_scores.items())
    assert math.isclose(mask.kept / mask.total, 0.5, abs_tol=0.05)
    mask.set_attention_head(0, 1)  # it knows the model's heads


@pytest.mark.parametrize("family", ["gpt2", "gemma"])
def test_a_tied_head_is_unchanged_by_soft_masks(family: str, ids: Tensor, make_model: MakeModel) -> None:
    model = make_model(family)
    before = model.get_output_embeddings().weight.detach().clone()
    ContinuousSparsifier(model)(ids).logits.sum().backward()
    assert torch.equal(model.get_output_embeddings().weight, before)
    assert model.get_output_embeddings().weight.grad is None


@pytest.mark.parametrize("init", [math.nan, math.inf])
def test_a_start_that_is_not_finite_is_refused(init: float, make_model: MakeModel) -> None:
    with pytest.raises(ValueError, match="init must be finite"):
        ContinuousSparsifier(make_model("gpt2"), init=init)
