"""What is claimed of the subnetworks of one model, judged on their measures, and the tables beside it."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean, stdev

from torch import Tensor
from transformers import PreTrainedModel

from bigram_subnet.experiment.measures import Run
from bigram_subnet.residual import layer_rotations
from bigram_subnet.shares import PARTS
from nips_common.claims import Claim, Table

R = "r of held-out surprisals with the bigram's"
CONTROLS = {"full model": "full", "random mask": "random", "empty mask": "empty"}


def criteria(runs: Sequence[Run], of: str = "") -> tuple[Claim, ...]:
    """The five criteria that were set on IgLM-S, for the subnetworks of any model.

    Args:
        runs: one a seed.
        of: put before every statement, such as ``"IgLM-S: "``.
    """
    ours = [run.correlation for run in runs]
    kept = [100 * run.mask.proportion_kept for run in runs]
    same = lambda value: [value] * len(runs)
    return (
        Claim.judge(f"{of}The subnetwork's correlation with the bigram is at least 0.90", R, same(0.9), ours, 0.0),
        Claim.judge(
            f"{of}The subnetwork's correlation is at least 0.4 above the full model's",
            R, by_control(runs)["full model"], ours, 0.4,
        ),
        Claim.judge(
            f"{of}At most 2 % of the maskable weights are kept", "% kept", same(2.0), kept, 0.0, higher_is_better=False
        ),
        Claim.judge(
            f"{of}A random mask of the same count in every matrix correlates at most 0.3",
            R, same(0.3), by_control(runs)["random mask"], 0.0, higher_is_better=False,
        ),
        Claim.judge(
            f"{of}Removing the subnetwork costs at least ten times what removing a random one of its size costs",
            "rise of the held-out loss in nats; the baseline is ten times the random mask's",
            [10 * run.increase("random_ablated") for run in runs], [run.increase("ablated") for run in runs], 0.0,
        ),
    )  # fmt: skip


def by_control(runs: Sequence[Run]) -> dict[str, list[float]]:
    """R of every control by its name in words, one a seed."""
    return {words: [run.correlations[name] for run in runs] for words, name in CONTROLS.items()}


def measures_table(runs: Sequence[Run], full_variation: float, of: str = "") -> Table:
    """All measures by seed, with mean and standard deviation.

    Args:
        runs: one a seed.
        full_variation: `context_variation` of the full model.
        of: put before the title.
    """
    rows: list[tuple[str | float, ...]] = []

    def row(name: str, values: Sequence[float], digits: int = 3) -> None:
        spread = round(stdev(values), digits) if len(values) > 1 else "-"
        rows.append((name, *(round(value, digits) for value in values), round(fmean(values), digits), spread))

    row("kept weights, %", [100 * run.mask.proportion_kept for run in runs])
    row("r, subnetwork", [run.correlation for run in runs])
    for words, values in by_control(runs).items():
        row(f"r, {words}", values)
    row("cross-entropy to the bigram, subnetwork, nats", [run.xent for run in runs])
    for name in runs[0].losses:
        row(f"held-out loss, {name.replace('_', ' ')}, nats", [run.losses[name] for run in runs])
    row("context dependence, subnetwork (total variation)", [run.variation for run in runs])
    row("context dependence, full model", [full_variation] * len(runs))
    columns = ("measure", *_seeds(runs), "mean", "standard deviation")
    return Table(f"{of}Subnetworks at lambda 10, held-out text", columns, tuple(rows))


def shares_table(runs: Sequence[Run], of: str = "") -> Table:
    """Where the kept weights lie; arguments as in :func:`measures_table`."""
    layers = 1 + max(int(row["layer"]) for row in runs[0].shares)
    rows: list[tuple[str | float, ...]] = [
        (layer, part, *(round(100 * _share(run, layer, part), 1) for run in runs))
        for layer in range(layers)
        for part in PARTS
    ]
    title = f"{of}Where the kept weights lie, % of all kept (not judged)"
    return Table(title, ("layer", "part", *_seeds(runs)), tuple(rows))


def _share(run: Run, layer: int, part: str) -> float:
    return sum(float(row["share"]) for row in run.shares if (row["layer"], row["part"]) == (layer, part))


def _seeds(runs: Sequence[Run]) -> tuple[str, ...]:
    return tuple(f"seed {run.log.seed}" for run in runs)


def rotations_table(model: PreTrainedModel, run: Run, held_out: Tensor, of: str = "") -> Table:
    """Rotations of the residual stream, of the full model and of one subnetwork."""
    full, ours = layer_rotations(model, held_out), layer_rotations(model, held_out, run.mask)
    rows = [
        (layer, *(round(angle, 1) for angle in (a.to_input, b.to_input, a.to_output, b.to_output)))
        for layer, (a, b) in enumerate(zip(full, ours, strict=True))
    ]
    columns = ("layer", "to input, full", "to input, subnetwork", "to output, full", "to output, subnetwork")
    return Table(f"{of}Rotation of the residual stream, median degrees (not judged)", columns, tuple(rows))
