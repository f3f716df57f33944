"""Reading series: BOOM's folders, Arrow, CSV, Parquet, data frames; and the shipped facts."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from boom_bench.data import (
    Series,
    boomlet_series,
    from_arrow,
    from_dataframe,
    load_boom,
    load_boomlet,
    low_variance_series,
    official_results,
    open_data,
    published_models,
    read_arrow,
    read_table,
    series_properties,
    univariate,
)

FRAME = pd.DataFrame(
    {
        "item_id": ["b", "a", "b", "a", "a"],
        "timestamp": [
            "2024-01-01 01:00",
            "2024-01-01 00:00",
            "2024-01-01 00:00",
            "2024-01-01 03:00",
            "2024-01-01 01:00",
        ],
        "cpu": [2.0, 1.0, 1.0, 3.0, 2.0],
        "name": ["x"] * 5,
        "errors": [0, 1, 2, 3, 4],
    }
)


def test_a_boom_folder_gives_its_series_by_number_under_the_folder_names(boom_folder: Path) -> None:
    series = list(load_boom(boom_folder))
    assert [one.item_id for one in series] == ["ds-9-5T", "ds-1901-D", "ds-1975-H", "ds-2187-H"]
    assert [one.target.shape for one in series] == [(1, 3000), (3, 200), (1, 1700), (2, 1700)]
    assert [(one.freq, one.start.freqstr) for one in series][:2] == [("5T", "5min"), ("D", "D")]


def test_the_folder_can_come_from_the_environment(boom_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BOOM", str(boom_folder))
    assert len(list(load_boom())) == 4
    monkeypatch.delenv("BOOM")
    with pytest.raises(FileNotFoundError, match="environment variable BOOM"):
        load_boom()


def test_boomlet_is_what_there_is_of_it_and_the_rest_is_told(
    boom_folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "boom_bench"):
        assert [one.item_id for one in load_boomlet(boom_folder)] == ["ds-1975-H", "ds-2187-H"]
    assert "lacks 30 of BOOMLET's 32 series" in caplog.text


def test_one_arrow_folder_is_one_series(boom_folder: Path) -> None:
    series = from_arrow(boom_folder / "ds-1975-H")
    assert (series.item_id, series.freq, str(series.start)) == ("another-name", "h", "2024-01-01 00:00")
    assert series.target.dtype == np.float64


def test_arrow_written_by_datasets_reads_the_same(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    rows = {"item_id": ["a", "b"], "start": [pd.Timestamp("2024-01-01")] * 2, "freq": ["H", "H"]}
    data = datasets.Dataset.from_dict({**rows, "target": [[[1.0, 2.0], [3.0, 4.0]], [[5.0, 6.0, 7.0]]]})
    data.save_to_disk(str(tmp_path / "saved"))
    first, second = read_arrow(tmp_path / "saved")
    np.testing.assert_array_equal(first.target, [[1, 2], [3, 4]])
    np.testing.assert_array_equal(second.target, [[5, 6, 7]])
    with pytest.raises(ValueError, match="expected one series, found 2"):
        from_arrow(tmp_path / "saved")


def test_an_ipc_file_reads_too(tmp_path: Path) -> None:
    import pyarrow as pa

    table = pa.Table.from_pylist([{"start": "2024-01-01", "freq": "D", "target": [1.0, None, 3.0]}])
    with pa.OSFile(str(tmp_path / "daily.arrow"), "wb") as sink, pa.ipc.new_file(sink, table.schema) as to:
        to.write_table(table)
    series = from_arrow(tmp_path / "daily.arrow")
    assert series.item_id == "daily"
    np.testing.assert_array_equal(series.target, [[1, np.nan, 3]])


def test_a_truncated_or_incomplete_arrow_file_is_named(boom_folder: Path, tmp_path: Path) -> None:
    import pyarrow as pa

    whole = (boom_folder / "ds-9-5T" / "data-00000-of-00001.arrow").read_bytes()
    file = tmp_path / "cut.arrow"
    file.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match=r"cut\.arrow: truncated or not an Arrow file"):
        from_arrow(file)
    table = pa.Table.from_pylist([{"start": "2024-01-01", "target": [1.0]}])
    with pa.OSFile(str(file), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as to:
        to.write_table(table)
    with pytest.raises(ValueError, match=r"cut\.arrow, row 0: lacks freq"):
        from_arrow(file)


def test_a_data_frame_gives_series_in_order_of_appearance_with_gaps_as_missing() -> None:
    b, a = from_dataframe(FRAME)
    assert [(one.item_id, one.freq, str(one.start)) for one in (b, a)] == [
        ("b", "h", "2024-01-01 00:00"),
        ("a", "h", "2024-01-01 00:00"),
    ]
    np.testing.assert_array_equal(b.target, [[1, 2], [2, 0]])
    np.testing.assert_array_equal(a.target, [[1, 2, np.nan, 3], [1, 4, np.nan, 3]])


def test_nullable_numbers_are_missing_numbers() -> None:
    b, a = from_dataframe(FRAME.assign(cpu=pd.array([2, None, 1, 3, 2], dtype="Int64")))
    np.testing.assert_array_equal([b.target[0], a.target[0, :2]], [[1, 2], [np.nan, 2]])


def test_target_columns_can_be_chosen_and_an_id_left_out() -> None:
    rows = FRAME[FRAME.item_id == "a"]
    (series,) = from_dataframe(rows, id_column=None, target_columns=["errors"])
    assert (series.item_id, series.target.tolist()[0][:2]) == ("series", [1, 4])


@pytest.mark.parametrize(
    ("step", "freq"),
    [
        ("10s", "10s"),
        ("5min", "5min"),
        ("1h", "h"),
        ("1D", "D"),
        ("7D", "W-MON"),
        ("MS", "M"),
        ("YS", "Y"),
        ("QE", "Q"),
        ("2MS", "2M"),
    ],
)
def test_the_frequency_is_the_commonest_step(step: str, freq: str) -> None:
    times = pd.date_range("2024-01-01", periods=6, freq=step)
    (series,) = from_dataframe(pd.DataFrame({"item_id": "x", "timestamp": times, "value": range(6)}))
    assert series.freq == freq
    np.testing.assert_array_equal(series.target, [[0, 1, 2, 3, 4, 5]])


def test_time_zones_become_utc() -> None:
    times = pd.date_range("2024-03-31", periods=4, freq="h", tz="Europe/Berlin")
    (series,) = from_dataframe(pd.DataFrame({"item_id": "x", "timestamp": times, "value": range(4)}))
    assert str(series.start) == "2024-03-30 23:00"
    assert series.length == 4


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"timestamp": ["2024-01-01 00:00"] * 5}, ["b: 2024-01-01 00:00:00 stands twice"]),
        ({"timestamp": ["soon", *FRAME.timestamp[1:]]}, ["'timestamp', row 0", "'soon'"]),
        ({"timestamp": [1704067200, 1704070800, 1704067200, 1704070800, 1704067200]}, ["holds numbers", "1704067200"]),
        ({"item_id": ["b", None, "b", "a", "a"]}, ["'item_id'", "row 1"]),
        ({"timestamp": ["2024-01-01 01:00", "2024-01-01 00:20", *FRAME.timestamp[2:]]}, ["a:", "off the grid"]),
    ],
)
def test_rows_that_are_no_series_are_named(change: dict[str, list[Any]], words: list[str]) -> None:
    with pytest.raises(ValueError) as caught:
        list(from_dataframe(FRAME.assign(**change), freq="h"))
    assert all(word in str(caught.value) for word in words), str(caught.value)


def test_a_wrong_date_among_seconds_is_named_and_fills_no_memory() -> None:
    times = ["1970-01-01", *pd.date_range("2024-01-01", periods=5, freq="s").astype(str)]
    frame = pd.DataFrame({"item_id": "a", "timestamp": pd.to_datetime(times, format="ISO8601"), "cpu": 1.0})
    with pytest.raises(ValueError, match=r"^a: 6 timestamps from 1970-01-01 .* grid of 1704067205 steps of s"):
        list(from_dataframe(frame))


def test_an_id_column_that_was_asked_for_must_be_there(tmp_path: Path) -> None:
    FRAME.to_csv(tmp_path / "m.csv", index=False)
    with pytest.raises(ValueError, match=r"m\.csv: no column 'hots'; there are item_id"):
        list(read_table(tmp_path / "m.csv", id_column="hots"))


def test_columns_that_are_not_there_or_hold_no_numbers_are_named() -> None:
    with pytest.raises(ValueError, match="no column 'when'; there are item_id, timestamp"):
        from_dataframe(FRAME, timestamp_column="when")
    with pytest.raises(ValueError, match="column 'name' must hold numbers"):
        from_dataframe(FRAME, target_columns=["cpu", "name"])
    with pytest.raises(ValueError, match="no numeric column beside"):
        from_dataframe(FRAME[["item_id", "timestamp", "name"]])
    with pytest.raises(ValueError, match="two columns are called 'cpu'"):
        from_dataframe(pd.concat([FRAME, FRAME[["cpu"]]], axis=1))
    with pytest.raises(ValueError, match="name a column twice: cpu, cpu"):
        from_dataframe(FRAME, target_columns=["cpu", "cpu"])


@pytest.mark.parametrize("ending", [".csv", ".csv.gz", ".parquet"])
def test_csv_and_parquet_give_the_same_series(tmp_path: Path, ending: str) -> None:
    file = tmp_path / f"metrics{ending}"
    FRAME.to_parquet(file) if ending == ".parquet" else FRAME.to_csv(file, index=False)
    for found, expected in zip(read_table(file), from_dataframe(FRAME), strict=True):
        assert found.item_id == expected.item_id
        np.testing.assert_array_equal(found.target, expected.target)


def test_a_table_without_ids_is_one_series_named_after_its_file(tmp_path: Path) -> None:
    FRAME[FRAME.item_id == "a"].drop(columns="item_id").to_csv(tmp_path / "web.csv", index=False)
    assert [one.item_id for one in read_table(tmp_path / "web.csv")] == ["web"]


def test_a_damaged_table_is_named(tmp_path: Path) -> None:
    file = tmp_path / "metrics.parquet"
    FRAME.to_parquet(file)
    file.write_bytes(file.read_bytes()[:-30])
    with pytest.raises(ValueError, match=r"metrics\.parquet: cannot be read"):
        list(read_table(file))


def test_one_door_opens_every_kind(boom_folder: Path, tmp_path: Path) -> None:
    assert len(list(open_data(boom_folder))) == 4
    assert [one.item_id for one in open_data(boom_folder / "ds-9-5T")] == ["ds-9-5T"]
    for name in ("one.csv", "two.csv"):
        FRAME.to_csv(tmp_path / name, index=False)
    assert [one.item_id for one in open_data(tmp_path)] == ["b", "a", "b", "a"]
    assert len(list(open_data(tmp_path / "one.csv", target_columns=["cpu"]))) == 2
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileNotFoundError, match="accepted are a folder of BOOM"):
        open_data(tmp_path / "empty")


def test_a_data_set_of_the_hub_is_read_from_its_local_copy(
    boom_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    constants = pytest.importorskip("huggingface_hub.constants")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    copy = tmp_path / "datasets--Datadog--BOOM"
    (copy / "refs").mkdir(parents=True)
    (copy / "refs" / "main").write_text("0123abcd")
    shutil.copytree(boom_folder, copy / "snapshots" / "0123abcd")
    assert len(list(open_data("hf:Datadog/BOOM"))) == 4
    assert len(list(open_data("hf:Datadog/BOOM", boomlet=True))) == 2
    with pytest.raises(OSError):
        open_data("hf:Datadog/absent")
    with pytest.raises(ValueError, match="hf:a/b/c"):
        open_data("hf:a/b/c")


def test_variates_become_series_of_their_own(hourly: Series) -> None:
    assert [one.item_id for one in univariate(hourly)] == ["host-a_dim0", "host-a_dim1"]
    np.testing.assert_array_equal(univariate(hourly)[1].target, hourly.target[1:])


def test_a_series_refuses_what_it_cannot_be() -> None:
    start = pd.Period("2024-01-01", "h")
    assert Series("x", start, "h", np.arange(3)).target.shape == (1, 3)
    for target, words in (
        (np.zeros((1, 2, 3)), "(variates, time)"),
        (np.zeros(0), "(1, 0)"),
        (np.array(["a"]), "numbers"),
    ):
        with pytest.raises(ValueError) as caught:
            Series("x", start, "h", target)
        assert words in str(caught.value)
    with pytest.raises(ValueError, match="frequency must be a multiple of"):
        Series("x", start, "fortnight", np.zeros(3))
    for name in ("", "two\nlines", "two\rlines", "end\n"):
        with pytest.raises(ValueError, match="item_id must be a string of one line"):
            Series(name, start, "h", np.zeros(3))


def test_the_shipped_facts_are_the_published_ones() -> None:
    properties = series_properties()
    assert (len(properties), len(boomlet_series()), len(low_variance_series())) == (2807, 32, 80)
    assert sum(found.num_variates for found in properties.values()) == 32917
    assert sum(properties[name].num_variates for name in boomlet_series()) == 1627
    assert {properties[name].term for name in boomlet_series()} == {"long"}
    counts = pd.Series([found.type for found in properties.values()]).value_counts().to_dict()
    assert counts == {"gauge": 1296, "rate": 954, "distribution": 466, "count": 91}
    results = official_results()
    assert (len(results), results["model"].nunique(), results["dataset"].nunique()) == (170499, 23, 7413)
    assert list(results["model"].unique()) == published_models()
    assert str(results.dtypes.iloc[2]) == "float32"
