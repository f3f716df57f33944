"""What `describe` tells of a collection."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from boom_bench.data import Series
from boom_bench.description import describe


def test_each_series_is_described_in_a_row(collection: list[Series]) -> None:
    short = Series("short", pd.Period("2024-01-01", "h"), "H", np.arange(40.0))
    quarterly = Series("sales", pd.Period("2020Q1", "Q"), "Q", np.zeros(40))
    table = describe([*collection, short, quarterly])
    assert list(table.index) == ["host-a", "host-b", "host-flat", "short", "sales"]
    assert table["windows_short"].tolist() == [2, 2, 2, 0, 0]
    assert table["windows_medium"].tolist() == [1, 1, 1, 0, 0]
    assert table["degenerate"].tolist() == [False, False, True, None, None]
    assert table["constant"].tolist() == [0, 0, 1, 0, 1]
    assert table.loc["host-a", "missing"] == pytest.approx(10 / 1200)
    assert table["zeros"].tolist() == [0, 0, 0, 1 / 40, 1]
    assert table["seasonality"].tolist() == [24, 24, 24, 24, 4]


def test_a_horizon_of_ones_own_counts(collection: list[Series]) -> None:
    quarterly = Series("sales", pd.Period("2020Q1", "Q"), "Q", np.arange(40.0))
    assert describe([quarterly], horizon=4)["windows_short"].tolist() == [1]
    assert describe([]).empty
