"""What token ids must be before anything is looked up with them."""

from __future__ import annotations

import torch
from torch import Tensor


def whole_numbers(ids: Tensor, name: str = "input_ids") -> Tensor:
    """Ids as int64.

    Args:
        ids: (sequences, length) of any integer dtype.
        name: of the argument, for the message.

    Raises:
        ValueError: another shape, or numbers that are not whole (bool among them).
    """
    if ids.ndim != 2 or ids.is_floating_point() or ids.is_complex() or ids.dtype == torch.bool:
        raise ValueError(f"{name} must be whole numbers (sequences, length), got {ids.dtype} {tuple(ids.shape)}")
    return ids.long()


def id_range(ids: Tensor) -> tuple[int, int]:
    """The smallest and the largest id; (0, 0) if there is none."""
    if not ids.numel():
        return 0, 0
    low, high = torch.aminmax(ids)
    return int(low), int(high)
