"""Series from data frames, CSV and Parquet: one row for each series and timestamp, a column for each variate."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd

from boom_bench.data.series import Series
from boom_bench.frequencies import Frequency, parse_frequency
from nips_common.runtime import require

ID_COLUMN = "item_id"
MOST_STEPS = 1000  # of a grid, for each timestamp that is there
_SECONDS = {"D": 86400, "H": 3600, "T": 60, "S": 1}


def from_dataframe(
    df: pd.DataFrame,
    *,
    id_column: str | None = ID_COLUMN,
    timestamp_column: str = "timestamp",
    target_columns: Sequence[str] | None = None,
    freq: str | None = None,
) -> Iterator[Series]:
    """Series of a data frame, in the order in which their ids first appear.

    Rows may come in any order; timestamps that are missing on the grid become missing values.

    Args:
        df: one row for each id and timestamp.
        id_column: names the series; None = all rows are one series, called "series".
        timestamp_column: dates, or what `pandas.to_datetime` reads; with time zones they become UTC.
        target_columns: the variates; None = all other numeric columns.
        freq: of all series; None = of each series the commonest step of time.

    Raises:
        ValueError: an absent or non-numeric column, a timestamp that cannot be read, two rows of one series and
            timestamp, timestamps off the grid or very few on it; names column, series and value.
    """
    if not isinstance(df, pd.DataFrame):
        raise ValueError(f"expected a pandas DataFrame, got {type(df).__name__}")
    keys = [column for column in (id_column, timestamp_column) if column is not None]
    if len(doubled := df.columns[df.columns.duplicated()]):
        raise ValueError(f"two columns are called {doubled[0]!r}")
    targets = list(target_columns) if target_columns is not None else _numeric(df, keys)
    if absent := [column for column in [*keys, *targets] if column not in df.columns]:
        raise ValueError(f"no column {absent[0]!r}; there are {', '.join(map(str, df.columns))}")
    if len(set(targets)) < len(targets):
        raise ValueError(f"target_columns name a column twice: {', '.join(map(str, targets))}")
    if not targets:
        raise ValueError(f"no numeric column beside {', '.join(keys)}; there are {', '.join(map(str, df.columns))}")
    for column in targets:
        if df[column].dtype.kind not in "fiub":
            raise ValueError(f"column {column!r} must hold numbers, got {df[column].dtype}")
    if not len(df):
        raise ValueError("the table has no row")
    times = _times(df[timestamp_column], timestamp_column)
    ids = pd.Series("series", index=df.index) if id_column is None else df[id_column]
    if ids.isna().any():
        raise ValueError(f"column {id_column!r} is empty in row {int(np.flatnonzero(ids.isna())[0])}")
    values = df[targets].to_numpy(dtype=np.float64, na_value=np.nan)
    return _series(pd.Index(times), ids.astype(str), values, freq)


def _numeric(df: pd.DataFrame, keys: Sequence[str]) -> list[str]:
    return [column for column in df.columns if column not in keys and df[column].dtype.kind in "fiub"]


def _times(column: Any, name: str) -> Any:
    if column.dtype.kind in "fiub":
        raise ValueError(
            f"column {name!r} holds numbers ({column.iloc[0]} in row 0), whose unit is unknown: give dates, "
            "as pandas.to_datetime(..., unit=...) makes them"
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # pandas muses about formats it does not know; the check follows
        times = pd.to_datetime(column, errors="coerce", utc=True).dt.tz_localize(None)
    if times.isna().any():
        row = int(np.flatnonzero(times.isna())[0])
        raise ValueError(f"column {name!r}, row {row}: {column.iloc[row]!r} is no timestamp")
    return times


def _series(times: Any, ids: Any, values: np.ndarray[Any, Any], freq: str | None) -> Iterator[Series]:
    codes, names = pd.factorize(ids)
    order = np.argsort(codes, kind="stable")
    for name, rows in zip(names, np.split(order, np.flatnonzero(np.diff(codes[order])) + 1), strict=True):
        try:
            yield _one(str(name), times[rows], values[rows], freq)
        except ValueError as error:
            text = str(error)
            raise ValueError(text if text.startswith(f"{name}: ") else f"{name}: {text}") from None


def _one(name: str, times: Any, values: np.ndarray[Any, Any], freq: str | None) -> Series:
    order = np.argsort(times, kind="stable")
    times, values = times[order], values[order]
    if len(doubled := times[times.duplicated()]):
        raise ValueError(f"{doubled[0]} stands twice")
    found = freq or infer_frequency(times)
    periods = pd.PeriodIndex(times, freq=parse_frequency(found).period)
    steps = np.asarray(periods.asi8 - periods.asi8[0])  # in units of the frequency without its multiple
    multiple = parse_frequency(found).multiple
    length = int(steps[-1]) // multiple + 1
    if length > MOST_STEPS * len(times):  # a wrong date in a file of seconds would fill the memory
        raise ValueError(
            f"{len(times)} timestamps from {times[0]} to {times[-1]} stand on a grid of {length} steps of {found}: "
            "one of them, or the frequency, is wrong"
        )
    off = _off_grid(times, found)
    if (steps % multiple).any() or off.any() or len(np.unique(steps)) < len(steps):
        odd = times[int(np.flatnonzero((steps % multiple != 0) | off | (np.diff(steps, prepend=-1) == 0))[0])]
        raise ValueError(f"{odd} is off the grid of {found} that begins at {times[0]}")
    target = np.full((values.shape[1], length), np.nan)
    target[:, steps // multiple] = values.T
    return Series(name, cast(pd.Period, periods[0]), found, target)


def _off_grid(times: Any, freq: str) -> Any:
    """Where a timestamp is not a whole number of steps behind the first; calendar units are periods, and cannot be."""
    multiple, unit, _ = parse_frequency(freq)
    if unit not in _SECONDS:
        return np.zeros(len(times), bool)
    return (times - times[0]).total_seconds().to_numpy() % (multiple * _SECONDS[unit]) != 0


def infer_frequency(times: Any) -> str:
    """The commonest step between sorted timestamps, as a frequency.

    Raises:
        ValueError: fewer than two timestamps, or a step that is no frequency.
    """
    if len(times) < 2:
        raise ValueError("one timestamp has no frequency: give it (freq=...)")
    step = pd.Timedelta(_commonest(np.diff(times.to_numpy()))).total_seconds()
    if step >= 27.5 * 86400:  # months and longer have no fixed length
        months = int(_commonest(np.diff(pd.PeriodIndex(times, freq="M").asi8)))
        return {1: "M", 3: "Q", 12: "Y"}.get(months, f"{months}M")
    if step == 7 * 86400:
        return f"W-{times[0].day_name()[:3].upper()}"
    for unit, seconds in _SECONDS.items():
        if step >= seconds and step % seconds == 0:
            return Frequency(int(step // seconds), unit).period
    raise ValueError(f"a step of {step} s is no frequency: give it (freq=...)")


def _commonest(values: np.ndarray[Any, Any]) -> Any:
    found, counts = np.unique(values, return_counts=True)
    return found[np.argmax(counts)]


def read_table(path: str | Path, **options: Any) -> Iterator[Series]:
    """Series from a CSV or Parquet file; arguments and errors as for `from_dataframe`.

    A file without the column item_id is one series, named after the file, unless another id column is asked for.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: another ending than .csv, .csv.gz or .parquet, a damaged file, what `from_dataframe` refuses; names
            the file.
        ImportError: Parquet without pyarrow; names the extra.
    """
    place = Path(path)
    if not place.is_file():
        raise FileNotFoundError(f"{place}: no such file")
    if place.name.endswith((".csv", ".csv.gz")):
        read = pd.read_csv
    elif place.suffix == ".parquet":
        require("pyarrow", "boom-bench[arrow]")
        read = pd.read_parquet
    else:
        raise ValueError(f"{place}: expected a .csv, .csv.gz or .parquet file")
    try:
        frame = read(place)
    except (ValueError, OSError, EOFError) as error:
        raise ValueError(f"{place}: cannot be read ({' '.join(str(error).split())})") from error
    column = options.pop("id_column", ID_COLUMN)
    if column == ID_COLUMN and column not in frame.columns:  # another name was asked for, and must be there
        column = None
    try:
        for series in from_dataframe(frame, id_column=column, **options):
            yield series if column else Series(place.name.split(".")[0], series.start, series.freq, series.target)
    except ValueError as error:
        raise ValueError(f"{place}: {error}") from None
