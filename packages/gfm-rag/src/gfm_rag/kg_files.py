"""Triples in files: the official kg.txt (commas, no quoting) and CSV or TSV with proper quoting."""

from __future__ import annotations

import csv
import logging
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from gfm_rag.phrases import Triple
from gfm_rag.text_files import csv_rows, read_text

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
        ValueError: a line without exactly 3 fields, or a file that is not UTF-8; names the file and the line.
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
    if path.suffix.lower() in (".csv", ".tsv"):
        yield from ((number, row) for number, row in csv_rows(path) if number > 1 or row != _HEADER)
        return
    for number, line in enumerate(re.split("\r\n|\r|\n", read_text(path)), 1):
        if line:
            yield number, line.split(",")


def write_kg(path: Path, triples: Iterable[Triple]) -> None:
    """Writes a `.csv` or `.tsv` with a header, quoted where needed."""
    with path.open("w", encoding="utf-8", newline="") as file:
        delimiter = "\t" if path.suffix.lower() == ".tsv" else ","
        plain = csv.writer(file, delimiter=delimiter, lineterminator="\n")
        quoted = csv.writer(file, delimiter=delimiter, lineterminator="\n", quoting=csv.QUOTE_ALL)
        plain.writerow(_HEADER)
        for triple in triples:
            # Python 3.11 does not quote a lone carriage return, and then reads it as the end of a line
            (quoted if any("\r" in part for part in triple) else plain).writerow(triple)
