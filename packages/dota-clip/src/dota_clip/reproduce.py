"""The small real experiment: a tiny CLIP trained on 900 digits meets 897 others under five corruptions, and MNIST.

Run it with ``python -m dota_clip.reproduce --out DIR [--full]``. The claims were fixed before any result was seen.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from statistics import fmean, stdev

import torch

from dota_clip.config import DotaConfig, TDAConfig
from dota_clip.experiment import digits, tiny_clip
from dota_clip.experiment.digit_streams import Job, Method, Results, accuracy_per_model, run_streams
from dota_clip.experiment.digits import CORRUPTIONS, Images
from dota_clip.experiment.figure import draw
from nips_common.assets import AssetMissing, find_asset
from nips_common.claims import Claim, ReproduceBudget, Reproduction, Table, reproduce_main
from nips_common.runtime import require

CLEAN, MNIST = "clean", "UCI to MNIST"
SHIFTS = tuple(CORRUPTIONS)
ZERO_SHOT, TDA, DOTA, FIXED = "zero-shot", "TDA", "DOTA", "DOTA, covariance fixed"
DOTA_3, FIXED_3 = "DOTA, eta 3, rho 0.05", "DOTA, covariance fixed, eta 3, rho 0.05"

# The rows of the claims, and the ablation shown beside them.
MAIN_METHODS: dict[str, Method] = {
    ZERO_SHOT: None,
    TDA: TDAConfig(positive_alpha=2.0, positive_beta=5.0, negative=False),
    DOTA: DotaConfig(),
    FIXED: DotaConfig(covariance="fixed"),
}
ON_MNIST = (ZERO_SHOT, TDA, DOTA)
# Further rows of the full form.
VARIANTS: dict[str, Method] = {
    DOTA_3: DotaConfig(eta=3.0, rho=0.05),
    FIXED_3: DotaConfig(eta=3.0, rho=0.05, covariance="fixed"),
    "DOTA, text init": DotaConfig(mean_init="text"),
    "DOTA, update first": DotaConfig(update_first=True),
    "DOTA, pooled covariance": DotaConfig(covariance="pooled"),
    "DOTA, diagonal covariance": DotaConfig(covariance="diagonal"),
}


@dataclasses.dataclass(frozen=True)
class Plan:
    """How much of the experiment is run.

    Args:
        models: trained models, one a seed.
        orders: stream orders, one a seed.
        variants: further rows by name.
        images: held-out images in a stream, at most 897.
        mnist_images: MNIST digits in a stream.
        epochs: of training.
    """

    models: int = 3
    orders: int = 3
    variants: Mapping[str, Method] = dataclasses.field(default_factory=dict)
    images: int = 897
    mnist_images: int = 2000
    epochs: int = tiny_clip.EPOCHS

    def methods(self) -> dict[str, Method]:
        """All rows."""
        return {**MAIN_METHODS, **self.variants}

    def jobs(self, streams: Mapping[str, Images]) -> list[Job]:
        """Every method on every stream; MNIST only for the methods its claim speaks of."""
        return [
            Job(name, config, stream)
            for name, config in self.methods().items()
            for stream in streams
            if stream != MNIST or name in ON_MNIST
        ]


PLANS: dict[ReproduceBudget, Plan] = {
    "quick": Plan(),
    "full": Plan(models=5, variants=VARIANTS),
}


def _claims(results: Results, mnist_missing: str) -> tuple[Claim, ...]:
    shifted, clean = "top-1 accuracy in %, mean of five corruptions", "top-1 accuracy in %, uncorrupted digits"
    dota = accuracy_per_model(results, DOTA, *SHIFTS)
    claims = (
        Claim.judge(
            "DOTA at its defaults gains at least 2 points over zero-shot under corruption",
            shifted, accuracy_per_model(results, ZERO_SHOT, *SHIFTS), dota, 2.0,
        ),
        Claim.judge(
            "DOTA at its defaults is at least as accurate as TDA under corruption",
            shifted, accuracy_per_model(results, TDA, *SHIFTS), dota, 0.0,
        ),
        Claim.judge(
            "DOTA at its defaults loses at most 1 point on clean images",
            clean, accuracy_per_model(results, ZERO_SHOT, CLEAN), accuracy_per_model(results, DOTA, CLEAN), -1.0,
        ),
    )  # fmt: skip
    statement = "DOTA at its defaults is at least as accurate as zero-shot from UCI digits to MNIST (our own claim)"
    metric = "top-1 accuracy in %, MNIST in the UCI format"
    if mnist_missing:
        return (*claims, Claim(statement, metric, None, None, 0.0, reason=mnist_missing))
    baseline, ours = (accuracy_per_model(results, method, MNIST) for method in (ZERO_SHOT, DOTA))
    return (*claims, Claim.judge(statement, metric, baseline, ours, 0.0))


def _tables(results: Results, streams: Mapping[str, Images]) -> tuple[Table, Table]:
    means: list[tuple[str | float, ...]] = []
    spreads: list[tuple[str | float, ...]] = []
    models = len(results[DOTA, CLEAN])
    for method in dict.fromkeys(method for method, _ in results):
        shifted = accuracy_per_model(results, method, *SHIFTS)
        by_order = 100 * torch.stack([results[method, stream].double().mean(2) for stream in SHIFTS]).mean(0)
        orders = by_order.shape[1]
        cells = [
            round(fmean(accuracy_per_model(results, method, stream)), 2) if (method, stream) in results else "-"
            for stream in streams
        ]
        means.append((method, f"{models} x {orders}", round(fmean(shifted), 2), *cells))
        deviation = round(stdev(shifted), 2) if models > 1 else "-"
        widest = round(float((by_order.amax(1) - by_order.amin(1)).max()), 2) if orders > 1 else "-"
        spreads.append((method, *(round(value, 2) for value in shifted), deviation, widest))
    numbered = tuple(f"model {seed}" for seed in range(models))
    return (
        Table(
            "Top-1 accuracy in %, mean over model seeds and stream orders",
            ("method", "models x orders", "mean of the five corruptions", *streams),
            tuple(means),
        ),
        Table(
            "Mean of the five corruptions by model seed",
            ("method", *numbered, "standard deviation", "widest range over stream orders"),
            tuple(spreads),
        ),
    )


def _notes(results: Results) -> tuple[str, ...]:
    def mean(method: str, *streams: str) -> str:
        return f"{fmean(accuracy_per_model(results, method, *streams)):.2f} %"

    ablation = f"at the defaults {mean(FIXED, *SHIFTS)} against {mean(DOTA, *SHIFTS)}"
    if (DOTA_3, CLEAN) in results and (FIXED_3, CLEAN) in results:
        ablation += f", at eta 3 and rho 0.05 {mean(FIXED_3, *SHIFTS)} against {mean(DOTA_3, *SHIFTS)}"
    return (
        "Not reproduced and not claimed: the paper's ablation, that updating the covariance helps. On the mean of the "
        f"five corruptions a covariance that is never updated gives, against the full method, {ablation}; on clean "
        f"images {mean(FIXED, CLEAN)} against {mean(DOTA, CLEAN)}.",
        "Only DOTA at its defaults is claimed. The other DOTA rows are shown as they come out and are no fair claims: "
        "such settings had been tried on streams of this kind, with labels in view, before this one was set up.",
        "Training and the strengths of the corruptions were chosen on the 900 training images alone, by the zero-shot "
        "accuracy on 150 of them held back from training; no adapted result was looked at.",
        "The encoders are tiny and trained here, on digits: this shows the method at work, not the paper's numbers, "
        "which need CLIP's weights. TDA runs with its positive cache only.",
        "The paper has no MNIST stream; that claim is this experiment's own. MNIST digits are cropped, enlarged, "
        "thresholded and counted in blocks, as the UCI digits once were.",
    )


def _settings(plan: Plan) -> dict[str, object]:
    return {
        "model seeds": list(range(plan.models)),
        "stream orders": list(range(plan.orders)),
        "images": f"{digits.TRAINING_IMAGES} for training, {plan.images} a stream, {plan.mnist_images} of MNIST",
        "streams": "one image at a time, one view; on MNIST: " + ", ".join(ON_MNIST),
        "corruptions": list(SHIFTS),
        "model": f"CNN and GRU, D={tiny_clip.DIMENSION}, learned logit scale, templates {list(tiny_clip.TEMPLATES)}",
        "training": f"AdamW, {plan.epochs} epochs, batch {tiny_clip.BATCH_SIZE}, rate {tiny_clip.LEARNING_RATE:g}",
        "methods": {name: dataclasses.asdict(config) for name, config in plan.methods().items() if config},
    }


def experiment(plan: Plan, folder: Path, budget: ReproduceBudget = "quick") -> Reproduction:
    """Trains, streams, judges and draws.

    Args:
        plan: how much.
        folder: where the figure goes.
        budget: name of the plan in the result.

    Returns:
        Claims, tables and notes; a missing MNIST asset leaves its claim "not run", with the command that fetches it.

    Raises:
        ImportError: scikit-learn or matplotlib is missing; names the extra.
    """
    require("matplotlib", "dota-clip[reproduce]")  # before the work, not after it
    training, held_out = digits.uci_digits()
    held_out = Images(held_out.pixels[: plan.images], held_out.labels[: plan.images])
    streams = {name: Images(corrupt(held_out.pixels), held_out.labels) for name, corrupt in CORRUPTIONS.items()}
    streams[CLEAN] = held_out
    mnist_missing = ""
    try:
        streams[MNIST] = digits.mnist_digits(find_asset("mnist"), plan.mnist_images)
    except AssetMissing as missing:
        mnist_missing = str(missing)
    results = run_streams(plan.jobs(streams), training, streams, range(plan.models), range(plan.orders), plan.epochs)
    plot = draw(folder / "digits.png", results, tuple(MAIN_METHODS), SHIFTS, tuple(streams)[len(SHIFTS) :])
    return Reproduction(
        package="dota-clip",
        method="DOTA: distributional test-time adaptation of vision-language models (arXiv 2409.19375)",
        claims=_claims(results, mnist_missing),
        tables=_tables(results, streams),
        notes=_notes(results),
        plots=(plot.name,),
        budget=budget,
        settings=_settings(plan),
    )


def run(budget: ReproduceBudget, folder: Path) -> Reproduction:
    """The experiment in its quick form (3 models, 3 orders, four methods) or in full (5 models, all rows)."""
    return experiment(PLANS[budget], folder, budget)


if __name__ == "__main__":
    reproduce_main(run)
