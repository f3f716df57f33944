"""Rows to train on: CSV, JSON lines, Parquet, folders of `datasets`, folders of images by class, and hub ids."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import datasets
import pyarrow
import pyarrow.parquet
from datasets import Dataset

FILES = (".csv", ".tsv", ".json", ".jsonl", ".parquet")
IMAGES = (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif", ".tif", ".tiff")


def read_records(source: str, split: str = "train", name: str | None = None) -> Dataset:
    """Read the rows of one split.

    Values of CSV and TSV files are text, as they stand. JSON lines and CSV are read into memory; a folder of
    ``Dataset.save_to_disk`` is mapped, and the choice for large data.

    Args:
        source: A file (.csv, .tsv, .json with a list of objects, .jsonl, .parquet); a folder of ``save_to_disk``; a
            folder with a folder of images for each class; or a hub id, also ``hf:ID``.
        split: The split, for a folder of several splits or a hub id; what has no splits is all "train".
        name: The configuration of a hub data set.

    Raises:
        ValueError: A file that cannot be read, with its line; no rows; no such split.
        OSError: Neither a local path nor to be had from the hub.
    """
    path = Path(source)
    if path.is_file():
        _check_whole(source, split)
        rows = _read_file(path)
    elif path.is_dir():
        rows = _read_folder(path, split)
    elif path.suffix.lower() in FILES or source.startswith((".", "/", "~")):
        raise FileNotFoundError(f"{source}: no such file or folder")
    else:
        rows = _read_hub(source.removeprefix("hf:"), split, name)
    if len(rows) == 0:
        raise ValueError(f"{source} holds no rows")
    return rows


def _check_whole(source: str, split: str) -> None:
    """Data without splits must not be taken for the split that was asked for, such as one to evaluate on."""
    if split != "train":
        raise ValueError(
            f"{source} has no splits, so no split {split!r}; rows to evaluate on from another place: --eval_data"
        )


def _read_file(path: Path) -> Dataset:
    ending = path.suffix.lower()
    if ending == ".parquet":
        try:
            return datasets.Dataset(pyarrow.parquet.read_table(path))
        except (OSError, ValueError) as error:  # pyarrow's errors are ValueErrors
            raise ValueError(f"{path}: not a Parquet file: {error}") from error
    readers = {".csv": _csv_rows, ".tsv": _csv_rows, ".jsonl": _json_lines, ".json": _json_list}
    if ending not in readers:
        raise ValueError(f"{path}: a data file ends in {', '.join(FILES)}")
    try:
        rows = list(readers[ending](path))
        if not rows:
            raise ValueError(f"{path} holds no rows")
        columns = {key: None for row in rows for key in row}  # in their order; a JSON line may leave one out
        return datasets.Dataset.from_dict({key: [row.get(key) for row in rows] for key in columns})
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: not UTF-8 text: {error}") from error
    except pyarrow.ArrowException as error:
        raise ValueError(f"{path}: a column mixes types: {error}") from error


def _csv_rows(path: Path) -> Iterator[dict[str, Any]]:
    csv.field_size_limit(min(sys.maxsize, 2**31 - 1))  # texts may be longer than the default 128 KiB
    with path.open(newline="", encoding="utf-8-sig") as file:
        reader = csv.reader(file, delimiter="\t" if path.suffix.lower() == ".tsv" else ",", strict=True)
        try:
            header = next(reader, [])
            if len(set(header)) != len(header):
                raise ValueError(f"{path}: the header names a column twice: {', '.join(header)}")
            for row in reader:
                if row and len(row) != len(header):
                    raise ValueError(f"{path}, line {reader.line_num}: {len(row)} fields, the header has {len(header)}")
                if row:
                    yield dict(zip(header, row, strict=True))
        except csv.Error as error:
            raise ValueError(f"{path}, line {reader.line_num}: {error}") from error


def _json_lines(path: Path) -> Iterator[dict[str, Any]]:
    with path.open(encoding="utf-8-sig") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except ValueError as error:
                raise ValueError(f"{path}, line {number}: not valid JSON: {error}") from error
            if not isinstance(row, dict):
                raise ValueError(f"{path}, line {number}: expected a JSON object, got {type(row).__name__}")
            yield row


def _json_list(path: Path) -> Iterator[dict[str, Any]]:
    try:
        rows = json.loads(path.read_text("utf-8-sig"))
    except UnicodeDecodeError:
        raise
    except ValueError as error:
        raise ValueError(f"{path}: not valid JSON: {error}; a file with an object a line is named .jsonl") from error
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise ValueError(f"{path}: expected a list of JSON objects")
    yield from rows


def _read_folder(path: Path, split: str) -> Dataset:
    if (path / "state.json").is_file() or (path / "dataset_dict.json").is_file():
        try:
            found = datasets.load_from_disk(str(path))
        except (OSError, ValueError, KeyError) as error:
            raise ValueError(f"{path}: not a readable folder of datasets: {error}") from error
        if not isinstance(found, datasets.DatasetDict):
            _check_whole(str(path), split)
            return found
        if split not in found:
            raise ValueError(f"{path} has no split {split!r}, only {', '.join(found)}")
        return found[split]
    _check_whole(str(path), split)
    classes = sorted(entry.name for entry in path.iterdir() if entry.is_dir() and not entry.name.startswith("."))
    files = [
        (str(file), name)
        for name in classes
        for file in sorted((path / name).rglob("*"))
        if file.suffix.lower() in IMAGES
    ]
    if not files:
        raise ValueError(
            f"{path}: neither a folder of datasets.save_to_disk nor one with a folder of images for each class"
        )
    return datasets.Dataset.from_dict({"image": [file for file, _ in files], "label": [name for _, name in files]})


def _read_hub(source: str, split: str, name: str | None) -> Dataset:
    try:
        return datasets.load_dataset(source, name, split=split)
    except (OSError, ValueError, RuntimeError) as error:
        text = " ".join(str(error).split())[:300]
        raise OSError(
            f"no data {source!r}: it is no local file or folder, and not to be had as a hub id: {text}"
        ) from error
