"""Bit-packed masks: eight weights in a byte, an eighth of a bool array's size."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor


def pack(mask: Tensor) -> Tensor:
    """Packs a bool tensor, flattened, into uint8: first entry in the highest bit, zeros behind the last."""
    return torch.from_numpy(np.packbits(mask.detach().cpu().contiguous().numpy().reshape(-1)))


def count_packed(packed: Tensor) -> int:
    """How many entries are True, from the packed bytes."""
    return int(np.bitwise_count(packed.numpy()).sum(dtype=np.int64))


def unpack(packed: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Restores a bool tensor of ``shape`` from :func:`pack`.

    Args:
        packed: (ceil(size / 8),) uint8.
        shape: of the mask.

    Raises:
        ValueError: a length that does not belong to the shape.
    """
    size = math.prod(shape)
    if packed.dtype != torch.uint8 or packed.shape != (-(-size // 8),):
        raise ValueError(f"{tuple(packed.shape)} {packed.dtype} does not hold {size} packed entries")
    bits = np.unpackbits(packed.numpy(), count=size)
    return torch.from_numpy(bits.view(np.bool_).reshape(shape))
