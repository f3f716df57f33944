"""The counts of one order as compressed rows: contexts, and for each context its next tokens with their counts.

A context is found token by token in sorted arrays of ``node * (V + 1) + token``, one array a level, so that contexts of
any length are looked up with whole numbers of 63 bits, in batches, on any device.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from bigram_subnet.ngrams.tally import Counts, Keys, unpack_digits


@dataclass(frozen=True)
class NgramTable:
    """Next-token counts by context.

    Args:
        vocab_size: V; the id V stands for the padding before a line.
        levels: one sorted int64 array per context token; level k holds ``node * (V + 1) + token`` of the contexts'
            first k + 1 tokens, where node is the index in the level before (0 at first).
        indptr: (contexts + 1,) int64, where each context's row begins.
        indices: (entries,) int32 next tokens, ascending in a row.
        counts: (entries,) int64.
        totals: (contexts,) int64, the sum of each row.
    """

    vocab_size: int
    levels: tuple[Tensor, ...]
    indptr: Tensor
    indices: Tensor
    counts: Tensor
    totals: Tensor

    @property
    def order(self) -> int:
        """n: the context has n - 1 tokens."""
        return len(self.levels) + 1

    @classmethod
    def from_keys(cls, keys: Keys, counts: Counts, order: int, vocab_size: int) -> NgramTable:
        """Builds the table from sorted distinct keys.

        As they are sorted, the contexts of every level lie in runs: no level is sorted again.
        """
        ids = unpack_digits(keys, order, vocab_size)
        levels, node = [], np.zeros(len(ids), dtype=np.int64)
        for column in range(order - 1):
            key = node * (vocab_size + 1) + ids[:, column]
            begins = np.ones(len(key), dtype=bool)
            np.not_equal(key[1:], key[:-1], out=begins[1:])
            node = np.cumsum(begins) - 1
            levels.append(torch.from_numpy(key[begins]))
        rows = len(levels[-1]) if levels else 1
        indptr = np.concatenate([[0], np.cumsum(np.bincount(node, minlength=rows))]).astype(np.int64)
        return cls(
            vocab_size,
            tuple(levels),
            torch.from_numpy(indptr),
            torch.from_numpy(ids[:, -1].astype(np.int32)),
            torch.from_numpy(counts.astype(np.int64)),
            torch.from_numpy(np.bincount(node, counts, minlength=rows).astype(np.int64)),
        )

    def to(self, device: torch.device) -> NgramTable:
        """The table on a device."""
        levels = tuple(level.to(device) for level in self.levels)
        rest = (part.to(device) for part in (self.indptr, self.indices, self.counts, self.totals))
        return NgramTable(self.vocab_size, levels, *rest)

    def tensors(self) -> dict[str, Tensor]:
        """All arrays by name, for a file."""
        levels = {f"level{k}": level for k, level in enumerate(self.levels)}
        rest = {"indptr": self.indptr, "indices": self.indices, "counts": self.counts, "totals": self.totals}
        return levels | rest

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor], order: int, vocab_size: int) -> NgramTable:
        """The table of what :meth:`tensors` gave.

        Raises:
            KeyError: an array is missing.
            ValueError: arrays whose dtypes or sizes do not belong together; their values are not read.
        """
        levels = tuple(tensors[f"level{k}"] for k in range(order - 1))
        table = cls(vocab_size, levels, *(tensors[name] for name in ("indptr", "indices", "counts", "totals")))
        rows, entries = len(levels[-1]) if levels else 1, table.indices.numel()
        for name, tensor in table.tensors().items():
            dtype = torch.int32 if name == "indices" else torch.int64
            if tensor.ndim != 1 or tensor.dtype != dtype:
                raise ValueError(f"{order}/{name} must be {dtype} (n,), got {tensor.dtype} {tuple(tensor.shape)}")
        sizes = {"indptr": (table.indptr, rows + 1), "counts": (table.counts, entries), "totals": (table.totals, rows)}
        for name, (tensor, size) in sizes.items():
            if len(tensor) != size:
                raise ValueError(f"{order}/{name} must hold {size} numbers, got {len(tensor)}")
        if int(table.indptr[-1]) != entries:
            raise ValueError(f"{order}/indptr must end with {entries}, the number of entries")
        return table

    def rows(self, contexts: Tensor) -> Tensor:
        """The row of each context.

        Args:
            contexts: (contexts, order - 1) int64, oldest token first.

        Returns:
            (contexts,) int64; -1 for a context that was never seen.
        """
        node = contexts.new_zeros(len(contexts))
        found = torch.ones_like(node, dtype=torch.bool)
        for column, level in enumerate(self.levels):
            key = node * (self.vocab_size + 1) + contexts[:, column]
            node = torch.searchsorted(level, key).clamp_(max=max(len(level) - 1, 0))
            found &= level[node] == key if len(level) else torch.zeros_like(found)
        if not len(self.indices):
            found.zero_()  # everything was pruned
        return torch.where(found, node, -1)

    def probabilities(self, rows: Tensor, dtype: torch.dtype) -> Tensor:
        """Count / total of each row, dense.

        Args:
            rows: (rows,) indices, none of them -1.
            dtype: of the result.

        Returns:
            (rows, V).
        """
        start, size = self.indptr[rows], self.indptr[rows + 1] - self.indptr[rows]
        owner = torch.repeat_interleave(torch.arange(len(rows), device=rows.device), size)
        offset = torch.cumsum(size, 0) - size
        entry = torch.arange(len(owner), device=rows.device) + (start - offset)[owner]
        values = self.counts[entry].double() / self.totals[rows].double()[owner]
        dense = torch.zeros(len(rows), self.vocab_size, dtype=dtype, device=rows.device)
        dense.view(-1)[owner * self.vocab_size + self.indices[entry]] = values.to(dtype)
        return dense

    def probability(self, rows: Tensor, tokens: Tensor) -> Tensor:
        """Count / total of one next token a row, float64, by binary search inside each row.

        Args:
            rows: (rows,) indices, none of them -1.
            tokens: (rows,) next tokens.
        """
        low, end = self.indptr[rows], self.indptr[rows + 1]
        high = end
        for _ in range(int((end - low).max()).bit_length() if len(rows) else 0):
            middle = (low + high) // 2
            less = (self.indices[middle.clamp(max=len(self.indices) - 1)] < tokens) & (middle < high)
            low, high = torch.where(less, middle + 1, low), torch.where(less, high, middle)
        at = low.clamp(max=len(self.indices) - 1)
        count = torch.where((low < end) & (self.indices[at] == tokens), self.counts[at], 0)
        return count.double() / self.totals[rows].double()


def distinct_contexts(contexts: Tensor) -> tuple[Tensor, Tensor]:
    """Distinct rows of (positions, 0 or 1) contexts; much faster than rows of several columns."""
    if contexts.shape[1] == 0:
        return contexts[:1], torch.zeros(len(contexts), dtype=torch.long, device=contexts.device)
    values, inverse = torch.unique(contexts[:, 0], return_inverse=True)
    return values[:, None], inverse
