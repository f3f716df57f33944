"""Forecasters that tests name as ``example_forecasters:object``, also in other processes."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from boom_bench.baselines import Naive, SeasonalNaive

Array = NDArray[Any]


def last_value(context: Array, horizon: int, quantile_levels: Sequence[float]) -> dict[str, Array]:
    """The naive forecast, as a plain function."""
    return Naive()(context, horizon, quantile_levels)


def samples(context: Array, horizon: int, quantile_levels: Sequence[float]) -> Array:
    """Twenty samples around the last value, the same ones for the same context."""
    last = np.nan_to_num(context[:, -1])
    noise = np.random.default_rng(len(context)).normal(size=(20, len(context), horizon))
    return last[None, :, None] + noise


def slow(context: Array, horizon: int, quantile_levels: Sequence[float]) -> dict[str, Array]:
    """Takes a while, so that a run can be killed in the middle."""
    time.sleep(0.05)
    return SeasonalNaive(24)(context, horizon, quantile_levels)


def broken(context: Array, horizon: int, quantile_levels: Sequence[float]) -> Array:
    """NaN for every series of one variate."""
    return np.full((5, len(context), horizon), np.nan if len(context) == 1 else 1.0)


class Meeting:
    """A class, made with the checkpoint, which is a folder: waits there until another process forecasts as well."""

    def __init__(self, folder: str) -> None:
        self.folder = Path(folder)

    def __call__(self, context: Array, horizon: int, quantile_levels: Sequence[float]) -> dict[str, Array]:
        (self.folder / str(os.getpid())).write_text(os.environ.get("LOCAL_RANK", ""))
        end = time.monotonic() + 100
        while len(list(self.folder.iterdir())) < 2 and time.monotonic() < end:
            time.sleep(0.05)
        return last_value(context, horizon, quantile_levels)
