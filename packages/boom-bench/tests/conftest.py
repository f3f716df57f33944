"""Small real inputs for all tests: series with seasons, gaps and flat parts; folders laid out as BOOM's are."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from boom_bench.data import Series

# Where the tests' launcher was started by `uv run`, Ray would start its workers by that launcher's command line.
os.environ.setdefault("RAY_ENABLE_UV_RUN_RUNTIME_ENV", "0")


def wave(variates: int, length: int, period: int, seed: int = 0) -> np.ndarray[Any, Any]:
    """(V, T): a season, noise and a level for each variate."""
    draw = np.random.default_rng(seed)
    steps = np.arange(length)
    rows = [10 * (k + 1) + 3 * np.sin(2 * np.pi * (steps + 5 * k) / period) for k in range(variates)]
    return np.stack(rows) + draw.normal(scale=0.5, size=(variates, length))


@pytest.fixture(scope="session")
def hourly() -> Series:
    """Two variates of 600 hours, with a gap."""
    target = wave(2, 600, 24)
    target[0, 100:110] = np.nan
    return Series("host-a", pd.Period("2024-01-01", "h"), "H", target)


@pytest.fixture(scope="session")
def collection(hourly: Series) -> list[Series]:
    """Three hourly series: two alive and one flat."""
    flat = Series("host-flat", pd.Period("2024-01-01", "h"), "H", np.full((1, 600), 3.0))
    return [hourly, Series("host-b", pd.Period("2024-01-01", "h"), "H", wave(1, 560, 24, seed=1)), flat]


def save_series(folder: Path, item_id: str, freq: str, target: np.ndarray[Any, Any], *, flat: bool = False) -> Path:
    """A folder as `datasets.save_to_disk` leaves it, with one row."""
    import pyarrow as pa

    folder.mkdir(parents=True)
    row = {"item_id": item_id, "start": pd.Timestamp("2024-01-01").to_pydatetime(), "freq": freq}
    row["target"] = target.astype(np.float32).tolist()
    if flat:
        row["target"] = row["target"][0]
    table = pa.Table.from_pylist([row])
    with (
        pa.OSFile(str(folder / "data-00000-of-00001.arrow"), "wb") as sink,
        pa.ipc.new_stream(sink, table.schema) as to,
    ):
        to.write_table(table)
    (folder / "state.json").write_text(json.dumps({"_data_files": [{"filename": "data-00000-of-00001.arrow"}]}))
    (folder / "dataset_info.json").write_text("{}")
    return folder


@pytest.fixture(scope="session")
def boom_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four series laid out and named as BOOM's: two of BOOMLET, one of them of more variates, one daily."""
    root = tmp_path_factory.mktemp("boom")
    save_series(root / "ds-2187-H", "ds-2187-H", "H", wave(2, 1700, 24))
    save_series(root / "ds-1975-H", "another-name", "h", wave(1, 1700, 24, seed=3))
    save_series(root / "ds-9-5T", "ds-9-5T", "5T", wave(1, 3000, 288, seed=4), flat=True)
    save_series(root / "ds-1901-D", "ds-1901-D", "D", wave(3, 200, 7, seed=5))
    (root / "not-a-series").mkdir()
    return root


@pytest.fixture(scope="session")
def make_results() -> Callable[..., pd.DataFrame]:
    """Results of models on configurations from a dict of model to rows of (MASE, CRPS, MAE)."""
    from boom_bench.config import CRPS, MAE, MASE

    def make(models: dict[str, list[tuple[float, float, float]]], names: list[str] | None = None) -> pd.DataFrame:
        rows = [
            (model, (names or [f"s{index}/Short/short" for index in range(len(values))])[index], *scores)
            for model, values in models.items()
            for index, scores in enumerate(values)
        ]
        return pd.DataFrame(rows, columns=["model", "dataset", MASE, CRPS, MAE])

    return make
