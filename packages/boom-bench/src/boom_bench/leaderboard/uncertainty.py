"""How sure a score is: bootstrap intervals over configurations, win rates and skill scores. Not in the paper."""

from __future__ import annotations

import numpy as np
import pandas as pd

from boom_bench.config import BASELINE, CRPS, MASE, PROTOCOL, check_whole
from boom_bench.leaderboard.configurations import Array, ResultMatrix
from boom_bench.leaderboard.ranks import ranks
from boom_bench.leaderboard.scaling import Invalid, impute, shifted_gmeans

_AT_ONCE = 100  # resamples; bounds the memory


def _valid(matrix: ResultMatrix, metric: str, invalid: Invalid) -> Array:
    values, keep, _ = impute(matrix, [metric], invalid)
    if not keep.any() or np.isnan(values[metric]).any():
        raise ValueError(f"invalid={invalid!r} leaves a model without a value of {metric}")
    return values[metric]


def bootstrap_ci(
    results: pd.DataFrame,
    *,
    metric: str = MASE,
    n_resamples: int = 1000,
    level: float = 0.95,
    seed: int = 0,
    invalid: Invalid = "column_mean",
) -> pd.DataFrame:
    """Percentile intervals of each model's shifted geometric mean.

    Configurations are drawn with replacement, the same ones for all models.

    Args:
        results: rows with ``model``, ``dataset`` and the metric, scaled or not.
        metric: the column.
        n_resamples: how often.
        level: coverage, between 0 and 1.
        seed: of the draws.
        invalid: what becomes of NaN and infinite values, as for `leaderboard`.

    Returns:
        Index model, columns ``low`` and ``high``.

    Raises:
        ValueError: a value out of range, a model without a valid value, what `ResultMatrix` refuses.
    """
    check_whole("n_resamples", n_resamples)
    if not 0 < level < 1:
        raise ValueError(f"level must be between 0 and 1, got {level!r}")
    matrix = ResultMatrix.of(results, [metric])
    values = _valid(matrix, metric, invalid)
    shifted_gmeans(values)  # refuses what has no logarithm
    with np.errstate(divide="ignore"):
        logs = np.log(values + PROTOCOL.epsilon)
    count, draw = values.shape[1], np.random.default_rng(seed)
    means = np.empty((n_resamples, len(values)))
    for start in range(0, n_resamples, _AT_ONCE):
        size = min(_AT_ONCE, n_resamples - start)
        times = np.stack([np.bincount(draw.integers(count, size=count), minlength=count) for _ in range(size)])
        means[start : start + size] = times @ logs.T / count
    low, high = np.quantile(np.exp(means) - PROTOCOL.epsilon, [(1 - level) / 2, (1 + level) / 2], axis=0)
    return pd.DataFrame({"low": low, "high": high}, index=pd.Index(matrix.models, name="model"))


def win_rate(results: pd.DataFrame, *, metric: str = CRPS, invalid: Invalid = "column_mean") -> pd.Series:
    """Share of the comparisons with the other models that each model wins; ties count half.

    Raises:
        ValueError: fewer than two models, what `ResultMatrix` refuses.
    """
    matrix = ResultMatrix.of(results, [metric])
    models = len(matrix.models)
    if models < 2:
        raise ValueError(f"a win rate compares models, got {models}")
    rate = (models - ranks(_valid(matrix, metric, invalid)).mean(1)) / (models - 1)
    return pd.Series(rate, index=pd.Index(matrix.models, name="model"))


def skill_score(scaled: pd.DataFrame, *, baseline: str = BASELINE, metric: str = CRPS) -> pd.Series:
    """1 - shifted geometric mean of scaled results: 0 = the baseline, 1 = perfect.

    Raises:
        ValueError: results that are not scaled (the baseline is not 1 everywhere), what `ResultMatrix` refuses.
    """
    matrix = ResultMatrix.of(scaled, [metric])
    values = _valid(matrix, metric, "column_mean")
    if not (values[matrix.position(baseline)] == 1).all():
        raise ValueError(f"{metric} of {baseline} is not 1 everywhere: scale_by_baseline first")
    return pd.Series(1 - shifted_gmeans(values), index=pd.Index(matrix.models, name="model"))
