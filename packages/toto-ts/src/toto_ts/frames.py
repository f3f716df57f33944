"""Data frames in: series by id, their stamps checked and continued, known futures looked up."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from nips_common.runtime import require

if TYPE_CHECKING:
    import pandas as pd


@dataclasses.dataclass(frozen=True)
class Columns:
    """Which column of a data frame is what.

    Args:
        item_id: whose row it is; None if the frame is one series.
        timestamp: when.
        targets: what to forecast.
        exogenous: what is known in the future.

    Raises:
        ValueError: no target, or one column in two roles.
    """

    item_id: str | None
    timestamp: str
    targets: tuple[str, ...]
    exogenous: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.targets:
            raise ValueError("target_columns must name at least one column")
        roles = [*self.index, *self.numbers]
        if twice := sorted({str(name) for name in roles if roles.count(name) > 1}):
            raise ValueError(f"a column can have one role only, got {', '.join(twice)} twice")

    @property
    def index(self) -> tuple[str, ...]:
        """Columns that say whose and when."""
        return (self.timestamp,) if self.item_id is None else (self.item_id, self.timestamp)

    @property
    def numbers(self) -> tuple[str, ...]:
        """Columns of numbers, targets first."""
        return (*self.targets, *self.exogenous)


class Item(NamedTuple):
    """One series.

    Attributes:
        item_id: its id.
        series: `(targets + exogenous, time)` values, NaN = missing.
        stamps: index of the `horizon` steps to come.
        future: `(exogenous, horizon)`, or None.
    """

    item_id: Any
    series: np.ndarray[Any, np.dtype[np.float64]]
    stamps: pd.Index[Any]
    future: np.ndarray[Any, np.dtype[np.float64]] | None


def as_names(value: Sequence[str] | str) -> tuple[str, ...]:
    """Column names as a tuple; one bare name is one column."""
    return (value,) if isinstance(value, str) else tuple(value)


def read_items(
    df: pd.DataFrame, columns: Columns, horizon: int, future_df: pd.DataFrame | None, freq: str | None
) -> list[Item]:
    """The series of a frame, in the order in which their ids appear.

    Raises:
        ImportError: pandas is not installed.
        ValueError: columns that are missing or hold no numbers, stamps that are not a regular, ordered clock, or
            a known future that does not cover every step.
    """
    pandas = require("pandas", "toto-ts[pandas]")
    _check_frame(pandas, df, (*columns.index, *columns.numbers), columns.numbers, "df")
    if len(df) == 0:
        raise ValueError("df must have at least one row")
    if bool(columns.exogenous) != (future_df is not None):
        raise ValueError("future_df and exogenous_columns belong together: give both or neither")
    futures: dict[Any, Any] = {}
    if future_df is not None:
        _check_frame(pandas, future_df, (*columns.index, *columns.exogenous), columns.exogenous, "future_df")
        futures = dict(_by_id(future_df, columns))
    items = []
    for item_id, rows in _by_id(df, columns):
        where = "the frame" if columns.item_id is None else f"item {item_id!r}"
        clock = read_clock(pandas, rows[columns.timestamp], where)
        stamps = continue_clock(pandas, clock, horizon, freq, where)
        future = None
        if future_df is not None:
            future = _future(pandas, futures.get(item_id, future_df.iloc[:0]), columns, stamps, where)
        items.append(Item(item_id, _numbers(rows, columns.numbers), stamps, future))
    return items


def _check_frame(pandas: Any, df: Any, needed: Sequence[str], numeric: Sequence[str], what: str) -> None:
    if not isinstance(df, pandas.DataFrame):
        raise ValueError(f"{what} must be a pandas DataFrame, got {type(df).__name__}")
    if missing := [name for name in needed if name not in df.columns]:
        raise ValueError(f"{what} lacks the columns {missing}; it has {[str(name) for name in df.columns]}")
    if twice := [name for name in needed if list(df.columns).count(name) > 1]:
        raise ValueError(f"{what} has several columns of the name {twice[0]!r}")
    for name in numeric:
        kind = df[name].dtype
        if not pandas.api.types.is_numeric_dtype(kind) or pandas.api.types.is_bool_dtype(kind):
            raise ValueError(f"column {name!r} of {what} must hold numbers, got {kind}")


def _by_id(df: Any, columns: Columns) -> Iterator[tuple[Any, Any]]:
    if columns.item_id is None:
        yield None, df
        return
    if df[columns.item_id].isna().any():
        raise ValueError(f"column {columns.item_id!r} has rows without an id")
    yield from df.groupby(columns.item_id, sort=False, observed=True)


def _numbers(rows: Any, names: Sequence[str]) -> np.ndarray[Any, np.dtype[np.float64]]:
    return np.stack([rows[name].to_numpy(dtype=np.float64, na_value=np.nan) for name in names])


def read_clock(pandas: Any, stamps: Any, where: str) -> Any:
    """The stamps of one series as an index, strictly increasing.

    Raises:
        ValueError: missing, unreadable, repeated or unordered stamps; the first one is named.
    """
    if stamps.isna().any():
        raise ValueError(f"{where} has {int(stamps.isna().sum())} rows without a timestamp")
    if pandas.api.types.is_numeric_dtype(stamps.dtype):
        raise ValueError(
            f"timestamps of {where} are numbers ({stamps.dtype}): turn them into datetimes, "
            "pandas.to_datetime(..., unit='s')"
        )
    if isinstance(stamps.dtype, pandas.PeriodDtype):
        clock = pandas.PeriodIndex(stamps)
    else:
        try:
            # only ISO 8601 means the same everywhere: 01/02/2024 is January or February
            clock = pandas.DatetimeIndex(pandas.to_datetime(stamps, format="ISO8601"))
        except (ValueError, TypeError, OverflowError) as error:
            raise ValueError(
                f"timestamps of {where} cannot be read as datetimes (ISO 8601): {_one_line(error)}"
            ) from error
    _check_order(clock, where)
    return clock


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:200]


def _check_order(clock: Any, where: str) -> None:
    if clock.is_monotonic_increasing and clock.is_unique:
        return
    for row, (before, stamp) in enumerate(pairwise(clock), start=1):
        if stamp == before:
            raise ValueError(
                f"timestamps of {where} repeat: {stamp} stands in rows {row - 1} and {row}; one row a stamp"
            )
        if stamp < before:
            raise ValueError(
                f"timestamps of {where} are not in order: row {row} is {stamp}, after {before}; sort by them"
            )


def continue_clock(pandas: Any, clock: Any, horizon: int, freq: str | None, where: str) -> Any:
    """The next `horizon` stamps of a regular clock.

    Raises:
        ValueError: gaps or irregular steps, a frequency that cannot be told or does not fit, dates out of range.
    """
    if isinstance(clock, pandas.PeriodIndex):
        _check_grid(clock, pandas.period_range(clock[0], periods=len(clock), freq=clock.freq), where, clock.freqstr)
        return pandas.period_range(clock[-1] + 1, periods=horizon, freq=clock.freq)
    step = _step(pandas, clock, freq, where)
    try:
        grid = pandas.date_range(clock[0], periods=len(clock) + horizon, freq=step)
    except (ValueError, OverflowError) as error:  # out of bounds is a ValueError
        raise ValueError(
            f"horizon={horizon} steps of {step} after {clock[-1]} leave the dates that pandas can hold: "
            f"{_one_line(error)}"
        ) from error
    _check_grid(clock, grid[: len(clock)], where, step)
    return grid[len(clock) :]


def _step(pandas: Any, clock: Any, freq: str | None, where: str) -> Any:
    """The frequency as given, as inferred, or the only difference there is."""
    if freq is not None:
        try:
            return pandas.tseries.frequencies.to_offset(freq)
        except ValueError as error:
            raise ValueError(f"freq must be a pandas frequency such as 'h' or '5min', got {freq!r}") from error
    if len(clock) < 2:
        raise ValueError(f"{where} has one row, from which no frequency can be told: give freq")
    inferred = pandas.infer_freq(clock) if len(clock) > 2 else None
    if inferred is not None:
        return pandas.tseries.frequencies.to_offset(inferred)
    steps = (clock[1:] - clock[:-1]).to_series()
    return steps.mode().iloc[0]


def _check_grid(clock: Any, grid: Any, where: str, step: Any) -> None:
    wrong = np.flatnonzero(np.asarray(clock != grid))
    if len(wrong) == 0:
        return
    row = int(wrong[0])
    if row == 0:
        raise ValueError(
            f"timestamps of {where} do not fit the frequency {step}: the first is {clock[0]}, not {grid[0]}"
        )
    hint = (
        "insert rows with NaN for missing stamps (DataFrame.asfreq)"
        if clock[row] > grid[row]
        else "resample to one step"
    )
    raise ValueError(
        f"timestamps of {where} are not regular: {grid[row]} should follow {clock[row - 1]} (step {step}), "
        f"row {row} is {clock[row]}; {hint}"
    )


def _future(pandas: Any, rows: Any, columns: Columns, stamps: Any, where: str) -> np.ndarray[Any, np.dtype[np.float64]]:
    """`(exogenous, horizon)` values at exactly the future stamps."""
    clock = read_clock(pandas, rows[columns.timestamp], f"{where} in future_df") if len(rows) else stamps[:0]
    place = clock.get_indexer(stamps)
    if (place < 0).any():
        first = stamps[int(np.flatnonzero(place < 0)[0])]
        raise ValueError(
            f"future_df lacks {int((place < 0).sum())} of {len(stamps)} stamps of {where}, the first is {first}: "
            "exogenous columns must be known at every step of the horizon"
        )
    values = _numbers(rows, columns.exogenous)[:, place]
    if np.isnan(values).any():
        variate, step = (int(i) for i in np.argwhere(np.isnan(values))[0])
        raise ValueError(f"future_df of {where} is NaN in column {columns.exogenous[variate]!r} at {stamps[step]}")
    return values
