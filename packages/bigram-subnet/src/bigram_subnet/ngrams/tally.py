"""Counting n-grams as sorted keys: a block becomes sorted distinct keys with counts; runs of like size are merged.

A key is an n-gram written in base V + 1, the context first and the next token last, in one or several 63-bit words, so
that keys sort by context. The extra digit V is the padding before the start of a line.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from bigram_subnet.ngrams.token_files import TokenBlock

Keys = NDArray[np.int64]  # (n-grams, words)
Counts = NDArray[np.int64]
_BITS = 63


def digits_per_word(vocab_size: int) -> int:
    """How many ids, the padding included, fit into one word."""
    return max(1, int(_BITS / math.log2(vocab_size + 1))) if vocab_size > 1 else _BITS


def ngram_keys(block: TokenBlock, order: int, vocab_size: int) -> Keys:
    """The key of the n-gram that ends at each token; before the start of a line stands the padding."""
    ids, lengths = block.ids, block.lengths
    columns = [ids]
    if order > 1:
        starts = np.cumsum(lengths) - lengths
        position = np.arange(len(ids)) - np.repeat(starts, lengths)
        for back in range(1, order):
            shifted = np.full(len(ids), vocab_size, dtype=np.int64)
            shifted[back:] = ids[:-back]
            shifted[position < back] = vocab_size
            columns.append(shifted)
    columns.reverse()
    return pack_digits(columns, vocab_size)


def pack_digits(columns: list[NDArray[np.int64]], vocab_size: int) -> Keys:
    """Writes columns of ids into words, the first column being the most significant."""
    base, width = vocab_size + 1, digits_per_word(vocab_size)
    words = []
    for start in range(0, len(columns), width):
        word = columns[start].copy()
        for column in columns[start + 1 : start + width]:
            word *= base
            word += column
        words.append(word)
    return np.stack(words, axis=1)


def unpack_digits(keys: Keys, order: int, vocab_size: int) -> NDArray[np.int64]:
    """The (n-grams, order) ids behind keys."""
    base, width = vocab_size + 1, digits_per_word(vocab_size)
    out = np.empty((len(keys), order), dtype=np.int64)
    for index, start in enumerate(range(0, order, width)):
        word = keys[:, index].copy()
        for column in range(min(start + width, order) - 1, start - 1, -1):
            word, out[:, column] = np.divmod(word, base)
    return out


def distinct(keys: Keys, counts: Counts | None = None) -> tuple[Keys, Counts]:
    """Sorted distinct keys and the sum of their counts (1 each without ``counts``)."""
    if not len(keys):
        return keys, np.empty(0, dtype=np.int64)
    if keys.shape[1] == 1 and counts is None:
        flat = np.sort(keys[:, 0])
        first = np.flatnonzero(np.concatenate([[True], flat[1:] != flat[:-1]]))
        return flat[first, None], np.diff(np.append(first, len(flat)))
    by_key = np.argsort(keys[:, 0], kind="stable") if keys.shape[1] == 1 else np.lexsort(keys.T[::-1])
    ordered = keys[by_key]
    first = np.flatnonzero(np.concatenate([[True], (ordered[1:] != ordered[:-1]).any(axis=1)]))
    if counts is None:
        return ordered[first], np.diff(np.append(first, len(ordered)))
    return ordered[first], np.add.reduceat(counts[by_key], first)


class Tally:
    """Counts of all n-grams of one order.

    Args:
        order: n.
        vocab_size: V.
    """

    def __init__(self, order: int, vocab_size: int) -> None:
        self.order = order
        self.vocab_size = vocab_size
        self._runs: list[tuple[Keys, Counts]] = []
        self._unigrams = np.zeros(vocab_size, dtype=np.int64) if order == 1 else None

    def add(self, block: TokenBlock) -> None:
        """Counts the n-grams of a block of lines, whose ids have been checked."""
        if self._unigrams is not None:
            self._unigrams += np.bincount(block.ids, minlength=self.vocab_size)
            return
        self._runs.append(distinct(ngram_keys(block, self.order, self.vocab_size)))
        # Merging runs of like size only keeps the work per n-gram logarithmic in the number of blocks.
        while len(self._runs) > 1 and len(self._runs[-2][0]) < 2 * len(self._runs[-1][0]):
            self._merge_last()

    def _merge_last(self) -> None:
        (keys, counts), (more_keys, more_counts) = self._runs.pop(), self._runs.pop()
        self._runs.append(distinct(np.concatenate([more_keys, keys]), np.concatenate([more_counts, counts])))

    def prune(self, min_count: int) -> None:
        """Forgets n-grams seen fewer than ``min_count`` times so far."""
        keys, counts = self.result()
        if self._unigrams is not None:
            self._unigrams[self._unigrams < min_count] = 0
        else:
            often = counts >= min_count
            self._runs = [(keys[often], counts[often])]

    def result(self) -> tuple[Keys, Counts]:
        """Sorted distinct keys (n-grams, words) and their counts."""
        if self._unigrams is not None:
            seen = np.flatnonzero(self._unigrams)
            return seen[:, None].astype(np.int64), self._unigrams[seen]
        while len(self._runs) > 1:
            self._merge_last()
        if not self._runs:
            return np.empty((0, 1), dtype=np.int64), np.empty(0, dtype=np.int64)
        return self._runs[0]


def lower_order(keys: Keys, counts: Counts, order: int, vocab_size: int) -> tuple[Keys, Counts]:
    """The counts of the (n-1)-grams from those of the n-grams: the first token is summed over.

    It is exact, as every token of a corpus ends exactly one n-gram of every order.
    """
    ids = unpack_digits(keys, order, vocab_size)
    return distinct(pack_digits([ids[:, i] for i in range(1, order)], vocab_size), counts)
