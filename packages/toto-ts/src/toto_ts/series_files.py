"""Series on disk: CSV and Parquet by columns; Parquet and Arrow data sets with a series a row (start, freq, target)."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from nips_common.runtime import require
from toto_ts.frames import Columns, read_items
from toto_ts.windows import SeriesInput

TABLES = (".csv", ".tsv", ".parquet")


@dataclasses.dataclass(frozen=True)
class SeriesColumns:
    """Where the series of a file are; without targets a file must have a row a series.

    Args:
        item_id: column of ids; None for one series a file.
        timestamp: column of stamps.
        targets: columns to forecast.
        exogenous: columns whose future is known.
        freq: frequency of the stamps; None infers it.
    """

    item_id: str | None = None
    timestamp: str = "timestamp"
    targets: tuple[str, ...] = ()
    exogenous: tuple[str, ...] = ()
    freq: str | None = None


def read_table(path: str | Path) -> Any:
    """A CSV, TSV or Parquet file as a data frame.

    Raises:
        FileNotFoundError: no such file.
        ValueError: another kind of file, or one that cannot be read.
    """
    pandas, path = require("pandas", "toto-ts[pandas]"), Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file")
    if path.suffix.lower() not in TABLES:
        raise ValueError(f"{path}: a table ends in {', '.join(TABLES)}")
    try:
        if path.suffix.lower() == ".parquet":
            require("pyarrow", "toto-ts[train]")
            return pandas.read_parquet(path)
        return pandas.read_csv(path, sep="\t" if path.suffix.lower() == ".tsv" else ",")
    except (ValueError, OSError) as error:  # pandas' and pyarrow's own errors are ValueErrors
        raise ValueError(f"{path}: cannot be read: {' '.join(str(error).split())[:200]}") from error


def read_series_files(paths: Sequence[str | Path], columns: SeriesColumns) -> list[SeriesInput]:
    """All series of some files or folders.

    Args:
        paths: tables, or folders that `datasets` saved.
        columns: where the series are.

    Raises:
        FileNotFoundError, ValueError, ImportError: what cannot be read, by its path.
    """
    series: list[SeriesInput] = []
    for path in paths:
        place = Path(path)
        if place.is_dir() or place.suffix.lower() == ".arrow":
            rows = _arrow_rows(place)
        elif columns.targets:
            series += _by_columns(read_table(place), columns, place)
            continue
        else:
            rows = read_table(place).to_dict("records")
        series += [_row(row, i, place) for i, row in enumerate(rows)]
    return series


def _by_columns(df: Any, columns: SeriesColumns, path: Path) -> list[SeriesInput]:
    roles = Columns(columns.item_id, columns.timestamp, columns.targets)
    wanted = dataclasses.replace(roles, targets=(*columns.targets, *columns.exogenous))
    try:
        items = read_items(df, wanted, 1, None, columns.freq)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    number = len(columns.targets)
    return [{"target": item.series[:number], "exogenous": item.series[number:]} for item in items]


def _arrow_rows(path: Path) -> list[dict[str, Any]]:
    datasets = require("datasets", "toto-ts[train]")
    try:
        found = datasets.Dataset.from_file(str(path)) if path.is_file() else datasets.load_from_disk(str(path))
    except (OSError, ValueError, KeyError) as error:
        raise ValueError(f"{path}: not a data set that `datasets` saved: {' '.join(str(error).split())}") from error
    if isinstance(found, datasets.DatasetDict):
        if "train" not in found:
            raise ValueError(f"{path} has no split 'train', only {', '.join(found)}")
        found = found["train"]
    return [dict(row) for row in found]


def _row(row: dict[str, Any], number: int, path: Path) -> SeriesInput:
    """One series of a file with a row a series."""
    if "target" not in row:
        raise ValueError(
            f"{path} has no column 'target' with a series a row, only {sorted(map(str, row))}: name --target_columns"
        )
    try:
        parts = {"target": _matrix(row["target"])}
        if row.get("exogenous") is not None:
            parts["exogenous"] = _matrix(row["exogenous"])
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path}, row {number}: not a series of numbers: {error}") from error
    return parts


def _matrix(values: Any) -> np.ndarray[Any, np.dtype[np.float32]]:
    if np.ndim(values) == 1 and len(values) and np.ndim(values[0]) == 1:  # Parquet gives an array of arrays
        return np.stack([np.asarray(row, dtype=np.float32) for row in values])
    return np.atleast_2d(np.asarray(values, dtype=np.float32))
