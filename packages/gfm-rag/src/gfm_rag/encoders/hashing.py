"""An encoder without a model: character 3- and 4-grams hashed into a vector. For tests and baselines."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import torch
from torch import Tensor


class HashingEncoder:
    """Counts of hashed character 3- and 4-grams with hashed signs, at unit norm; the same on every machine.

    Args:
        dim: size of the vectors.

    Raises:
        ValueError: a size below 1.
    """

    def __init__(self, dim: int) -> None:
        if dim < 1:
            raise ValueError(f"dim must be at least 1, got {dim}")
        self.dim = dim
        self.name = f"hashing-{dim}"

    def encode(self, texts: Sequence[str]) -> Tensor:
        """(n, dim) vectors; an empty text gives zeros."""
        vectors = torch.zeros(len(texts), self.dim)
        for row, text in enumerate(texts):
            padded = f" {text.lower()} "
            grams = [padded[i : i + n] for n in (3, 4) for i in range(len(padded) - n + 1)] if text else []
            codes = torch.tensor([zlib.crc32(gram.encode()) for gram in grams], dtype=torch.long)
            signs = 1 - 2 * ((codes >> 31) & 1)
            vectors[row].index_add_(0, codes % self.dim, signs.float())
        return torch.nn.functional.normalize(vectors, dim=1)
