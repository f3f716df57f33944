"""Losses at points where their value is known."""

from __future__ import annotations

import math

import pytest
import torch

from gfm_rag import AdversarialBCELoss, ListwiseCELoss


@pytest.mark.parametrize("temperature", [0.0, 0.2, 1.0])
def test_logits_of_zero_lose_the_logarithm_of_two(temperature: float) -> None:
    targets = torch.tensor([[1.0, 0, 0, 1], [0, 1, 0, 0]])
    loss = AdversarialBCELoss(temperature)(torch.zeros(2, 4), targets)
    assert float(loss) == pytest.approx(math.log(2))


@pytest.mark.parametrize("constant", [-3.0, 0.0, 2.0])
def test_equal_logits_lose_the_logarithm_of_the_number_of_entities(constant: float) -> None:
    targets = torch.zeros(2, 50)
    targets[:, 3] = targets[0, 7] = 1
    loss = ListwiseCELoss()(torch.full((2, 50), constant), targets)
    assert float(loss) == pytest.approx(-math.log(1 / 50 + 1e-5), abs=1e-3)


def test_the_hardest_negative_weighs_most() -> None:
    logits = torch.tensor([[0.0, 2.0, -2.0]])
    targets = torch.tensor([[1.0, 0, 0]])
    negatives = torch.tensor([2.0, -2.0])
    weight = (negatives / 0.5).softmax(0)
    terms = torch.nn.functional.softplus(negatives)
    expected = (math.log(2) + float((weight * terms).sum())) / 2
    assert float(AdversarialBCELoss(0.5)(logits, targets)) == pytest.approx(expected)


def test_the_weights_of_negatives_have_no_gradient() -> None:
    logits = torch.tensor([[0.0, 1.0, -1.0]], requires_grad=True)
    AdversarialBCELoss(1.0)(logits, torch.tensor([[1, 0, 0]])).backward()
    weight = torch.tensor([1.0, -1.0]).softmax(0)
    expected = torch.tensor([[-0.5, *(weight * torch.tensor([1.0, -1.0]).sigmoid())]]) / 2
    assert logits.grad is not None
    torch.testing.assert_close(logits.grad, expected)


@pytest.mark.parametrize("loss", [AdversarialBCELoss(0.2), AdversarialBCELoss(0), ListwiseCELoss()])
@pytest.mark.parametrize("size", [50.0, -50.0, 1e4])
def test_losses_and_gradients_are_finite_at_extreme_logits(loss: torch.nn.Module, size: float) -> None:
    targets = torch.tensor([[1.0, 0, 0], [0, 0, 0], [1, 1, 1]])  # with a row of no positive and one of no negative
    logits = torch.tensor([[size, -size, 0.0]] * 3, requires_grad=True)
    value = loss(logits, targets)
    value.backward()
    assert value.isfinite()
    assert logits.grad is not None
    assert logits.grad.isfinite().all()


def test_rows_without_positives_do_not_enter_the_ranking_loss() -> None:
    logits = torch.randn(2, 5)
    targets = torch.zeros(2, 5)
    assert float(ListwiseCELoss()(logits, targets)) == 0.0
    targets[0, 2] = 1
    assert float(ListwiseCELoss()(logits, targets)) == pytest.approx(float(ListwiseCELoss()(logits[:1], targets[:1])))


def test_wrong_sizes_and_temperatures_are_refused() -> None:
    for loss in (AdversarialBCELoss(), ListwiseCELoss()):
        with pytest.raises(ValueError, match=r"\(2, 3\) and \(2, 4\)"):
            loss(torch.zeros(2, 3), torch.zeros(2, 4))
    with pytest.raises(ValueError, match="at least 0, got -1"):
        AdversarialBCELoss(-1)
