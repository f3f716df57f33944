"""The order in which a run reads its sequences: shuffled once by its seed, then from front to back, and over again."""

from __future__ import annotations

import hashlib
from collections.abc import Sized
from typing import Any, cast

import torch
from torch import Tensor
from torch.utils.data import Dataset

from bigram_subnet.token_ids import whole_numbers


class ShuffledRows(Dataset[dict[str, Tensor]]):
    """``length`` rows of a data set, in an order that the seed fixes.

    Training sees one long epoch, so that micro-batches are never cut at the end of a pass over the data.

    Args:
        data: (sequences, length) token ids, or a data set of such rows (tensors, lists, or dicts with `input_ids`).
        seed: of the order.
        length: how many rows are read.
    """

    def __init__(self, data: Any, seed: int, length: int) -> None:
        self._data = data
        self._order = torch.randperm(len(data), generator=torch.Generator().manual_seed(seed))
        self._length = length

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        row = self._data[int(self._order[index % len(self._order)])]
        ids = row["input_ids"] if isinstance(row, dict) else row
        return {"input_ids": torch.as_tensor(ids, dtype=torch.long)}


def rows_digest(data: Any) -> str:
    """What tells two data sets apart: a SHA-256 of a tensor's ids, the number of rows of another data set."""
    if not isinstance(data, Tensor):
        return f"{len(data)} rows"
    ids = data.detach().cpu().long().contiguous().numpy()
    return f"{len(data)} rows, SHA-256 {hashlib.sha256(ids.data).hexdigest()}"


def check_rows(data: Any, batch_size: int) -> None:
    """Refuses data that cannot be trained on.

    Raises:
        ValueError: no length, fewer rows than a micro-batch, or a tensor that is no (sequences, length) whole numbers.
    """
    if isinstance(data, Tensor) and not whole_numbers(data, "data").shape[1]:
        raise ValueError(f"data must be sequences of at least one token, got {tuple(data.shape)}")
    if not hasattr(data, "__len__") or not hasattr(data, "__getitem__"):
        raise ValueError(f"data must be a tensor or a data set with a length, got {type(data).__name__}")
    rows = len(cast(Sized, data))
    if rows < batch_size:
        raise ValueError(f"data must hold at least one micro-batch of {batch_size} sequences, got {rows}")
