"""What the network sees at missing positions (not in the paper; the official code shows it what is stored there).

Statistics leave masked positions out, but the patch embedding reads every position: on a series of level 1000 a
stored 0 looks like a drop to zero.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor

Fill = Literal["mean", "zero", "last"]


class Filled(NamedTuple):
    """A series without gaps.

    Attributes:
        series: `(..., time)`, finite everywhere.
        centred: bool of the same shape; there the normalised value must be set to 0, which is the scaler's loc.
    """

    series: Tensor
    centred: Tensor


def check_fill(fill: str) -> None:
    """ValueError unless it is one of the three."""
    if fill not in get_args(Fill):
        raise ValueError(f"fill must be one of {', '.join(get_args(Fill))}, got {fill!r}")


def fill_missing(series: Tensor, mask: Tensor, fill: Fill) -> Filled:
    """Fill masked positions.

    Args:
        series: `(..., time)`; what stands at masked positions is not read.
        mask: bool of the same shape, True = valid.
        fill: "zero" (the official behaviour), "last" (the last valid value before; the scaler's loc where there is
            none), or "mean" (the scaler's loc at that step, so that nothing of the future is used).

    Returns:
        The filled series, and where the normalised value is 0 instead.
    """
    series = torch.where(mask, series, 0)
    if fill == "zero":
        return Filled(series, torch.zeros_like(mask))
    if fill == "mean":
        return Filled(series, ~mask)
    steps = torch.arange(series.shape[-1], device=series.device)
    last = torch.where(mask, steps, -1).cummax(-1).values
    return Filled(torch.where(last < 0, 0, series.gather(-1, last.clamp_min(0))), last < 0)
