"""The loss, the stop rule, the stability rule and the settings."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from bigram_subnet import MaskCounts, SparsifyConfig, distribution_cross_entropy, loss_is_stable, should_stop
from bigram_subnet.stopping import is_empty


def some_logits(vocabulary: int = 11) -> torch.Tensor:
    return torch.randn(3, 5, vocabulary, generator=torch.Generator().manual_seed(0))


def test_against_one_hot_targets_it_is_the_usual_cross_entropy() -> None:
    logits, labels = some_logits(), torch.randint(0, 11, (3, 5), generator=torch.Generator().manual_seed(1))
    expected = F.cross_entropy(logits.flatten(0, 1), labels.flatten())
    torch.testing.assert_close(distribution_cross_entropy(logits, F.one_hot(labels, 11).float()), expected)


def test_it_is_at_least_the_entropy_of_the_target_and_equal_at_the_target() -> None:
    target = torch.softmax(some_logits().double(), -1)
    target[0, 0] = F.one_hot(torch.tensor(3), 11)  # log P is -inf where P is 0
    entropy = torch.special.entr(target).sum(-1).mean()
    assert distribution_cross_entropy(some_logits().double() * 2, target) > entropy
    torch.testing.assert_close(distribution_cross_entropy(target.log(), target), entropy)


def test_its_gradient_is_that_of_the_definition() -> None:
    logits = some_logits().double().requires_grad_()
    target = torch.softmax(some_logits().double().flip(0), -1)
    assert torch.autograd.gradcheck(lambda z: distribution_cross_entropy(z, target), (logits,))
    assert torch.autograd.gradcheck(lambda z: distribution_cross_entropy(z, 0.7 * target[..., :9]), (logits,))


def test_padding_of_the_head_is_cut_off() -> None:
    logits, target = some_logits(13), torch.softmax(some_logits(), -1)
    torch.testing.assert_close(
        distribution_cross_entropy(logits, target), distribution_cross_entropy(logits[..., :11], target)
    )
    other = logits.clone()
    other[..., 11:] = 1e4
    assert distribution_cross_entropy(other, target) == distribution_cross_entropy(logits, target)


def test_half_precision_logits_give_a_float32_loss() -> None:
    logits = some_logits().bfloat16().requires_grad_()
    loss = distribution_cross_entropy(logits, torch.softmax(some_logits(), -1))
    loss.backward()
    assert loss.dtype == torch.float32
    assert logits.grad is not None
    assert logits.grad.dtype == torch.bfloat16


def test_logits_that_are_not_numbers_are_not_hidden() -> None:
    logits = some_logits()
    logits[0, 0, 0] = float("nan")
    assert distribution_cross_entropy(logits, torch.softmax(some_logits(), -1)).isnan()


@pytest.mark.parametrize("shape", [(3, 4, 11), (2, 5, 11), (3, 5, 12)])
def test_shapes_that_do_not_fit_are_named(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"\(3, 5, 11\) do not fit target_probs"):
        distribution_cross_entropy(some_logits(), torch.ones(shape))


def test_training_stops_when_few_entries_are_undecided() -> None:
    assert should_stop(MaskCounts(0, 1000, 9))
    assert not should_stop(MaskCounts(0, 1000, 10))
    assert not should_stop(MaskCounts(1000, 0, 0))
    assert not should_stop(MaskCounts(0, 1000, 0), stop_fraction=0)
    assert is_empty(MaskCounts(1000, 0, 0))
    assert not is_empty(MaskCounts(1000, 0, 1))
    assert not is_empty(MaskCounts(1000, 1, 0))


def test_a_constant_curve_and_a_single_loss_are_stable() -> None:
    assert loss_is_stable([2.0] * 300)
    assert loss_is_stable([3.0])


def test_a_jump_that_comes_back_early_enough_is_stable() -> None:
    jump = [2.0] * 20 + [3.0] * 5
    assert loss_is_stable(jump + [1.9] * 200)
    assert not loss_is_stable(jump + [2.1] * 200)
    assert not loss_is_stable([*jump, *[2.1] * 20, *[1.9] * 100])  # it comes back within the last hundred steps only
    assert loss_is_stable([*jump, *[2.1] * 20, 1.9, *[1.9] * 100])


def test_a_jump_in_the_last_hundred_steps_is_unstable() -> None:
    assert not loss_is_stable([1.0] * 150 + [1.3])
    assert not loss_is_stable([0.5] * 150 + [0.7])  # by factor
    assert loss_is_stable([0.5] * 150 + [0.6])


def test_a_loss_that_is_no_number_is_a_jump() -> None:
    assert not loss_is_stable([1.0, math.nan])
    assert not loss_is_stable([1.0] * 10 + [math.nan] * 200)


def test_an_empty_curve_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one loss"):
        loss_is_stable([])


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"l0_lambda": -1}, "l0_lambda must be at least 0, got -1"),
        ({"l0_lambda": math.inf}, "l0_lambda"),
        ({"learning_rate": 0}, "learning_rate must be above 0"),
        ({"temperature_factor": 0.99}, "temperature_factor must be at least 1"),
        ({"batch_size": 0}, "batch_size must be a whole number of at least 1"),
        ({"batch_size": 2.5}, "batch_size"),
        ({"max_steps": True}, "max_steps"),
        ({"stop_fraction": 1.0}, "stop_fraction must be in [0, 1)"),
        ({"weight_decay": -0.1}, "weight_decay"),
        ({"attempts": 0}, "attempts"),
        ({"grad_accumulation": 20, "max_steps": 10}, "at least grad_accumulation=20"),
        ({"seed": -1}, "seed"),
    ],
)
def test_a_setting_out_of_range_is_named(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError) as caught:
        SparsifyConfig(**fields)
    assert words in str(caught.value)


def test_the_defaults_are_the_papers() -> None:
    assert dataclasses.asdict(SparsifyConfig()) == {
        "l0_lambda": 10.0,
        "learning_rate": 5e-5,
        "temperature_factor": 1.001,
        "batch_size": 32,
        "max_steps": 15000,
        "stop_fraction": 0.01,
        "weight_decay": 0.01,
        "attempts": 3,
        "grad_accumulation": 1,
        "seed": 0,
    }


@pytest.mark.parametrize(
    "losses", [[math.nan], [1.0, math.nan, 1.0], [math.nan] + [1.0] * 300, [1.0] * 300 + [math.nan]]
)
def test_a_curve_with_a_loss_that_is_no_number_is_unstable_wherever_it_stands(losses: list[float]) -> None:
    assert loss_is_stable(losses) is False


def test_windows_and_tails_that_cannot_be_are_named() -> None:
    for arguments in ({"window": 0}, {"tail": -1}):
        with pytest.raises(ValueError, match="window must be at least 1 and tail at least 0"):
            loss_is_stable([1.0, 2.0], **arguments)
