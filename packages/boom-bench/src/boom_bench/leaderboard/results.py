"""Result files: <folder>/<model>/all_results.csv in the official columns, read strictly."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from boom_bench.config import CRPS, MAE, MASE
from boom_bench.leaderboard.configurations import parse_configuration

FILE = "all_results.csv"
REQUIRED = ("dataset", MASE, CRPS, MAE)


def read_results(path: str | Path, model: str) -> pd.DataFrame:
    """One model's results.

    Args:
        path: a CSV file with a row for each configuration; further columns are kept.
        model: goes into the column ``model``.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: a missing column, no row, a line with another number of fields, a last line without its end (a
            truncated file), a name that is no configuration or stands twice, a metric that is no number; names file and
            line.
    """
    file = Path(path)
    if not file.is_file():
        raise FileNotFoundError(f"{file}: no such file")
    try:
        text = file.read_text("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{file}: not UTF-8 text ({error})") from None
    header, lines = _read_lines(text, file)
    if absent := [name for name in REQUIRED if name not in header]:
        raise ValueError(f"{file}, line 1: lacks the column {absent[0]!r}; there are {', '.join(header)}")
    _check_names(lines, header.index("dataset"), file)
    if not lines:  # a run that has not finished a configuration: without this it would be missing from every table
        raise ValueError(f"{file}: holds no result yet")
    frame = pd.DataFrame({"model": [model] * len(lines)})
    for position, name in enumerate(header):
        if name != "model":
            frame[name] = _column(name, position, lines, file)
    return frame


def _read_lines(text: str, file: Path) -> tuple[list[str], list[tuple[int, list[str]]]]:
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    lines: list[tuple[int, list[str]]] = []
    try:
        header = next(reader, [])
        for row in reader:
            if len(row) != len(header):
                raise ValueError(
                    f"{file}, line {reader.line_num}: {len(row)} fields where the header has {len(header)} (truncated?)"
                )
            lines.append((reader.line_num, row))
    except csv.Error as error:
        raise ValueError(f"{file}, line {reader.line_num}: {error} (truncated?)") from None
    if not header:
        raise ValueError(f"{file}: is empty")
    if not text.endswith("\n"):
        raise ValueError(f"{file}, line {reader.line_num}: the last line has no end, so the file is truncated")
    return header, lines


def _check_names(lines: Sequence[tuple[int, list[str]]], position: int, file: Path) -> None:
    seen: dict[str, int] = {}
    for number, row in lines:
        name = row[position]
        try:
            parse_configuration(name)
        except ValueError as error:
            raise ValueError(f"{file}, line {number}: {error}") from None
        if name in seen:
            raise ValueError(f"{file}, line {number}: {name!r} stands in line {seen[name]} already")
        seen[name] = number


def _column(name: str, position: int, lines: Sequence[tuple[int, list[str]]], file: Path) -> Any:
    cells = [row[position] for _, row in lines]
    if not name.startswith("eval_metrics/") and name != "num_variates":
        return cells
    return np.fromiter(_numbers(name, cells, lines, file), np.float64, len(cells))


def _numbers(name: str, cells: Sequence[str], lines: Sequence[tuple[int, list[str]]], file: Path) -> Iterator[float]:
    for cell, (number, _) in zip(cells, lines, strict=True):
        try:
            yield float(cell or "nan")
        except ValueError:
            raise ValueError(f"{file}, line {number}: {name} must be a number, got {cell!r}") from None


def load_results(folder: str | Path, models: Sequence[str] | None = None) -> pd.DataFrame:
    """The results of several models, one below the other.

    Args:
        folder: holds ``<model>/all_results.csv``; a model is called by its folder's name.
        models: which, and in which order; None = all, by name.

    Raises:
        FileNotFoundError: no such folder or file; names it.
        ValueError: a file that cannot be read; names file and line.
    """
    place = Path(folder)
    if not place.is_dir():
        raise FileNotFoundError(f"{place}: no such folder")
    found = sorted(path.parent.name for path in place.glob(f"*/{FILE}"))
    if not found:
        raise FileNotFoundError(f"{place}: holds no <model>/{FILE}")
    if models is not None and (absent := [model for model in models if model not in found]):
        raise FileNotFoundError(f"{place / absent[0] / FILE}: no such file; there are {', '.join(found)}")
    chosen = found if models is None else list(models)
    return pd.concat([read_results(place / model / FILE, model) for model in chosen], ignore_index=True)
