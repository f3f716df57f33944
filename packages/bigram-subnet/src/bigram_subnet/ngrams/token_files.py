"""Reading token ids: text files with one sequence of ids a line, `.npy` arrays, and raw text through a tokenizer.

Everything comes in blocks of whole lines, as one flat array of ids and the length of each line, so that a corpus never
has to fit into memory.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from bigram_subnet.token_ids import whole_numbers

_MOST_IDS = 2**31  # rows are held in 32 bits
_CHUNK = 1 << 22  # bytes of text, or ids of an array, in a block
_SPACE = np.zeros(256, dtype=bool)
_SPACE[list(b" \t\r\n\v\f")] = True


Ids = NDArray[np.int64]


@dataclass(frozen=True)
class TokenBlock:
    """Some lines of token ids.

    Args:
        ids: (tokens,) int64.
        lengths: (lines,) int64, tokens in each line; empty lines count as lines.
        first_line: number of the first line in its file, from 1.
        source: the file, for messages.
    """

    ids: NDArray[np.int64]
    lengths: NDArray[np.int64]
    first_line: int
    source: str

    def check(self, vocab_size: int) -> TokenBlock:
        """The block itself.

        Raises:
            ValueError: an id outside of the vocabulary; names file, line and id.
        """
        wrong = (self.ids < 0) | (self.ids >= vocab_size)
        if wrong.any():
            at = int(wrong.argmax())
            line = self.first_line + int(np.searchsorted(np.cumsum(self.lengths), at, side="right"))
            raise ValueError(
                f"{self.source}, line {line}: token id {self.ids[at]} is outside of the vocabulary, "
                f"0 to {vocab_size - 1}"
            )
        return self


def read_token_files(paths: str | Path | Iterable[str | Path]) -> Iterator[TokenBlock]:
    """The blocks of token files, one after the other.

    Args:
        paths: text files with space-separated ids, one sequence a line, or `.npy` arrays of integers (sequences,
            length), which are memory-mapped.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: no file given, or something that is no token id; names file and line.
    """
    for file in _existing(paths, "token file"):
        yield from _array_blocks(file) if file.suffix == ".npy" else _text_blocks(file)


def _existing(paths: str | Path | Iterable[str | Path], kind: str) -> list[Path]:
    """The files, all of which must be there before the first is read."""
    files = [Path(path) for path in ([paths] if isinstance(paths, str | Path) else paths)]
    if not files:
        raise ValueError(f"expected at least one {kind}, got none")
    for file in files:
        if not file.is_file():
            raise FileNotFoundError(f"{file}: no such {kind}")
    return files


def _array_blocks(file: Path) -> Iterator[TokenBlock]:
    try:
        array = np.load(file, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise ValueError(f"{file}: no readable .npy array ({error})") from None
    if not isinstance(array, np.ndarray):  # several arrays, as np.savez writes them
        raise ValueError(f"{file}: no readable .npy array, but an archive of arrays")
    if array.ndim != 2 or array.dtype.kind not in "iu":
        raise ValueError(f"{file}: expected integers (sequences, length), got {array.dtype} {array.shape}")
    rows = max(1, _CHUNK // max(1, array.shape[1]))
    for start in range(0, len(array), rows):
        part = array[start : start + rows]
        lengths = np.full(len(part), part.shape[1], dtype=np.int64)
        yield TokenBlock(_as_ids(part).reshape(-1), lengths, start + 1, str(file))


def _as_ids(array: NDArray[Any]) -> Ids:
    """Integers as int64; those that do not fit become its largest, which no vocabulary holds."""
    if array.dtype == np.uint64:
        array = np.minimum(array, np.iinfo(np.int64).max)
    return array.astype(np.int64)


def block_of(sequences: Iterable[Sequence[int]] | Tensor) -> TokenBlock:
    """Sequences in memory as one block.

    Args:
        sequences: sequences of whole numbers, a tensor or an array (sequences, length).

    Raises:
        ValueError: something that is no whole number; names the sequence.
    """
    if isinstance(sequences, Tensor):
        sequences = whole_numbers(sequences, "sequences").cpu().numpy()
    arrays = [np.asarray(sequence) for sequence in sequences]
    for number, array in enumerate(arrays, 1):
        if array.ndim != 1 or (array.dtype.kind not in "iu" and array.size):
            raise ValueError(f"sequences, line {number}: expected whole numbers, got {array.dtype} {array.shape}")
    lengths = np.array([len(array) for array in arrays], dtype=np.int64)
    flat = np.concatenate([_as_ids(array) for array in arrays]) if arrays else np.empty(0, dtype=np.int64)
    return TokenBlock(flat, lengths, 1, "sequences")


def _text_blocks(file: Path) -> Iterator[TokenBlock]:
    line = 1
    with file.open("rb") as stream:
        while chunk := stream.read(_CHUNK):
            if not chunk.endswith(b"\n"):
                chunk += stream.readline()  # whole lines only
            ids, lengths = _parse(chunk, file, line)
            yield TokenBlock(ids, lengths, line, str(file))
            line += len(lengths)


def _parse(chunk: bytes, file: Path, first_line: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Ids and line lengths of some text; a token starts where a byte follows a space or the beginning."""
    text = np.frombuffer(chunk if chunk.endswith(b"\n") else chunk + b"\n", dtype=np.uint8)
    space = _SPACE[text]
    starts = np.empty(len(text), dtype=bool)
    starts[0] = not space[0]
    np.greater(space[:-1], space[1:], out=starts[1:])  # a space before, none here
    ends = np.flatnonzero(text == ord("\n"))
    lengths = np.add.reduceat(starts, np.concatenate([[0], ends[:-1] + 1]), dtype=np.int64)
    ids = np.empty(0, dtype=np.int64)
    if lengths.any():
        with warnings.catch_warnings(), suppress(DeprecationWarning, ValueError):
            warnings.simplefilter("error", DeprecationWarning)  # numpy's word for text that is no number
            ids = np.fromstring(text.tobytes().decode("ascii"), dtype=np.int64, sep=" ")
    too_long = len(ids) and ids.max() == np.iinfo(np.int64).max  # what numpy makes of more digits than fit
    if len(ids) != lengths.sum() or too_long:
        raise ValueError(_first_wrong(text.tobytes(), file, first_line))
    return ids, lengths


def _first_wrong(chunk: bytes, file: Path, first_line: int) -> str:
    for number, line in enumerate(chunk.split(b"\n"), first_line):
        for token in line.split():
            if not token.removeprefix(b"-").isdigit() or len(token) > 18:
                shown = token[:20].decode("ascii", "replace")
                return f"{file}, line {number}: {shown!r} is no token id; expected whole numbers between spaces"
    return f"{file}, from line {first_line}: expected whole numbers between spaces"


def tokenized_text(
    paths: str | Path | Sequence[str | Path], tokenizer: Any, sequence_length: int = 128, lines_at_once: int = 1024
) -> Iterator[TokenBlock]:
    """Raw text as sequences of token ids: the file's lines are tokenized, joined and cut; nothing is added (no BOS).

    Args:
        paths: UTF-8 text files.
        tokenizer: a tokenizer of transformers.
        sequence_length: tokens in a sequence; what is left over at the end of a file is a shorter one.
        lines_at_once: lines that are tokenized together.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: a file that is not UTF-8, or a length below 1.
    """
    if sequence_length < 1:
        raise ValueError(f"sequence_length must be at least 1, got {sequence_length}")
    for file in _existing(paths, "text file"):
        rest, line = np.empty(0, dtype=np.int64), 1
        for texts in _line_groups(file, lines_at_once):
            encoded = tokenizer(texts, add_special_tokens=False, verbose=False)["input_ids"]
            flat = np.concatenate([rest, *(np.asarray(ids, dtype=np.int64) for ids in encoded)])
            whole = len(flat) // sequence_length * sequence_length
            if whole:
                lengths = np.full(whole // sequence_length, sequence_length, dtype=np.int64)
                yield TokenBlock(flat[:whole], lengths, line, f"{file} (sequences)")
                line += len(lengths)
            rest = flat[whole:]
        if len(rest):
            yield TokenBlock(rest, np.array([len(rest)], dtype=np.int64), line, f"{file} (sequences)")


def _line_groups(file: Path, size: int) -> Iterator[list[str]]:
    group: list[str] = []
    try:
        with file.open(encoding="utf-8", newline="") as stream:  # newlines as they are: they are tokens
            for line in stream:
                group.append(line)
                if len(group) == size:
                    yield group
                    group = []
    except UnicodeDecodeError as error:
        raise ValueError(f"{file}: not UTF-8 text ({error})") from None
    if group:
        yield group


def token_rows(blocks: Iterable[TokenBlock], limit: int | None = None) -> NDArray[np.int32]:
    """The lines of equal length, the first line's, as one array; for training and evaluation.

    Args:
        blocks: lines of tokens.
        limit: only so many lines.

    Returns:
        (sequences, length) int32. One shorter last line of a file, and empty lines, are left out.

    Raises:
        ValueError: no line, a line of another length in the middle, or an id that no model has; names file and line.
    """
    rows: list[NDArray[np.int32]] = []
    length = count = short = 0  # short: number of the file's first shorter line, 0 while there is none
    for block in blocks:
        block.check(_MOST_IDS)
        short = 0 if block.first_line == 1 else short
        used = np.flatnonzero(block.lengths)
        length = length or int(block.lengths[used[0]] if len(used) else 0)
        if limit is not None:  # nothing is asked of lines behind the last one that is needed
            used = used[: np.searchsorted(np.cumsum(block.lengths[used] == length), limit - count) + 1]
        sizes, numbers = block.lengths[used], block.first_line + used
        shorter = sizes < length
        behind_short = (short > 0) | (np.cumsum(shorter) > shorter)  # only the last line may be shorter
        wrong = (sizes > length) | behind_short
        first_short = short or int(numbers[shorter][0] if shorter.any() else 0)
        if wrong.any():
            at = int(wrong.argmax())
            number = first_short if behind_short[at] else numbers[at]
            raise ValueError(
                f"{block.source}, line {number}: all lines must have {length} tokens, as the first one has"
            )
        short = first_short
        starts = (np.cumsum(block.lengths)[used] - sizes)[~shorter]
        rows.append(block.ids[starts[:, None] + np.arange(length)].astype(np.int32))
        count += len(starts)
        if count == limit:
            break
    if not count:
        raise ValueError("the token files hold no line of tokens")
    return np.concatenate(rows)
