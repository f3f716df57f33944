"""The tables of the small experiment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean, median, stdev

from lora_anl.experiment.comparison import Scores
from lora_anl.experiment.residual import LINEAR, Fit
from lora_anl.experiment.shift import Shifted
from nips_common.claims import Table


def _mean(values: Sequence[float]) -> str | float:
    return round(fmean(values), 2) if values else "-"


def _spread(values: Sequence[float]) -> str | float:
    return round(stdev(values), 2) if len(values) > 1 else "-"


def residual_table(fits: Mapping[str, Sequence[Fit]]) -> Table:
    """Errors of all methods, and after the two merges."""

    def row(name: str, of_seed: Sequence[Fit]) -> tuple[str | float, ...]:
        training = [fit.training for fit in of_seed]
        ratio = [one / best.training for one, best in zip(training, fits[LINEAR], strict=True)]
        optional = (
            [fit.merged for fit in of_seed], [fit.calibrated for fit in of_seed], [fit.relative_gap for fit in of_seed]
        )  # fmt: skip
        known = [[value for value in values if value is not None] for values in optional]
        return (
            name,
            of_seed[0].parameters,
            round(median(training), 3),
            f"{min(training):.3f} to {max(training):.3f}",
            round(median(ratio), 3),
            round(median(fit.held_out for fit in of_seed), 3),
            *(round(median(values), 3) if values else "-" for values in known),
        )

    return Table(
        f"Planted nonlinear residual: mean squared errors, median over {len(fits[LINEAR])} seeds",
        (
            "method", "parameters", "training", "training, least to greatest", "of the best linear map's",
            "held-out rows", "training, after the static merge", "training, after the calibrated merge",
            "relative merge gap",
        ),
        tuple(row(name, of_seed) for name, of_seed in fits.items()),
    )  # fmt: skip


def shift_table(unadapted: float, results: Mapping[str, Shifted]) -> Table:
    """Accuracies on the shifted digits, as adapted and after the two merges."""
    rows = [
        (
            name,
            result.parameters,
            result.rate,
            _mean(result.accuracy),
            _spread(result.accuracy),
            _mean(result.merged),
            _mean(result.calibrated),
        )
        for name, result in results.items()
    ]
    return Table(
        f"Digits rotated and inverted: test accuracy in %, mean over seeds ({unadapted:.2f} without adaptation)",
        (
            "method", "parameters", "learning rate", "accuracy", "standard deviation", "after the static merge",
            "after the calibrated merge",
        ),
        tuple(rows),
    )  # fmt: skip


def reuters_table(floor: float, scores: Mapping[str, Scores]) -> Table:
    """Accuracies and parameters on the real encoder, side by side; ``floor`` is the most frequent topic's accuracy."""
    rows = [
        (
            name,
            score.encoder_parameters,
            score.head_parameters,
            score.rate,
            ", ".join(f"{rate:g}: {accuracy:.1f}" for rate, accuracy in score.validation.items()) or "-",
            _mean(score.accuracy),
            _spread(score.accuracy),
            ", ".join(f"{accuracy:.2f}" for accuracy in score.accuracy),
            _mean(score.merged),
            _mean(score.calibrated),
            _mean(score.relative_gap),
        )
        for name, score in scores.items()
    ]
    return Table(
        f"MiniLM on Reuters R8: test accuracy in %, mean over seeds ({floor:.2f} for always the most frequent topic)",
        (
            "method", "parameters in the encoder", "in the head", "learning rate", "validation accuracy by rate",
            "accuracy", "standard deviation", "by seed", "after the static merge", "after the calibrated merge",
            "relative merge gap",
        ),
        tuple(rows),
    )  # fmt: skip
