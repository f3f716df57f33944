"""Image lists as streams: CSV or JSON lines with a path and, where known, a label."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from dota_clip.data.image_stream import ImageItem, ImageStream, require_files

_PATH_COLUMNS = ("path", "image", "file", "filename", "file_name", "image_path")
_LABEL_COLUMNS = ("label", "class", "classname", "class_name", "target")

_Row = tuple[str, str, str | int | None]  # where it stands, path, label


def read_image_list(
    file: str | Path, *, classnames: Sequence[str] | None = None, image_root: str | Path | None = None
) -> ImageStream:
    """Read a CSV file (`path[,label]`, with or without a header) or a JSON lines file with the same keys.

    A label is a class name or a class number. A label that equals a class name is read as that name, so classes named
    with digits work. Empty labels are unknown ones.

    Args:
        file: `.csv`, `.jsonl` or `.ndjson`.
        classnames: the classes in label order. Default: the sorted labels, if they are names.
        image_root: what relative paths start from; default: the folder of `file`.

    Raises:
        ValueError: a malformed line, an unknown class name, a label outside the classes, numeric or no labels without
            `classnames`; file and line are named.
        FileNotFoundError: the list or an image is missing.
    """
    file = Path(file)
    rows = list(_csv_rows(file) if file.suffix.lower() == ".csv" else _jsonl_rows(file))
    if not rows:
        raise ValueError(f"{file}: no image in the list")
    names = tuple(classnames) if classnames is not None else _names_from(rows, file)
    label_of = {name: label for label, name in enumerate(names)}
    root = file.parent if image_root is None else Path(image_root)
    items = [ImageItem(root / path, _label(label, label_of, f"{where} ({path})"), path) for where, path, label in rows]
    require_files([root / path for _, path, _ in rows], str(file))
    return ImageStream(names, items)


def _csv_rows(file: Path) -> Iterator[_Row]:
    with file.open(newline="", encoding="utf-8-sig") as stream:
        path_at, label_at, width = 0, 1, 2
        reader = csv.reader(stream)
        for row in reader:
            cells = [cell.strip() for cell in row]
            if not any(cells):
                continue
            lower = [cell.lower() for cell in cells]
            if reader.line_num == 1 and set(lower) & set(_PATH_COLUMNS):
                path_at, width = _column(lower, _PATH_COLUMNS), len(cells)
                label_at = _column(lower, _LABEL_COLUMNS)
                continue
            where = f"{file}, line {reader.line_num}"
            if len(cells) > width or not cells[path_at : path_at + 1] or not cells[path_at]:
                raise ValueError(f"{where}: expected path[,label], got {','.join(row)!r}")
            label = cells[label_at] if 0 <= label_at < len(cells) else ""
            yield where, cells[path_at], label or None


def _column(header: list[str], accepted: Sequence[str]) -> int:
    return next((header.index(name) for name in accepted if name in header), -1)


def _jsonl_rows(file: Path) -> Iterator[_Row]:
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), start=1):
        if not line.strip():
            continue
        where = f"{file}, line {number}"
        try:
            row: Any = json.loads(line)
        except json.JSONDecodeError as error:
            raise ValueError(f"{where}: not JSON ({error})") from error
        path = _first(row, _PATH_COLUMNS) if isinstance(row, dict) else None
        if not isinstance(path, str) or not path:
            raise ValueError(
                f"{where}: expected an object with one of {', '.join(_PATH_COLUMNS)}, got {line.strip()[:80]!r}"
            )
        label = _first(row, _LABEL_COLUMNS)
        if isinstance(label, bool) or not isinstance(label, (str, int, type(None))):
            raise ValueError(f"{where}: the label must be a class name or a class number, got {label!r}")
        yield where, path, None if label == "" else label


def _first(row: dict[str, Any], accepted: Sequence[str]) -> Any:
    return next((row[name] for name in accepted if name in row), None)


def _names_from(rows: list[_Row], file: Path) -> tuple[str, ...]:
    labels = {label for _, _, label in rows if label is not None}
    numbers = sorted(str(label) for label in labels if _number(label) is not None)
    if not labels or numbers:
        found = f"has class numbers ({', '.join(numbers[:3])})" if numbers else "has no labels"
        raise ValueError(f"{file} {found}: give class names (a list, or a file with one per line)")
    return tuple(sorted(str(label) for label in labels))


def _label(label: str | int | None, label_of: dict[str, int], where: str) -> int | None:
    if label is None:
        return None
    if isinstance(label, str) and label in label_of:
        return label_of[label]
    number = _number(label)
    if number is None:
        raise ValueError(f"{where}: {label!r} is not among the {len(label_of)} class names")
    if not 0 <= number < len(label_of):
        raise ValueError(f"{where}: label {number} is outside 0..{len(label_of) - 1} ({len(label_of)} class names)")
    return number


def _number(label: str | int | None) -> int | None:
    if isinstance(label, int):
        return label
    try:
        return int(label) if label is not None else None
    except ValueError:
        return None
