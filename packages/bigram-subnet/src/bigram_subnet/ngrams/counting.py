"""One pass over a corpus: its lines become tables of n-gram counts of every order."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator

import numpy as np

from bigram_subnet.ngrams.table import NgramTable
from bigram_subnet.ngrams.tally import Tally, lower_order
from bigram_subnet.ngrams.token_files import Ids, TokenBlock

log = logging.getLogger(__name__)

_MOST_IDS = 2**31 - 1  # ids are stored in 32 bits, the padding among them
_FEW_TOKENS = 1000  # per token of the vocabulary; the paper's corpus has 25,000


def count_blocks(
    blocks: Iterable[TokenBlock], vocab_size: int, order: int, min_count: int | None, prune_every: int | None
) -> tuple[list[NgramTable], int, int]:
    """Counts the n-grams of all orders up to ``order``.

    Args:
        blocks: lines of token ids.
        vocab_size: V.
        order: n.
        min_count: forget n-grams seen fewer times.
        prune_every: forget them after every so many lines already.

    Returns:
        A table an order, the number of tokens, and the number of lines that hold some.

    Raises:
        ValueError: an argument out of range, an id outside of the vocabulary, or no token at all.
    """
    _check_arguments(vocab_size, order, min_count, prune_every)
    # Without pruning, the counts of the highest order hold those of all lower ones.
    orders = range(1, order + 1) if min_count is not None else [order]
    tallies = [Tally(n, vocab_size) for n in orders]
    tokens = lines = 0
    checked = (block.check(vocab_size) for block in blocks)
    for block in _in_groups(checked, prune_every):
        tokens, lines = tokens + len(block.ids), lines + int(np.count_nonzero(block.lengths))
        for tally in tallies:
            tally.add(block)
            if prune_every is not None and min_count is not None:
                tally.prune(min_count)
    if not tokens:
        raise ValueError("there is no token to count: the files are empty")
    if tokens < _FEW_TOKENS * vocab_size:
        log.warning(
            "%s tokens for a vocabulary of %s: many n-grams of the language were never seen, which makes their "
            "surprisal infinite; the paper counts 25,000 tokens per entry of the vocabulary",
            f"{tokens:,}",
            f"{vocab_size:,}",
        )
    found = []
    for tally in tallies:
        if min_count is not None:
            tally.prune(min_count)
        found.append(tally.result())
    while len(found) < order:
        found.insert(0, lower_order(*found[0], order - len(found) + 1, vocab_size))
    tables = [NgramTable.from_keys(*counts, n, vocab_size) for n, counts in enumerate(found, 1)]
    return tables, tokens, lines


def _check_arguments(vocab_size: int, order: int, min_count: int | None, prune_every: int | None) -> None:
    check_whole("vocab_size", vocab_size)
    if vocab_size >= _MOST_IDS:
        raise ValueError(f"vocab_size must be below {_MOST_IDS}, got {vocab_size}")
    check_whole("order", order)
    if prune_every is not None:
        check_whole("prune_every", prune_every)
        if min_count is None:
            raise ValueError(f"prune_every={prune_every} needs min_count, the least count to keep")
    if min_count is not None:
        check_whole("min_count", min_count)


def check_whole(name: str, value: object) -> None:
    """ValueError unless a value is a whole number of at least 1."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError(f"{name} must be a whole number of at least 1, got {value!r}")


def _in_groups(blocks: Iterable[TokenBlock], lines: int | None) -> Iterator[TokenBlock]:
    """The same lines in blocks of exactly ``lines`` lines each (the last may be shorter), as pruning counts them."""
    if lines is None:
        yield from blocks
        return
    ids: list[Ids] = []
    lengths: list[Ids] = []
    have, first, source = 0, 1, ""
    for block in blocks:
        ends = np.concatenate([[0], np.cumsum(block.lengths)])
        start = 0
        while start < len(block.lengths):
            stop = min(start + lines - have, len(block.lengths))
            if not have:
                first, source = block.first_line + start, block.source
            ids.append(block.ids[ends[start] : ends[stop]])
            lengths.append(block.lengths[start:stop])
            have, start = have + stop - start, stop
            if have == lines:
                yield TokenBlock(np.concatenate(ids), np.concatenate(lengths), first, source)
                ids, lengths, have = [], [], 0
    if have:
        yield TokenBlock(np.concatenate(ids), np.concatenate(lengths), first, source)
