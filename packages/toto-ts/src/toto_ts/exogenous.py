"""Known-future (exogenous) variates: the one shift that training and inference share (official code, not in the paper).

The model predicts the patch after the one it reads, so an exogenous variate is given one patch early: the position that
predicts a patch holds that patch's exogenous values.
"""

from __future__ import annotations

import torch
from torch import Tensor


def shift_exogenous(past: Tensor, future: Tensor, *, context_length: int, patch_size: int) -> Tensor:
    """Move exogenous series one patch into the past.

    Args:
        past: `(..., variates, context)` values (or a mask) on the targets' clock.
        future: `(..., variates, steps)` values known beyond the context.
        context_length: steps to keep before the unknown patch, counted from the end of `future`.
        patch_size: P.

    Returns:
        `(..., variates, context_length + patch_size)`: the last `context_length` of past and future, then a patch of
        zeros (False for a mask), whose future nobody knows.

    Raises:
        ValueError: past and future together are shorter than the context.
    """
    both = torch.cat([past, future], -1)
    if both.shape[-1] < context_length:
        raise ValueError(
            f"past and future exogenous values must cover context_length={context_length} steps, got {both.shape[-1]}"
        )
    unknown = both.new_zeros((*both.shape[:-1], patch_size))
    return torch.cat([both[..., both.shape[-1] - context_length :], unknown], -1)
