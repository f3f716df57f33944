"""The two training losses of GFM-RAG (Eq. 10 to 13), on logits of all entities against 0/1 targets."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

_EPSILON = 1e-5  # in the fraction and in the logarithm of the ranking loss [code]


def _check(logits: Tensor, targets: Tensor) -> None:
    if logits.dim() != 2 or logits.shape != targets.shape:
        raise ValueError(
            f"logits and targets must both be (batch, entities), got {tuple(logits.shape)} and {tuple(targets.shape)}"
        )


class AdversarialBCELoss(nn.Module):
    """Binary cross-entropy with hard negatives weighted by their own scores (Eq. 10 and 11).

    A row's positives weigh 1 / (their number), its negatives the softmax of logits / temperature over them, without
    gradient; the row's loss is the weighted mean, the result the mean over rows.

    Args:
        temperature: of that softmax; 0 weighs all negatives alike.

    Raises:
        ValueError: a negative temperature.
    """

    def __init__(self, temperature: float = 0.2) -> None:
        super().__init__()
        if not temperature >= 0:
            raise ValueError(f"temperature must be at least 0, got {temperature!r}")
        self.temperature = temperature

    def forward(self, logits: Tensor, targets: Tensor) -> Tensor:
        """The loss, a scalar.

        Args:
            logits: (batch, entities). In pre-training column 0 is the true triple and the others its negatives.
            targets: (batch, entities), 1 or True where positive.

        Raises:
            ValueError: sizes that differ.
        """
        _check(logits, targets)
        positive = targets > 0
        loss = binary_cross_entropy_with_logits(logits, positive.to(logits.dtype), reduction="none")
        weight = positive / positive.sum(1, keepdim=True).clamp_min(1)
        negative = ~positive
        if self.temperature > 0:
            with torch.no_grad():
                scaled = (logits / self.temperature).masked_fill(positive, float("-inf"))
                # a row without negatives has no softmax
                spread = scaled.softmax(1).nan_to_num(0.0)
        else:
            spread = negative / negative.sum(1, keepdim=True).clamp_min(1)
        weight = torch.where(positive, weight, spread).to(loss.dtype)
        return ((loss * weight).sum(1) / weight.sum(1)).mean()


class ListwiseCELoss(nn.Module):
    """The ranking loss (Eq. 12): each positive's share of all probabilities, p = sigmoid(logits).

    A row's loss is the mean over its positives of -log(p / (sum of all p + 1e-5) + 1e-5). Rows without positives are
    left out; without any row the loss is 0.
    """

    def forward(self, logits: Tensor, targets: Tensor) -> Tensor:
        """The loss, a scalar.

        Args:
            logits: (batch, entities).
            targets: (batch, entities), 1 or True where positive.

        Raises:
            ValueError: sizes that differ.
        """
        _check(logits, targets)
        positive = (targets > 0).to(logits.dtype)
        count = positive.sum(1)
        probability = logits.sigmoid()
        share = probability / (probability.sum(1, keepdim=True) + _EPSILON)
        rows = -((share + _EPSILON).log() * positive).sum(1) / count.clamp_min(1)
        return rows.sum() / (count > 0).sum().clamp_min(1)
