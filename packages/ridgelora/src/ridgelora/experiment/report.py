"""Claims and tables of the small experiment; the claims were fixed before any result was seen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean, median, stdev

from nips_common.claims import Claim, Table, Verdict
from ridgelora.experiment import language_model
from ridgelora.experiment.closed_form import Fits
from ridgelora.experiment.language_model import Tuned
from ridgelora.experiment.shift import FULL, GAUSSIAN, LORA_3, RIDGE, Adapted

EXACT = 1e-5  # float32, relative to the greatest output


def _at_most(statement: str, metric: str, values: Sequence[float], limit: float, baseline: float) -> Claim:
    """Judges the median: at most ``limit``, where ``baseline`` means no effect."""
    middle = median(values)
    verdict: Verdict = "holds" if middle <= limit else "fails"
    return Claim(statement, metric, baseline, middle, baseline - limit, tuple(values), verdict, higher_is_better=False)


def closed_form_claim(fits: Mapping[str, Fits]) -> Claim:
    """A diagonal plus rank 2 is what the transform is, and far from rank 3."""
    pairs = zip(fits[RIDGE].errors, fits[LORA_3].errors, strict=True)
    return _at_most(
        "On Y = X M W with M a diagonal plus rank 2, RidgeLoRA at rank 2 has at most a hundredth of the error of LoRA "
        "at rank 3",
        "mean squared error over LoRA's, median over seeds",
        [ridge / lora for ridge, lora in pairs],
        0.01,
        1.0,
    )


def drift_claims(results: Mapping[str, Adapted]) -> tuple[Claim, ...]:
    """The effect that a trainable diagonal in front of a layer is for."""
    metric = "test accuracy in %, digits through drifted gains, mean over seeds"
    ridge, changes = results[RIDGE], [change for result in results.values() for change in result.merge_change]
    return (
        Claim.judge(
            "When every pixel's gain has drifted, RidgeLoRA at rank 2 is at least half a point more accurate than LoRA "
            "at rank 3, which has more parameters",
            metric, results[LORA_3].accuracy, ridge.accuracy, 0.5,
        ),
        Claim.judge(
            "There RidgeLoRA at rank 2 is at most a point less accurate than full fine-tuning of the layer",
            metric, results[FULL].accuracy, ridge.accuracy, -1.0,
        ),
        Claim.judge(
            "There the exact start is at least as accurate as the published one",
            metric, results[GAUSSIAN].accuracy, ridge.accuracy, 0.0,
        ),
        _at_most(
            "Merging is exact", "greatest relative change of an output, median over all runs, beside the tolerance",
            changes, EXACT, EXACT,
        ),
    )  # fmt: skip


def rotation_claim(results: Mapping[str, Adapted]) -> Claim:
    """The case with nothing diagonal in it, where the paper's advantage over LoRA is not expected."""
    return Claim.judge(
        "On digits turned and inverted RidgeLoRA at rank 2 is at least as accurate as LoRA at rank 3",
        "test accuracy in %, rotated and inverted digits, mean over seeds",
        results[LORA_3].accuracy, results[RIDGE].accuracy, 0.0,
    )  # fmt: skip


def language_model_claim(results: Mapping[str, Tuned] | None, reason: str = "") -> Claim:
    """A real model at equal parameters; our own claim. None: it was not run."""
    statement = (
        "SmolLM2 on word problems: after the same few steps RidgeLoRA's held-out loss is at least as low as that of "
        "LoRA with at least as many parameters (our own claim)"
    )
    metric = "loss of held-out solutions in nats a token, mean over seeds"
    if results is None:
        return Claim(statement, metric, None, None, 0.0, higher_is_better=False, reason=reason)
    lora, ridge = (results[name].losses for name in (language_model.LORA, language_model.RIDGE))
    return Claim.judge(statement, metric, lora, ridge, 0.0, higher_is_better=False)


def language_model_table(before: float, results: Mapping[str, Tuned]) -> Table:
    """Held-out losses, and what the learning rates gave on the validation problems."""
    rows = [
        (
            name,
            result.parameters,
            result.rate,
            round(fmean(result.losses), 4),
            ", ".join(f"{loss:.4f}" for loss in result.losses),
            ", ".join(f"{rate:g}: {loss:.4f}" for rate, loss in result.validation.items()),
        )
        for name, result in results.items()
    ]
    columns = ("method", "parameters", "learning rate", "loss", "by seed", "validation loss by rate")
    title = f"SmolLM2 on word problems: held-out loss of the solutions in nats a token ({before:.4f} before training)"
    return Table(title, columns, tuple(rows))


def shift_table(title: str, unadapted: float, results: Mapping[str, Adapted]) -> Table:
    """Accuracies after adaptation."""
    rows = [
        (
            name,
            result.parameters,
            result.rate,
            round(fmean(result.accuracy), 2),
            round(stdev(result.accuracy), 2) if len(result.accuracy) > 1 else "-",
            ", ".join(f"{accuracy:.2f}" for accuracy in result.accuracy),
        )
        for name, result in results.items()
    ]
    columns = ("method", "parameters", "learning rate", "accuracy", "standard deviation", "by seed")
    return Table(f"{title}: test accuracy in % ({unadapted:.2f} without adaptation)", columns, tuple(rows))


def closed_form_table(fits: Mapping[str, Fits]) -> Table:
    """Errors of the closed-form companion."""
    rows = [
        (name, fit.parameters, f"{median(fit.errors):.1e}", f"{min(fit.errors):.1e} to {max(fit.errors):.1e}")
        for name, fit in fits.items()
    ]
    columns = ("method", "parameters", "mean squared error", "least to greatest")
    return Table("Y = X M W with M a diagonal plus rank 2: median over seeds", columns, tuple(rows))
