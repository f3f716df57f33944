"""Continuous sparsification of a frozen model: soft masks over its weights, that training turns into hard ones.

Paper 3.2 and Savarese et al. (2020): M = sigmoid(beta * s) with one real score s per weight and a temperature factor
beta that grows; the model computes with W * M, biases unchanged; the hard mask is s > 0.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call

from bigram_subnet.mask import SubnetworkMask
from bigram_subnet.selection import loaded_weights

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_ZERO_WEIGHT_SCORE = -1e6  # a weight that is exactly zero is dropped for good [code of the experiments]
_DECIDED = math.log(9.0)  # sigmoid(-log 9) = 0.1, sigmoid(log 9) = 0.9


class MaskCounts(NamedTuple):
    """How many soft masks are below 0.1, above 0.9, and in between."""

    below: int
    above: int
    undecided: int


class _MaskedWeight(torch.autograd.Function):
    """W * sigmoid(beta * s), in one pass each way, with one tensor kept for the way back.

    The gradient is dL/ds = dL/dW' * W * beta * M * (1 - M); the weight gets none. Left to autograd, the product and the
    sigmoid would each keep and write a tensor of the size of the weights.
    """

    @staticmethod
    def forward(ctx: Any, scores: Tensor, weight: Tensor, temperature: float) -> Tensor:
        soft = torch.sigmoid(scores * temperature)
        ctx.save_for_backward(soft, weight)
        ctx.temperature = temperature
        return (soft * weight).to(weight.dtype)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        soft, weight = ctx.saved_tensors
        slope = torch.addcmul(soft, soft, soft, value=-1)  # M - M^2
        return slope.mul_(gradients[0]).mul_(weight).mul_(ctx.temperature), None, None


class _MeanSigmoid(torch.autograd.Function):
    """The sum of sigmoid(beta * s) over all scores, divided by their number; recomputed on the way back."""

    @staticmethod
    def forward(ctx: Any, temperature: float, total: int, *scores: Tensor) -> Tensor:
        ctx.save_for_backward(*scores)
        ctx.temperature, ctx.total = temperature, total
        first = scores[0].device  # the blocks of a large model may lie on several
        sums = [torch.sigmoid(score * temperature).sum(dtype=torch.float64).to(first) for score in scores]
        return (torch.stack(sums).sum() / total).to(scores[0].dtype)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        slopes = []
        for score in ctx.saved_tensors:
            soft = torch.sigmoid(score * ctx.temperature)
            scale = (gradients[0] * (ctx.temperature / ctx.total)).to(soft.device)
            slopes.append(torch.addcmul(soft, soft, soft, value=-1).mul_(scale))
        return (None, None, *slopes)


class ContinuousSparsifier(nn.Module):
    """A frozen model whose weights are multiplied by trainable soft masks while it computes.

    The model's modules and weights stay as they are; it is frozen and stays in eval mode (dropout off), also when this
    module is set to train. The scores are float32 whatever the model's dtype.

    Args:
        model: a causal language model of transformers.
        init: start of every score; 0 is a soft mask of exactly 0.5.
        mask_zero_weights: weights that are exactly 0 start with a score of -1e6, so that they are not counted as kept.

    Attributes:
        model: the model.
        temperature: beta, starts at 1.0; set it as training goes on.

    Raises:
        ValueError: a model whose weights cannot be masked (see `maskable_weights`) or are not in memory, or an init
            that is not finite.
    """

    def __init__(self, model: PreTrainedModel, init: float = 0.0, mask_zero_weights: bool = True) -> None:
        super().__init__()
        if not math.isfinite(init):
            raise ValueError(f"init must be finite, got {init!r}")
        weights = loaded_weights(model)
        self.model = model
        self._names = tuple(weights)
        self.scores = nn.ParameterList(
            nn.Parameter(_initial_scores(weight, init, mask_zero_weights)) for weight in weights.values()
        )
        self.temperature = 1.0
        model.requires_grad_(requires_grad=False)
        self.train(self.training)

    def train(self, mode: bool = True) -> ContinuousSparsifier:
        """Sets the mode of this module; the model stays in eval mode."""
        super().train(mode)
        self.model.eval()
        return self

    @property
    def mask_scores(self) -> dict[str, nn.Parameter]:
        """The real-valued scores by parameter name, the only parameters that train."""
        return dict(zip(self._names, self.scores, strict=True))

    @property
    def total(self) -> int:
        """How many weights are masked, |M|."""
        return sum(score.numel() for score in self.scores)

    def soft_masks(self) -> dict[str, Tensor]:
        """M = sigmoid(beta * s) by parameter name, differentiable."""
        return {name: torch.sigmoid(score * self.temperature) for name, score in self.mask_scores.items()}

    def forward(self, input_ids: Tensor, **kwargs: Any) -> Any:
        """The model's output with the weights W * M.

        Args:
            input_ids: (batch, sequence) token ids.
            kwargs: for the model, such as ``attention_mask``.

        Returns:
            What the model returns, with ``logits`` (batch, sequence, vocabulary).
        """
        weights = dict(self._masked_weights())
        return functional_call(self.model, weights, (), {"input_ids": input_ids, "use_cache": False, **kwargs})

    def _masked_weights(self) -> Iterator[tuple[str, Tensor]]:
        for name, score in self.mask_scores.items():
            weight = self.model.get_parameter(name)
            yield name, _MaskedWeight.apply(score, weight, self.temperature)

    def mean_mask(self) -> Tensor:
        """The sum of all soft masks divided by their number |M|: a scalar, the loss's second term without lambda."""
        mean: Tensor = _MeanSigmoid.apply(self.temperature, self.total, *self.scores)
        return mean

    def hard_mask(self) -> SubnetworkMask:
        """The mask s > 0, on the CPU."""
        masks = {name: (score.detach() > 0).cpu() for name, score in self.mask_scores.items()}
        return SubnetworkMask(masks, self.model.name_or_path or None, self.model.config)

    @torch.no_grad()
    def mask_counts(self) -> MaskCounts:
        """How many soft masks are below 0.1, above 0.9 and undecided at the current temperature."""
        bound = _DECIDED / self.temperature  # compared with the scores, which spares a sigmoid of all of them
        first = self.scores[0].device
        below = torch.stack([torch.count_nonzero(score < -bound).to(first) for score in self.scores]).sum()
        above = torch.stack([torch.count_nonzero(score > bound).to(first) for score in self.scores]).sum()
        low, high = torch.stack([below, above]).tolist()
        return MaskCounts(int(low), int(high), self.total - int(low) - int(high))


def _initial_scores(weight: Tensor, init: float, mask_zero_weights: bool) -> Tensor:
    scores = torch.full_like(weight, init, dtype=torch.float32)
    if mask_zero_weights:
        scores.masked_fill_(weight.detach() == 0, _ZERO_WEIGHT_SCORE)
    return scores
