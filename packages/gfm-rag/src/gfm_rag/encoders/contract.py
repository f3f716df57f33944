"""What a text encoder is: strings in, one vector each out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import torch
from torch import Tensor


class Encoder(Protocol):
    """Any object with `dim` and `encode(list of str)` -> (n, dim) tensor or array."""

    @property
    def dim(self) -> int:
        """Size of the vectors."""
        ...

    def encode(self, texts: Sequence[str]) -> Any:
        """(n, dim) vectors of n texts."""
        ...


def encode(encoder: Encoder, texts: Sequence[str]) -> Tensor:
    """(n, dim) float32 on the CPU.

    Raises:
        ValueError: the encoder gives another number or size of vectors than it says.
    """
    if not texts:
        return torch.empty(0, encoder.dim)
    vectors = torch.as_tensor(encoder.encode(list(texts))).detach().float().cpu()
    if tuple(vectors.shape) != (len(texts), encoder.dim):
        raise ValueError(f"the encoder gave {tuple(vectors.shape)} for {len(texts)} texts and dim={encoder.dim}")
    return vectors
