"""Frequencies under their old and new pandas names: base horizon, seasonality and class of each."""

from __future__ import annotations

import re
from typing import NamedTuple

# What pandas calls the units now, before 2.2, and gift-eval's name, which the tables below use.
ALIASES = {
    "s": "S", "S": "S", "min": "T", "T": "T", "h": "H", "H": "H", "D": "D", "W": "W", "B": "B",
    "M": "M", "ME": "M", "MS": "M", "Q": "Q", "QE": "Q", "QS": "Q", "A": "A", "Y": "A", "YE": "A", "YS": "A", "AS": "A",
}  # fmt: skip
PERIODS = {"S": "s", "T": "min", "H": "h", "D": "D", "W": "W", "B": "B", "M": "M", "Q": "Q", "A": "Y"}
HORIZONS = {"M": 12, "W": 8, "D": 30, "H": 48, "T": 48, "S": 60}
SEASONS = {"S": 3600, "T": 1440, "H": 24, "D": 1, "W": 1, "M": 12, "B": 5, "Q": 4}
CLASSES = {"S": "Short", "T": "Short", "H": "Medium"}  # all others are Long


class Frequency(NamedTuple):
    """A multiple of a unit: 10S is (10, "S", ""); the anchor is the weekday or month behind a hyphen."""

    multiple: int
    unit: str
    anchor: str = ""

    @property
    def period(self) -> str:
        """The name that `pandas.Period` takes, in old and new pandas."""
        anchor = f"-{self.anchor}" if self.anchor and self.unit in "WQA" else ""
        return f"{self.multiple if self.multiple > 1 else ''}{PERIODS[self.unit]}{anchor}"


def parse_frequency(freq: str) -> Frequency:
    """Reads a frequency.

    Args:
        freq: such as "10S", "10s", "T", "min", "5min", "H", "D", "W-SUN", "ME".

    Raises:
        ValueError: an unknown name; the message holds it and the known units.
    """
    match = re.fullmatch(r"(\d*)([A-Za-z]+)(?:-([A-Z]+))?", freq) if isinstance(freq, str) else None
    if match is None or match[2] not in ALIASES or (match[1] and int(match[1]) < 1):
        raise ValueError(f"frequency must be a multiple of {', '.join(ALIASES)}, such as 10S or 5min; got {freq!r}")
    return Frequency(int(match[1] or 1), ALIASES[match[2]], match[3] or "")


def base_horizon(freq: str) -> int:
    """Steps of a short horizon (gift-eval's table).

    Raises:
        ValueError: a unit without one.
    """
    unit = parse_frequency(freq).unit
    if unit not in HORIZONS:
        raise ValueError(f"the protocol has horizons for {', '.join(HORIZONS)} only, not for {freq!r}: give a horizon")
    return HORIZONS[unit]


def season_length(freq: str) -> int:
    """Steps of a season (gluonts' table divided by the multiple, 1 where that leaves a rest)."""
    multiple, unit, _ = parse_frequency(freq)
    season, rest = divmod(SEASONS.get(unit, 1), multiple)
    return 1 if rest else season


def frequency_class(freq: str) -> str:
    """Short (seconds and minutes), Medium (hours) or Long, as configurations are named."""
    return CLASSES.get(parse_frequency(freq).unit, "Long")
