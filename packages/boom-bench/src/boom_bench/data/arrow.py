"""Series in Arrow files: folders of `datasets.save_to_disk`, as BOOM is stored, and single stream or IPC files."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from boom_bench.data.series import Series
from nips_common.runtime import require

FIELDS = ("start", "freq", "target")


def arrow_files(path: Path) -> list[Path]:
    """The Arrow files of a folder in their order, or the file itself; empty for a folder without any.

    Raises:
        ValueError: the folder's state.json names a file that is not there, or is no JSON.
    """
    if path.is_file():
        return [path]
    state = path / "state.json"
    if state.is_file():
        try:
            names = [entry["filename"] for entry in json.loads(state.read_text("utf-8"))["_data_files"]]
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{state}: not the state of a saved data set ({type(error).__name__}: {error})") from None
        if missing := [name for name in names if not (path / name).is_file()]:
            raise ValueError(f"{state} names {missing[0]}, which is not in the folder")
        return [path / name for name in names]
    return sorted(path.glob("*.arrow"))


def read_arrow(path: str | Path) -> Iterator[Series]:
    """Series from a folder or file with the row fields ``start``, ``freq``, ``target`` and optionally ``item_id``.

    Args:
        path: a folder of `datasets.save_to_disk`, a folder of ``.arrow`` files, or one file.

    Raises:
        FileNotFoundError: there is no such path or no Arrow file in it.
        ValueError: a damaged file, a missing field, a target that is no series; names file and row.
        ImportError: pyarrow is missing; names the extra.
    """
    place = Path(path)
    pyarrow = require("pyarrow", "boom-bench[arrow]")
    found = arrow_files(place)
    if not found:
        raise FileNotFoundError(f"{place}: no Arrow file there")
    for file in found:
        try:
            yield from _rows(file, place.name if place.is_dir() else file.stem)
        except (pyarrow.ArrowInvalid, OSError) as error:
            raise ValueError(f"{file}: truncated or not an Arrow file ({error})") from error


def _rows(file: Path, name: str) -> Iterator[Series]:
    pyarrow, ipc = require("pyarrow", "boom-bench[arrow]"), require("pyarrow.ipc", "boom-bench[arrow]")
    with pyarrow.memory_map(str(file)) as source:
        try:
            batches: Any = ipc.open_stream(source)
        except pyarrow.ArrowInvalid:
            source.seek(0)
            reader = ipc.open_file(source)
            batches = (reader.get_batch(index) for index in range(reader.num_record_batches))
        number = 0
        for batch in batches:
            for index in range(batch.num_rows):
                row = {field: batch.column(batch.schema.get_field_index(field))[index] for field in batch.schema.names}
                yield _series(row, name, f"{file}, row {number}")
                number += 1


def _series(row: Mapping[str, Any], name: str, where: str) -> Series:
    if absent := [field for field in FIELDS if field not in row]:
        raise ValueError(f"{where}: lacks {', '.join(absent)}; a row holds start, freq, target and optionally item_id")
    item = row["item_id"].as_py() if "item_id" in row else name
    try:
        return Series(str(item), row["start"].as_py(), row["freq"].as_py(), _target(row["target"]))
    except (ValueError, TypeError) as error:
        raise ValueError(f"{where}: {error}") from error


def _target(cell: Any) -> np.ndarray[Any, Any]:
    """The numbers of a list or a list of lists, without a Python object a number."""
    values = cell.values
    if not hasattr(values, "flatten") or "list" not in str(values.type):
        return np.asarray(values.to_numpy(zero_copy_only=False), dtype=np.float64)
    rows = [np.asarray(row.values.to_numpy(zero_copy_only=False), dtype=np.float64) for row in values]
    if len({len(row) for row in rows}) > 1:
        raise ValueError(f"target has variates of different lengths: {sorted({len(row) for row in rows})}")
    return np.stack(rows)


def from_arrow(folder: str | Path) -> Series:
    """The one series of a folder or file; several are read with `read_arrow`.

    Raises:
        FileNotFoundError: there is no such path or no Arrow file in it.
        ValueError: what `read_arrow` refuses; no row, or more than one.
    """
    series = list(read_arrow(folder))
    if len(series) != 1:
        raise ValueError(f"{folder}: expected one series, found {len(series)} (read_arrow reads several)")
    return series[0]
