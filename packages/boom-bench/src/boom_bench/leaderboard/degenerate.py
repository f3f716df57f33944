"""The degenerate part: (almost) constant series, on which a ratio to the baseline says nothing (step 1)."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pandas as pd

from boom_bench.config import BASELINE, MASE
from boom_bench.data.reference import low_variance_series, series_properties
from boom_bench.leaderboard.configurations import ResultMatrix, series_of


def degenerate_series(
    results: pd.DataFrame,
    *,
    baseline: str = BASELINE,
    low_variance: Iterable[str] | None = None,
    nan_is_degenerate: bool = False,
) -> set[str]:
    """Series that the scaled part leaves out: the listed ones, and those with a zero MASE of the baseline anywhere.

    Args:
        results: rows with ``model``, ``dataset`` and MASE.
        baseline: the model whose MASE is looked at.
        low_variance: listed ids; None = the 80 published ones, () = none.
        nan_is_degenerate: a NaN (no seasonal error anywhere) counts as zero.

    Raises:
        ValueError: what `ResultMatrix` refuses, or no results of the baseline.
    """
    matrix = ResultMatrix.of(results, [MASE])
    mase = matrix.values(MASE)[matrix.position(baseline)]
    flat = (mase == 0) | (np.isnan(mase) if nan_is_degenerate else False)
    listed = set(low_variance_series() if low_variance is None else low_variance)
    series = [series_of(name) for name in matrix.configurations]
    return {name for name, zero in zip(series, flat, strict=True) if zero} | (listed & set(series))


def split_degenerate(
    results: pd.DataFrame,
    *,
    baseline: str = BASELINE,
    low_variance: Iterable[str] | None = None,
    nan_is_degenerate: bool = False,
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The rows of the main and of the degenerate part; a series goes there with all its configurations.

    Arguments and errors as for `degenerate_series`.
    """
    names = degenerate_series(
        results, baseline=baseline, low_variance=low_variance, nan_is_degenerate=nan_is_degenerate
    )
    codes, datasets = pd.factorize(results["dataset"])
    flat = np.array([series_of(name) in names for name in datasets], dtype=bool)[codes]
    return results[~flat], results[flat]


def is_own_data(results: pd.DataFrame) -> bool:
    """Whether no series is one of BOOM's; the lists of the benchmark then do not apply."""
    published = series_properties()
    return not any(series_of(name) in published for name in results["dataset"].unique())
