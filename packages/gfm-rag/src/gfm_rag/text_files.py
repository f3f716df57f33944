"""Text files that say where they are damaged: as UTF-8 text, as JSON, as JSON lines, and as rows of CSV."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

_LONGEST_FIELD = 2**31 - 1  # what every platform takes; the default of 131,072 is less than a long text


def read_text(path: Path) -> str:
    """The text of a UTF-8 file, without a byte order mark, line ends as they are; ValueError names the file."""
    try:
        return path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: not UTF-8 text ({error.reason} at byte {error.start})") from error


def parse_json(text: str, where: str, pairs: Callable[[list[tuple[str, Any]]], Any] | None = None) -> Any:
    """The value of a JSON text; `pairs` makes something else of an object than a dictionary.

    Raises:
        ValueError: not JSON, or nested too deeply; names the place.
    """
    try:
        return json.loads(text, object_pairs_hook=pairs)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{where}: not valid JSON: {error}") from error


def json_lines(path: Path) -> Iterator[tuple[int, Any]]:
    """Number and value of each line that is not empty; ValueError names file and line.

    Only a line feed ends a line: texts may hold U+0085 and U+2028, at which `str.splitlines` breaks, too.
    """
    for number, line in enumerate(read_text(path).split("\n"), 1):
        if line.strip():
            yield number, parse_json(line, f"{path}, line {number}")


def csv_rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Line number and fields of each row of a `.csv` or `.tsv` with quoting; ValueError names file and line."""
    delimiter = "\t" if path.suffix.lower() == ".tsv" else ","
    reader = csv.reader(io.StringIO(read_text(path), newline=""), delimiter=delimiter, strict=True)
    while True:
        limit = csv.field_size_limit(_LONGEST_FIELD)  # of the whole process, so it is put back
        try:
            row = next(reader, None)
        except csv.Error as error:
            raise ValueError(f"{path}, line {reader.line_num}: {error}") from error
        finally:
            csv.field_size_limit(limit)
        if row is None:
            return
        if row:
            yield reader.line_num, row
