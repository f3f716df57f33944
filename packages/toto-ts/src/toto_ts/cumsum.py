"""Cumulative sums where torch is told to be deterministic, although CUDA has no deterministic one."""

from __future__ import annotations

import torch
from torch import Tensor


def cumsum(x: Tensor) -> Tensor:
    """Sum along the last axis so far; deterministic mode is off meanwhile, as the official code has it."""
    if not (x.is_cuda and torch.are_deterministic_algorithms_enabled()):
        return x.cumsum(-1)
    warn_only = torch.is_deterministic_algorithms_warn_only_enabled()
    torch.use_deterministic_algorithms(False)
    try:
        return x.cumsum(-1)
    finally:
        torch.use_deterministic_algorithms(True, warn_only=warn_only)
