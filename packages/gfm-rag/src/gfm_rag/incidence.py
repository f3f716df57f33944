"""Sparse matrices from lists of positions."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def incidence(positions: Sequence[tuple[int, int]], size: tuple[int, int], values: Tensor | None = None) -> Tensor:
    """A coalesced sparse COO matrix.

    Args:
        positions: (row, column) of each entry.
        size: of the matrix.
        values: of the entries; None = all 1, float32.
    """
    index = torch.tensor(positions, dtype=torch.long).reshape(-1, 2).T
    entries = torch.ones(index.shape[1]) if values is None else values
    return torch.sparse_coo_tensor(index, entries, size, check_invariants=True).coalesce()
