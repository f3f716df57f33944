"""An encoder without a model: character 3- and 4-grams hashed into a vector. For tests and baselines."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import torch
from torch import Tensor

_TEXTS = 256  # whose n-grams are held at a time


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
        for start in range(0, len(texts), _TEXTS):
            vectors[start : start + _TEXTS] = self._counts(texts[start : start + _TEXTS])
        return torch.nn.functional.normalize(vectors, dim=1)

    def _counts(self, texts: Sequence[str]) -> Tensor:
        grams = [_grams(text) for text in texts]
        # half of a surrogate pair, which UTF-8 does not have, is hashed all the same
        codes = torch.tensor(
            [zlib.crc32(gram.encode("utf-8", "surrogatepass")) for found in grams for gram in found], dtype=torch.long
        )
        rows = torch.arange(len(texts)).repeat_interleave(
            torch.tensor([len(found) for found in grams], dtype=torch.long)
        )
        signs = 1 - 2 * ((codes >> 31) & 1)
        counts = torch.zeros(len(texts) * self.dim).index_add_(0, rows * self.dim + codes % self.dim, signs.float())
        return counts.view(len(texts), self.dim)


def _grams(text: str) -> list[str]:
    padded = f" {text.lower()} "
    return [padded[i : i + n] for n in (3, 4) for i in range(len(padded) - n + 1)] if text else []
