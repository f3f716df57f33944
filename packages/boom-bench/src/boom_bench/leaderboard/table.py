"""The table itself: six columns, sorted by the mean rank of the main part; and its three plain formats."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from boom_bench.config import BASELINE, CRPS, MAE, MASE
from boom_bench.data.reference import boomlet_series
from boom_bench.leaderboard.configurations import ResultMatrix, check_order, series_of
from boom_bench.leaderboard.degenerate import is_own_data, split_degenerate
from boom_bench.leaderboard.ranks import Tie, mean_ranks
from boom_bench.leaderboard.scaling import Invalid, impute, scale, shifted_gmeans
from nips_common.artifacts import atomic_file


def only_boomlet(results: pd.DataFrame) -> pd.DataFrame:
    """The rows of BOOMLET's series.

    Raises:
        ValueError: there is none.
    """
    wanted = set(boomlet_series())
    codes, names = pd.factorize(results["dataset"])
    chosen = results[np.array([series_of(name) in wanted for name in names], dtype=bool)[codes]]
    if not len(chosen):
        raise ValueError("the results hold none of BOOMLET's series")
    return chosen


def leaderboard(
    results: pd.DataFrame,
    *,
    baseline: str = BASELINE,
    tie: Tie = "average",
    order: Sequence[str] | None = None,
    invalid: Invalid = "column_mean",
    low_variance: Iterable[str] | None = None,
    nan_is_degenerate: bool | None = None,
    boomlet: bool = False,
) -> pd.DataFrame:
    """Aggregates results as the benchmark does (steps 1 to 5).

    Args:
        results: rows with ``model``, ``dataset``, MASE, CRPS and MAE; every model has the same configurations.
        baseline: the model that MASE and CRPS of the main part are divided by.
        tie: ranks of equal values: "average" (order-free), "first" (the official code, see ``order``) or "min".
        order: models in the order that ties follow with "first"; None = of appearance.
        invalid: what becomes of NaN and infinite values: "column_mean" (the official code), "worst" or "drop".
        low_variance: ids of the degenerate part beside those of a zero baseline; None = the published list.
        nan_is_degenerate: a NaN MASE of the baseline makes a series degenerate; None = if no series is one of BOOM's.
        boomlet: only BOOMLET's series.

    Returns:
        Index model, sorted by the mean rank of the main part; columns MASE, CRPS and rank of the main part and, if it
        is not empty, MAE, CRPS and rank of the degenerate part, unrounded, with the numbers of configurations in their
        names. Series that are all zero have no CRPS; a part of nothing else has neither that column nor ranks.
        ``.attrs["imputed"]`` maps each model to its invalid values in both parts.

    Raises:
        ValueError: absent columns, unequal sets of configurations, no results of the baseline, an unknown policy.
    """
    chosen = only_boomlet(results) if boomlet else results
    whole = ResultMatrix.of(chosen, [MASE, CRPS, MAE])
    positions = [whole.models.index(model) for model in check_order(whole.models, order)]
    strict = is_own_data(chosen) if nan_is_degenerate is None else nan_is_degenerate
    main, degenerate = split_degenerate(chosen, baseline=baseline, low_variance=low_variance, nan_is_degenerate=strict)
    table = pd.DataFrame(index=pd.Index(whole.models, name="model"))
    imputed = dict.fromkeys(whole.models, 0)
    parts = ((main, MASE, "MASE", "scaled"), (degenerate, MAE, MAE, "unscaled"))
    for part, metric, title, kind in parts:
        if not len(part):
            continue
        matrix = ResultMatrix.of(part)
        values, keep, counts = impute(matrix, [metric, CRPS], invalid)
        if not keep.any():
            raise ValueError(f"invalid={invalid!r} leaves no configuration in the {kind} part")
        if kind == "scaled":
            values = {name: scale(found, matrix.position(baseline)) for name, found in values.items()}
        rows = [matrix.models.index(model) for model in whole.models]
        suffix = f"{int(keep.sum())}-{kind}"
        table[f"{title}-{suffix}"] = shifted_gmeans(values[metric])[rows]
        if not np.isnan(values[CRPS]).all():  # labels that are all zero have no CRPS, whatever the model
            table[f"CRPS-{suffix}"] = shifted_gmeans(values[CRPS])[rows]
            table[f"Rank-{suffix}"] = mean_ranks(values[CRPS][rows], tie, positions)
        imputed = {model: imputed[model] + counts[model] for model in imputed}
    table = table.sort_values(next((c for c in table if c.startswith("Rank-")), table.columns[0]), kind="stable")
    table.attrs["imputed"] = imputed
    return table


def format_number(value: float) -> str:
    """Three decimals, and from 100 on the form 1.2e+02."""
    return f"{value:.1e}" if value >= 100 else f"{value:.3f}"


def format_table(table: pd.DataFrame) -> pd.DataFrame:
    """The table as strings, as the official leaderboard prints them."""
    return table.map(format_number)


def to_csv(table: pd.DataFrame, path: str | Path | None = None) -> str:
    """The table as CSV, unrounded; also written to ``path``, in one step, if it is given."""
    text = str(table.to_csv(lineterminator="\n"))
    if path is not None:
        with atomic_file(path) as temporary:
            temporary.write_text(text, "utf-8")
    return text


def to_markdown(table: pd.DataFrame) -> str:
    """The formatted table as Markdown."""
    rows = format_table(table)
    head = [str(table.index.name or ""), *map(_title, table.columns)]
    lines = [head, ["---", *["---:"] * len(table.columns)]]
    lines += [[str(model), *row] for model, row in zip(rows.index, rows.to_numpy().tolist(), strict=True)]
    return "".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |\n" for line in lines)


def _title(column: object) -> str:
    return " ".join(map(str, column)) if isinstance(column, tuple) else str(column)
