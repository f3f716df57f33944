"""The small real experiment: the bigram circuit of a character model trained here on the standard library's prose.

Run it with ``python -m bigram_subnet.reproduce --out DIR [--full]``. The criteria were fixed on another small model,
before this one existed, so that not all of them need hold here.
"""

from __future__ import annotations

import dataclasses
import logging
import math
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor
from transformers import PreTrainedModel

from bigram_subnet.config import SparsifyConfig
from bigram_subnet.experiment import iglm, small_model, smollm2
from bigram_subnet.experiment.docstrings import SYMBOLS, Corpus, standard_library
from bigram_subnet.experiment.figure import draw
from bigram_subnet.experiment.judgement import (
    R,
    by_control,
    criteria,
    measures_table,
    rotations_table,
    shares_table,
)
from bigram_subnet.experiment.measures import Run, context_variation, runs_by_seed, small_budget
from bigram_subnet.ngrams import BigramCounts
from bigram_subnet.overlap import mask_overlap
from bigram_subnet.surprisal import select_subnetwork
from bigram_subnet.targets import SelfTarget
from bigram_subnet.training.subnetwork import train_subnetwork
from nips_common.assets import AssetMissing, find_asset
from nips_common.claims import Claim, ReproduceBudget, Reproduction, Table, reproduce_main
from nips_common.runtime import require


@dataclasses.dataclass(frozen=True)
class Plan:
    """How much of the experiment is run.

    Args:
        model_steps: training steps of the language model.
        mask_steps: of each mask; the rate and the temperature's growth are the sheet's for 250 to 300 steps.
        seeds: orders of the data, one mask each.
        held_out: held-out sequences.
        lambdas: further masks, one a lambda, for the selection rule; none in the quick form.
        smollm2: held-out sequences for the check on SmolLM2-135M; 0 leaves it out.
        iglm: the protocol on IgLM-S, where it was fetched; None leaves it out.
    """

    model_steps: int = 400
    mask_steps: int = 250
    seeds: tuple[int, ...] = (0, 1, 2)
    held_out: int = 160
    lambdas: tuple[float, ...] = ()
    smollm2: int = 0
    iglm: iglm.Protocol | None = None

    def config(self, seed: int, l0_lambda: float = 10.0) -> SparsifyConfig:
        """The settings of one mask."""
        return small_budget(self.mask_steps, seed, l0_lambda)


PLANS: dict[ReproduceBudget, Plan] = {
    "quick": Plan(),
    "full": Plan(model_steps=1500, held_out=512, lambdas=(0.0, 1.0, 5.0, 50.0), smollm2=32, iglm=iglm.Protocol()),
}


def _own_claim(runs: Sequence[Run]) -> Claim:
    return Claim.judge(
        "The subnetwork's correlation with the bigram is at least 0.2 above the full model's (our own claim)",
        R, by_control(runs)["full model"], [run.correlation for run in runs], 0.2,
    )  # fmt: skip


def _by_lambda(
    model: PreTrainedModel, counts: BigramCounts, training: Tensor, held_out: Tensor, plan: Plan, first: Run
) -> tuple[Table, Table]:
    """Full form: masks of several lambdas with the selection rule, and the overlap with an optimal subnetwork."""
    configs = [plan.config(plan.seeds[0], value) for value in plan.lambdas]
    more = runs_by_seed(model, counts, training, held_out, configs)
    found = {10.0: first, **dict(zip(plan.lambdas, more, strict=True))}
    chosen = select_subnetwork({value: run.correlation for value, run in found.items()})
    rows = tuple(
        (value, run.mask.kept, round(100 * run.mask.proportion_kept, 3), round(run.correlation, 3),
         "chosen" if value == chosen else "")
        for value, run in sorted(found.items())
    )  # fmt: skip
    optimal, _ = train_subnetwork(model, SelfTarget(model), training, plan.config(plan.seeds[0]))
    overlap = mask_overlap(first.mask, optimal, draws=2000)
    numbers = (optimal.kept, _cell(overlap.ratio, 2), _cell(100 * overlap.contained, 1), _cell(overlap.p_value, 5))
    return (
        Table("Masks by lambda, first seed", ("lambda", "kept", "% kept", "r", "rule"), rows),
        Table(
            "Overlap with the optimal subnetwork of the same lambda (not judged)",
            ("kept in the optimal one", "overlap / expected", "% of the bigram mask contained", "p"),
            (numbers,),
        ),
    )


def _smollm2(corpus: Corpus, sequences: int) -> tuple[Claim, tuple[Table, ...]]:
    """The check on a real pre-trained model; "not run" with the command that fetches it where it is missing."""
    try:
        folder = find_asset(smollm2.ASSET)
    except AssetMissing as missing:
        return Claim(smollm2.STATEMENT, smollm2.METRIC, None, None, 0.0, reason=str(missing)), ()
    training, held_out = ("".join(SYMBOLS[i] for i in part.flatten()) for part in (corpus.training, corpus.held_out))
    return smollm2.check(folder, training, held_out, sequences)


def _cell(value: float, digits: int) -> str | float:
    """A rounded number; a dash where there is none, as for an empty mask."""
    return round(value, digits) if math.isfinite(value) else "-"


def experiment(plan: Plan, folder: Path, budget: ReproduceBudget = "quick") -> Reproduction:
    """Trains the model and its masks, measures, judges and draws.

    Args:
        plan: how much.
        folder: where the figure goes.
        budget: name of the plan in the result.

    Raises:
        ImportError: matplotlib or, for SmolLM2, gguf is missing; names the extra.
    """
    for module in ("matplotlib.figure", *(["gguf"] if plan.smollm2 else [])):
        require(module, "bigram-subnet[reproduce]")  # before the work, not after it
    corpus = standard_library(small_model.LENGTH)
    held_out = corpus.held_out[:: max(1, len(corpus.held_out) // plan.held_out)][: plan.held_out]
    model = small_model.trained_model(corpus.training, plan.model_steps)
    logging.getLogger("bigram_subnet.ngrams").setLevel("ERROR")  # 0.8 M characters are many for 96 symbols
    counts = BigramCounts.from_sequences(corpus.training, len(SYMBOLS))
    runs = runs_by_seed(model, counts, corpus.training, held_out, [plan.config(seed) for seed in plan.seeds])
    tables = [
        measures_table(runs, context_variation(model, held_out, 0)),
        shares_table(runs),
        rotations_table(model, runs[0], held_out),
    ]
    if plan.lambdas:
        tables += _by_lambda(model, counts, corpus.training, held_out, plan, runs[0])
    claims = (*criteria(runs), _own_claim(runs))
    notes = _notes()
    if plan.smollm2:
        claim, more = _smollm2(corpus, plan.smollm2)
        claims, tables = (*claims, claim), [*tables, *more]
    if plan.iglm is not None:
        found = iglm.outcome_where_present(plan.iglm)
        claims, tables = (*claims, *found.claims), [*tables, *found.tables]
        notes = (*notes, *iglm.NOTES) if found.runs else notes
    correlations = {"subnetwork": [run.correlation for run in runs], **by_control(runs)}
    plot = draw(folder / "subnetwork.png", runs[0].shares, correlations)
    return Reproduction(
        package="bigram-subnet",
        method="Bigram subnetworks of transformer language models (arXiv 2504.15471)",
        claims=claims,
        tables=tuple(tables),
        notes=notes,
        plots=(plot.name,),
        budget=budget,
        settings=_settings(plan, len(corpus.training), len(held_out)),
    )


def _notes() -> tuple[str, ...]:
    return (
        "The model is small and trained here for a minute, over characters, on the docstrings of the running Python's "
        "standard library: this shows the method at work, not the paper's numbers, which need Pythia and GPT-2.",
        "The thresholds were set on IgLM-S, a model of 33 symbols. A distance of 0.4 to the full model and a random "
        "mask at 0.3 depend on the model: in the paper the distance is 0.22 to 0.40, and the embeddings alone "
        "correlate 0.31 to 0.68, as random masks of this size must, which keep next to nothing.",
        "Our own claim's 0.2 is the paper's smallest distance (Pythia 70M: 0.224), rounded down. It was added after "
        "correlations of such a model had been seen on more text, where it would have held (0.96 against 0.76).",
        "Rate, growth of the temperature and lambda are those of the experiment on IgLM-S. Width and steps of the "
        "model were chosen for their run time.",
        "Seeds are orders of the data for the masks; there is one language model.",
    )


def _settings(plan: Plan, training: int, held_out: int) -> dict[str, object]:
    return {
        "text": f"docstrings of the standard library, sequences of {small_model.LENGTH} characters",
        "sequences": {"training": training, "held out": held_out},
        "model": f"GPT-NeoX, {small_model.LAYERS} layers, width {small_model.WIDTH}, {len(SYMBOLS)} symbols",
        "model training": f"AdamW, {plan.model_steps} steps, batch {small_model.BATCH}, rate {small_model.RATE:g}",
        "mask training": dataclasses.asdict(plan.config(0)),
        "seeds": list(plan.seeds),
        "torch threads": torch.get_num_threads(),
    }


def run(budget: ReproduceBudget, folder: Path) -> Reproduction:
    """The experiment in its quick form (three seeds at lambda 10) or in full (more training, more lambdas, overlap)."""
    return experiment(PLANS[budget], folder, budget)


if __name__ == "__main__":
    reproduce_main(run)
