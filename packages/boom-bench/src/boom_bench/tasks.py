"""Configurations of the benchmark: horizon, test windows and season of a series in a term."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from boom_bench.config import PROTOCOL, TERMS, check_whole
from boom_bench.data.reference import series_properties
from boom_bench.data.series import Series
from boom_bench.frequencies import base_horizon, frequency_class, season_length

log = logging.getLogger(__name__)
Array = NDArray[Any]
MULTIPLIERS = dict(zip(TERMS, (1, 10, 15), strict=True))


@dataclass(frozen=True)
class Task:
    """One configuration.

    Args:
        series: the series; None where `split` is given a bare array.
        term: short, medium or long.
        horizon: H steps of a window.
        windows: how many, at the end of the series.
        seasonality: m of the seasonal error and of the seasonal naive forecast.

    Raises:
        ValueError: an unknown term, or a number below 1.
    """

    series: Series | None
    term: str
    horizon: int
    windows: int
    seasonality: int

    def __post_init__(self) -> None:
        check_term(self.term)
        for name in ("horizon", "windows", "seasonality"):
            check_whole(name, getattr(self, name))

    @property
    def name(self) -> str:
        """``<item_id>/<Short|Medium|Long>/<term>``, as the published results call it."""
        if self.series is None:
            raise ValueError("a task without a series has no name")
        return f"{self.series.item_id}/{frequency_class(self.series.freq)}/{self.term}"


@dataclass(frozen=True, eq=False)
class Window:
    """A test window; both arrays are views of the series.

    Attributes:
        index: 0 for the earliest.
        input: (V, past), everything before the label.
        label: (V, H).
        start: period of the label's first point, None for a bare array.
    """

    index: int
    input: Array
    label: Array
    start: pd.Period | None


def check_term(term: str) -> str:
    """Returns a term; ValueError naming the three otherwise."""
    if term not in TERMS:
        raise ValueError(f"term must be one of {', '.join(TERMS)}, got {term!r}")
    return term


def prediction_length(freq: str, term: str) -> int:
    """Steps of a horizon: the base of the frequency times 1, 10 or 15.

    Raises:
        ValueError: an unknown frequency or term.
    """
    return base_horizon(freq) * MULTIPLIERS[check_term(term)]


def num_windows(length: int, horizon: int) -> int:
    """W = min(max(1, ceil(0.1 L / H)), 20) for a series of ``length`` points."""
    check_whole("length", length)
    check_whole("horizon", horizon)
    return min(max(1, math.ceil(PROTOCOL.test_fraction * length / horizon)), PROTOCOL.max_windows)


def seasonality(freq: str) -> int:
    """Steps of a season: 10S 360, T 1440, 5T 288, 30T 48, H 24, D 1; 1 where the multiple does not divide it."""
    return season_length(freq)


def make_task(series: Series, term: str, *, horizon: int | None = None, season: int | None = None) -> Task:
    """The configuration of a series in a term.

    Args:
        series: the series.
        term: short, medium or long.
        horizon: in place of the frequency's; results then cannot be compared with published ones.
        season: in place of the frequency's.

    Raises:
        ValueError: the test windows leave no history, or a frequency without a horizon; names the series.
    """
    try:
        steps = prediction_length(series.freq, term) if horizon is None else check_whole("horizon", horizon)
    except ValueError as error:
        raise ValueError(f"{series.item_id}: {error}") from None
    season_steps = seasonality(series.freq) if season is None else season
    task = Task(series, term, steps, num_windows(series.length, steps), season_steps)
    check_fit(series.length, task)
    return task


def check_fit(length: int, task: Task) -> None:
    """ValueError unless ``length`` points leave a history before the test windows."""
    if length <= task.windows * task.horizon:
        what = "the series" if task.series is None else f"{task.series.item_id} ({task.term})"
        raise ValueError(
            f"{what}: {length} points leave no history before {task.windows} windows of {task.horizon} steps; "
            f"more than {task.windows * task.horizon} are needed"
        )


def make_tasks(
    series: Iterable[Series],
    terms: Sequence[str] | None = None,
    *,
    horizon: int | None = None,
    season: int | None = None,
) -> Iterator[Task]:
    """The configurations of many series, one series at a time.

    Args:
        series: the series.
        terms: the terms of all; None = those that the benchmark gives a published series, and for a series of your own
            those that fit its length (the others are logged).
        horizon: as in `make_task`.
        season: as in `make_task`.

    Raises:
        ValueError: a term that was asked for does not fit, or none fits; names the series.
    """
    for term in terms or ():
        check_term(term)
    published = series_properties()
    for one in series:
        if terms is not None:
            wanted = list(terms)
        elif one.item_id in published:
            wanted = list(TERMS) if published[one.item_id].term == "long" else ["short"]
        else:
            wanted = list(_fitting(one, horizon))
        for term in wanted:
            yield make_task(one, term, horizon=horizon, season=season)


def _fitting(series: Series, horizon: int | None) -> Iterator[str]:
    terms = TERMS if horizon is None else TERMS[:1]  # a horizon of one's own is the same in every term
    for term in terms:
        try:
            make_task(series, term, horizon=horizon)
        except ValueError as error:
            if term == "short":
                raise
            log.warning("left out: %s", error)
        else:
            yield term


def split(series: Series | Array, task: Task, *, part: Literal["test", "validation"] = "test") -> Iterator[Window]:
    """The windows of a configuration, earliest first.

    Args:
        series: a series, or an array (V, T) of whose end the windows are taken.
        task: how many and how long.
        part: "test" = the last windows * horizon points; "validation" = the one window before them (what lies before
            that one is for training).

    Raises:
        ValueError: T <= windows * horizon, or no history before the validation window.
    """
    target = series.target if isinstance(series, Series) else np.asarray(series)
    whole = series if isinstance(series, Series) else task.series
    if target.ndim != 2:
        raise ValueError(f"series must be (variates, time), got shape {target.shape}")
    if part not in ("test", "validation"):
        raise ValueError(f"part must be test or validation, got {part!r}")
    length, horizon = target.shape[1], task.horizon
    check_fit(length if part == "test" else length - horizon, task)
    first = length - task.windows * horizon
    starts = range(first, length, horizon) if part == "test" else [first - horizon]
    return (
        Window(
            index,
            target[:, :begin],
            target[:, begin : begin + horizon],
            None if whole is None else whole.start + begin,
        )
        for index, begin in enumerate(starts)
    )
