"""The loss: cross-entropy to a target distribution at every position (paper, equation 1, without the mask term)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


class _CrossEntropy(torch.autograd.Function):
    """Its gradient, (softmax(z) * sum(P) - P) / N, is one tensor; autograd would make four of that size."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, target: Tensor, dtype: torch.dtype) -> Tensor:
        log_probs = torch.log_softmax(logits, dim=-1, dtype=dtype)
        ctx.save_for_backward(log_probs, target)
        ctx.logits_dtype = logits.dtype
        # 0 * -inf is 0 here: what target and model both exclude costs nothing
        products = (log_probs * target).masked_fill_(target == 0, 0)
        return -products.sum(-1).mean()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        log_probs, target = ctx.saved_tensors
        positions = max(log_probs.shape[:-1].numel(), 1)
        slope = log_probs.exp().mul_(target.sum(-1, keepdim=True)).sub_(target).mul_(gradients[0] / positions)
        return slope.to(ctx.logits_dtype), None, None


def distribution_cross_entropy(logits: Tensor, target_probs: Tensor) -> Tensor:
    """Mean over batch and positions of ``- sum_v P(v | x) log softmax(logits)_v`` [paper, equation 1].

    Every position counts, the last one too: a distribution as target needs no next token.

    Args:
        logits: (batch, sequence, vocabulary'), any float dtype; entries behind the target's vocabulary, which pad a
            head, are cut off before the softmax.
        target_probs: (batch, sequence, vocabulary) probabilities; no gradient flows into them.

    Returns:
        A scalar, in nats, float32 or wider.

    Raises:
        ValueError: shapes that do not belong together.
    """
    vocabulary = target_probs.shape[-1]
    if logits.shape[:-1] != target_probs.shape[:-1] or logits.shape[-1] < vocabulary:
        raise ValueError(
            f"logits {tuple(logits.shape)} do not fit target_probs {tuple(target_probs.shape)}: batch and sequence "
            "must be equal, and the logits' vocabulary at least as large"
        )
    dtype = torch.promote_types(logits.dtype, torch.float32)
    loss: Tensor = _CrossEntropy.apply(logits[..., :vocabulary], target_probs.detach().to(logits.device, dtype), dtype)
    return loss
