"""Triples in files: the official kg.txt (commas, no quoting) and CSV or TSV with proper quoting."""

from __future__ import annotations

import csv
import logging
from collections.abc import Iterable, Iterator
from pathlib import Path

from gfm_rag.phrases import Triple

log = logging.getLogger(__name__)

_HEADER = ["head", "relation", "tail"]


def read_kg(path: str | Path, strict: bool = True) -> list[Triple]:
    """Reads triples, one a line; fields are taken as they are, spaces included.

    Args:
        path: `.csv` and `.tsv` files are read with quoting and may begin with the line head, relation, tail; any other
            file is an official kg.txt, `head,relation,tail` without quoting.
        strict: refuse a malformed line; otherwise such lines are skipped, with a warning that counts them.

    Returns:
        (head, relation, tail) in the order of the file.

    Raises:
        ValueError: a line without exactly 3 fields; names the file and the line.
        FileNotFoundError: no such file.
    """
    path = Path(path)
    triples, skipped = [], 0
    for number, fields in _rows(path):
        if len(fields) == 3:
            triples.append((fields[0], fields[1], fields[2]))
        elif strict:
            raise ValueError(f"{path}, line {number}: expected 3 fields head, relation, tail, got {len(fields)}")
        else:
            skipped += 1
    if skipped:
        log.warning("%s: skipped %d lines without exactly 3 fields", path, skipped)
    return triples


def _rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    with path.open(encoding="utf-8", newline="") as file:
        if path.suffix not in (".csv", ".tsv"):
            for number, line in enumerate(file, 1):
                text = line.rstrip("\r\n")
                if text:
                    yield number, text.split(",")
            return
        reader = csv.reader(file, delimiter="\t" if path.suffix == ".tsv" else ",", strict=True)
        try:
            for row in reader:
                if row and not (reader.line_num == 1 and row == _HEADER):
                    yield reader.line_num, row
        except csv.Error as error:
            raise ValueError(f"{path}, line {reader.line_num}: {error}") from error


def write_kg(path: Path, triples: Iterable[Triple]) -> None:
    """Writes a `.csv` or `.tsv` with a header, quoted where needed."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, delimiter="\t" if path.suffix == ".tsv" else ",", lineterminator="\n")
        writer.writerow(_HEADER)
        writer.writerows(triples)
