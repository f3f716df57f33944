"""N-gram counts of a corpus, their next-token distributions with back-off, and their file (paper 3.5)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from bigram_subnet.ngrams.counting import check_whole, count_blocks
from bigram_subnet.ngrams.table import NgramTable, distinct_contexts
from bigram_subnet.ngrams.token_files import TokenBlock, block_of, read_token_files, tokenized_text
from bigram_subnet.ngrams.vocabulary import vocabulary_digest
from bigram_subnet.tensor_files import write_tensors
from bigram_subnet.token_ids import id_range, whole_numbers

FORMAT = "bigram-subnet/ngrams"
VERSION = 1


class BigramCounts:
    """Counts of n-grams (bigrams by default) and the distributions P(next token | last n - 1 tokens) from them.

    No smoothing: P is count / total; a context that was never seen falls back to the next shorter one, at last to the
    unigram, and to the uniform distribution if nothing at all is known. Before the start of a line stands a padding id,
    so P(. | start) exists.

    Args:
        tables: one table an order, from 1 to n.
        tokens: how many tokens were counted.
        lines: how many lines with tokens were counted.
        vocabulary: digest of the tokenizer's vocabulary, where the counts were made with one.

    Raises:
        ValueError: tables of another order than their place says.
    """

    def __init__(
        self, tables: Sequence[NgramTable], tokens: int = 0, lines: int = 0, vocabulary: str | None = None
    ) -> None:
        if not tables or [table.order for table in tables] != list(range(1, len(tables) + 1)):
            raise ValueError("tables must be of the orders 1, 2, ..., n")
        self._tables = tuple(tables)
        self.tokens = tokens
        self.lines = lines
        self.vocabulary = vocabulary

    @property
    def vocab_size(self) -> int:
        """V, the number of token ids."""
        return self._tables[0].vocab_size

    @property
    def order(self) -> int:
        """n: 2 for bigrams."""
        return len(self._tables)

    def __repr__(self) -> str:
        return f"BigramCounts(order={self.order}, vocab_size={self.vocab_size}, tokens={self.tokens:,})"

    # Counting

    @classmethod
    def from_files(
        cls,
        paths: str | Path | Iterable[str | Path],
        vocab_size: int,
        order: int = 2,
        min_count: int | None = None,
        prune_every: int | None = None,
    ) -> BigramCounts:
        """Counts token files in one pass; memory grows with the distinct n-grams, not with the corpus.

        Args:
            paths: text files with space-separated ids, one sequence a line (empty lines are ignored), or `.npy` arrays
                (sequences, length).
            vocab_size: V, the tokenizer's size, not that of a padded head.
            order: n.
            min_count: forget n-grams seen fewer times; default: keep all.
            prune_every: forget them after every so many lines already, and at the end; it saves memory, and a rare
                n-gram may then be forgotten again and again.

        Raises:
            FileNotFoundError: there is no such file.
            ValueError: an id outside of the vocabulary or no whole number (with file and line), no token at all, or an
                argument out of range.
        """
        return cls._count(read_token_files(paths), vocab_size, order, min_count, prune_every)

    @classmethod
    def from_sequences(
        cls,
        sequences: Iterable[Sequence[int]] | Tensor,
        vocab_size: int,
        order: int = 2,
        min_count: int | None = None,
        prune_every: int | None = None,
    ) -> BigramCounts:
        """Counts sequences of ids in memory; arguments and errors as in :meth:`from_files`."""
        return cls._count([block_of(sequences)], vocab_size, order, min_count, prune_every)

    @classmethod
    def from_text(
        cls,
        paths: str | Path | Sequence[str | Path],
        tokenizer: Any,
        order: int = 2,
        min_count: int | None = None,
        prune_every: int | None = None,
        sequence_length: int = 128,
    ) -> BigramCounts:
        """Counts raw text through a tokenizer, as it is read.

        Args:
            paths: UTF-8 text files; their lines are joined and cut into sequences.
            tokenizer: a tokenizer of transformers; its vocabulary is remembered by a digest.
            order: as in :meth:`from_files`.
            min_count: as in :meth:`from_files`.
            prune_every: as in :meth:`from_files`, in sequences.
            sequence_length: tokens in a sequence.

        Raises:
            FileNotFoundError: there is no such file.
            ValueError: a file that is not UTF-8, no token at all, or an argument out of range.
        """
        blocks = tokenized_text(paths, tokenizer, sequence_length)
        counts = cls._count(blocks, len(tokenizer), order, min_count, prune_every)
        counts.vocabulary = vocabulary_digest(tokenizer)
        return counts

    @classmethod
    def _count(
        cls, blocks: Iterable[TokenBlock], vocab_size: int, order: int, min_count: int | None, prune_every: int | None
    ) -> BigramCounts:
        return cls(*count_blocks(blocks, vocab_size, order, min_count, prune_every))

    # Looking up

    def next_token_probs(self, input_ids: Tensor, backoff: bool = True) -> Tensor:
        """P(next token | the n - 1 tokens up to here) at every position.

        Args:
            input_ids: (batch, sequence) token ids.
            backoff: shorter contexts for those that were never seen; without, their rows are NaN.

        Returns:
            (batch, sequence, V) float64.

        Raises:
            ValueError: an id outside of the vocabulary.
        """
        return self._dense(input_ids, torch.float64, backoff)

    def dense(self, input_ids: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
        """:meth:`next_token_probs` with back-off, in another dtype, made on the device of the ids."""
        return self._dense(input_ids, dtype, backoff=True)

    def _dense(self, input_ids: Tensor, dtype: torch.dtype, backoff: bool) -> Tensor:
        contexts = self._contexts(input_ids, ahead=1)
        distinct, inverse = (
            torch.unique(contexts, dim=0, return_inverse=True) if self.order > 2 else distinct_contexts(contexts)
        )
        probs = torch.full((len(distinct), self.vocab_size), float("nan"), dtype=dtype, device=input_ids.device)
        open_ = torch.ones(len(distinct), dtype=torch.bool, device=input_ids.device)
        for table in reversed(self._on(input_ids.device)):
            rows = table.rows(distinct[:, self.order - table.order :])
            chosen = open_ & (rows >= 0)
            if bool(chosen.all()):
                probs = table.probabilities(rows, dtype)
            elif bool(chosen.any()):
                probs[chosen] = table.probabilities(rows[chosen], dtype)
            open_ &= ~chosen
            if not backoff or not bool(open_.any()):
                break
        if backoff:
            probs[open_] = 1 / self.vocab_size
        return probs[inverse].view(*input_ids.shape, self.vocab_size)

    def token_surprisal(self, input_ids: Tensor) -> Tensor:
        """-log2 P(token | the n - 1 tokens before it); the first token is given the start of a line.

        Args:
            input_ids: (batch, sequence) token ids.

        Returns:
            (batch, sequence) float64 bits; infinite where the counts never saw the token behind a known context.

        Raises:
            ValueError: an id outside of the vocabulary.
        """
        contexts, tokens = self._contexts(input_ids, ahead=0), input_ids.reshape(-1).long()
        probs = torch.full(tokens.shape, 1 / self.vocab_size, dtype=torch.float64, device=tokens.device)
        open_ = torch.ones_like(tokens, dtype=torch.bool)
        for table in reversed(self._on(input_ids.device)):
            rows = table.rows(contexts[:, self.order - table.order :])
            chosen = open_ & (rows >= 0)
            probs[chosen] = table.probability(rows[chosen], tokens[chosen])
            open_ &= ~chosen
        return -torch.log2(probs).view(input_ids.shape)

    def check_ids(self, input_ids: Tensor) -> Tensor:
        """The ids as int64.

        Args:
            input_ids: (batch, sequence) token ids.

        Raises:
            ValueError: no whole numbers, or an id outside of the vocabulary.
        """
        ids = whole_numbers(input_ids)
        low, high = id_range(ids)
        if low < 0 or high >= self.vocab_size:
            wrong = low if low < 0 else high
            raise ValueError(
                f"token id {wrong} is outside of the counts' vocabulary, 0 to {self.vocab_size - 1}: "
                "were they made with another tokenizer?"
            )
        return ids

    def _contexts(self, input_ids: Tensor, ahead: int) -> Tensor:
        """(positions, n - 1) contexts: the tokens up to each position (ahead 1), or before it (ahead 0)."""
        ids = self.check_ids(input_ids)
        batch, length = input_ids.shape
        width = self.order - 1
        start = torch.full((batch, width), self.vocab_size, dtype=torch.long, device=input_ids.device)
        padded = torch.cat([start, ids], dim=1)
        if width == 0:
            return padded.new_zeros(batch * length, 0)
        windows = padded.unfold(1, width, 1)  # window i holds the tokens before position i
        return windows[:, ahead : ahead + length].reshape(-1, width)

    def _on(self, device: torch.device) -> tuple[NgramTable, ...]:
        """The tables on a device; kept there, as training asks for them at every step."""
        if device.type == "cpu":
            return self._tables
        moved: dict[torch.device, tuple[NgramTable, ...]] = self.__dict__.setdefault("_moved", {})
        if device not in moved:
            moved[device] = tuple(table.to(device) for table in self._tables)
        return moved[device]

    # Files

    def save(self, path: str | Path) -> None:
        """Writes all tables into one safetensors file, atomically."""
        if Path(path).suffix != ".safetensors":
            raise ValueError(f"{path}: a file of counts must end in .safetensors")
        tensors = {
            f"{n}/{key}": value for n, table in enumerate(self._tables, 1) for key, value in table.tensors().items()
        }
        header = {
            "format": FORMAT,
            "format_version": VERSION,
            "vocab_size": self.vocab_size,
            "order": self.order,
            "tokens": self.tokens,
            "lines": self.lines,
            "vocabulary": self.vocabulary,
        }
        write_tensors(path, tensors, {"ngrams": json.dumps(header)})

    @classmethod
    def load(cls, path: str | Path) -> BigramCounts:
        """Reads what :meth:`save` wrote; the arrays are memory-mapped, so that only what is looked up is read.

        Raises:
            FileNotFoundError: there is no such file.
            ValueError: a damaged file, or another kind of file.
        """
        if not Path(path).is_file():
            raise FileNotFoundError(f"{path}: no such file of counts")
        try:
            with safe_open(path, "pt") as file:
                header = json.loads((file.metadata() or {}).get("ngrams", "null"))
                if not isinstance(header, dict) or header.get("format") != FORMAT:
                    raise ValueError(f"{path}: not a file of counts (no metadata with format {FORMAT!r})")
                if header.get("format_version") != VERSION:
                    found = header.get("format_version")
                    raise ValueError(f"{path}: format_version is {found!r}, this release reads {VERSION}")
                tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 - it is no dict
        except (SafetensorError, json.JSONDecodeError) as error:
            raise ValueError(f"{path}: truncated or damaged ({error})") from None
        try:
            for name in ("order", "vocab_size"):
                check_whole(name, header[name])
            tables = list(_tables_from(tensors, header["order"], header["vocab_size"]))
        except KeyError as error:
            raise ValueError(f"{path}: damaged: {error} is missing") from None
        except ValueError as error:
            raise ValueError(f"{path}: damaged: {error}") from None
        return cls(tables, header.get("tokens", 0), header.get("lines", 0), header.get("vocabulary"))


def _tables_from(tensors: dict[str, Tensor], order: int, vocab_size: int) -> Iterator[NgramTable]:
    for n in range(1, order + 1):
        own = {key.removeprefix(f"{n}/"): value for key, value in tensors.items() if key.startswith(f"{n}/")}
        yield NgramTable.from_tensors(own, n, vocab_size)
