"""A series and what is known of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from boom_bench.frequencies import parse_frequency


@dataclass(frozen=True, eq=False)
class Series:
    """A series of one or more variates on a regular grid of time.

    Args:
        item_id: its name, one line, not empty; results are filed under it.
        start: pandas Period of the first point, or what `pandas.Timestamp` takes.
        freq: its frequency, by its old or new pandas name.
        target: (V, T) or (T,) numbers; NaN = missing.

    Raises:
        ValueError: an empty name or one of several lines, an unknown frequency, a target of another shape or without
            a point.
    """

    item_id: str
    start: pd.Period
    freq: str
    target: NDArray[Any]

    def __post_init__(self) -> None:
        if not isinstance(self.item_id, str) or self.item_id.splitlines() != [self.item_id]:  # it names lines of files
            raise ValueError(f"item_id must be a string of one line that is not empty, got {self.item_id!r}")
        try:
            period = parse_frequency(self.freq).period
            start = self.start if isinstance(self.start, pd.Period) else pd.Period(pd.Timestamp(self.start), period)
        except ValueError as error:
            raise ValueError(f"{self.item_id}: {error}") from None
        target = np.asarray(self.target)
        if target.dtype.kind not in "fiub":
            raise ValueError(f"{self.item_id}: target must hold numbers, got {target.dtype}")
        if target.dtype.kind != "f":
            target = target.astype(np.float64)
        target = target[None] if target.ndim == 1 else target
        if target.ndim != 2 or not target.size:
            raise ValueError(f"{self.item_id}: target must be (variates, time) with a point, got {target.shape}")
        object.__setattr__(self, "start", start)
        object.__setattr__(self, "target", target)

    @property
    def length(self) -> int:
        """T."""
        return int(self.target.shape[1])

    @property
    def num_variates(self) -> int:
        """V."""
        return int(self.target.shape[0])


class SeriesProperties(NamedTuple):
    """What the benchmark says of a series.

    Attributes:
        domain: one or more of Application Usage, Infrastructure, Database, Networking, Security.
        frequency: Short (10S to 30T), Medium (H) or Long (D).
        num_variates: V, 1 to 100.
        term: "long" = evaluated in all three terms, "short" = in the short one only.
        type: gauge, rate, distribution or count.
    """

    domain: list[str]
    frequency: str
    num_variates: int
    term: str
    type: str


def univariate(series: Series) -> list[Series]:
    """Each variate as a series of its own, named ``<item_id>_dim<k>``, as univariate models are evaluated."""
    names = [f"{series.item_id}_dim{k}" for k in range(series.num_variates)]
    return [Series(name, series.start, series.freq, row[None]) for name, row in zip(names, series.target, strict=True)]
