"""What a training run tells about itself: the official log's keys, and why and how it ended."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any, Literal

from nips_common.artifacts import check_keys, read_json, write_json

StopReason = Literal["decided", "empty subnetwork", "max_steps"]


def finite_or_none(value: Any) -> Any:
    """The value; None for a number that is not finite, which JSON cannot say."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


@dataclasses.dataclass
class TrainLog:
    """One trained mask, under the names that the official log files use; the last five fields are ours.

    Args:
        outpath: file of the mask; None until it is saved.
        model_dir: hub id or folder of the base model.
        checkpoint: revision of the base model, where one was chosen.
        train_inputs: where the training sequences came from.
        train_steps: micro-batches that were used.
        max_steps: most micro-batches.
        grad_acc_steps: micro-batches per optimiser step.
        learning_rate: of AdamW.
        batch_size: sequences in a micro-batch.
        temp_increase: factor of the temperature after every optimiser step.
        l0_lambda: weight of the mean soft mask.
        mask_size: entries that are kept.
        target_layers: modules whose weights are masked.
        xent_loss_per_step: mean cross-entropy to the target, one value an optimiser step, in nats.
        proportion_kept: share of the entries that are kept.
        ngram_n: order of the n-gram evaluation, where there was one.
        ngram_correlation: r of the surprisals with infinite ones clamped.
        ngram_xent: cross-entropy to the n-gram distribution.
        ngram_corr_dropinf: r of the surprisals without tokens of infinite n-gram surprisal.
        distill_correlation: r with the full model's surprisal.
        distill_xent: cross-entropy to the full model's distribution.
        stop_reason: "decided" (the stop rule), "empty subnetwork" (every mask below 0.1) or "max_steps".
        stable: whether the loss curve is stable.
        attempt: number of the run that is told about, from 1.
        seed: of its order of the data.
        temperature: beta at the end.
    """

    outpath: str | None
    model_dir: str | None
    checkpoint: str | None
    train_inputs: str | None
    train_steps: int
    max_steps: int
    grad_acc_steps: int
    learning_rate: float
    batch_size: int
    temp_increase: float
    l0_lambda: float
    mask_size: int
    target_layers: list[str]
    xent_loss_per_step: list[float]
    proportion_kept: float
    ngram_n: int | None = None
    ngram_correlation: float | None = None
    ngram_xent: float | None = None
    ngram_corr_dropinf: float | None = None
    distill_correlation: float | None = None
    distill_xent: float | None = None
    stop_reason: StopReason = "max_steps"
    stable: bool = True
    attempt: int = 1
    seed: int = 0
    temperature: float = 1.0

    def save(self, path: str | Path) -> None:
        """Writes the log as JSON, atomically; numbers that are not finite become null."""
        data = {name: finite_or_none(value) for name, value in dataclasses.asdict(self).items()}
        write_json(path, data | {"xent_loss_per_step": [finite_or_none(loss) for loss in self.xent_loss_per_step]})

    @classmethod
    def load(cls, path: str | Path) -> TrainLog:
        """Reads what :meth:`save` wrote.

        Raises:
            FileNotFoundError: there is no such file.
            ValueError: no JSON, or unknown or missing keys.
        """
        data: dict[str, Any] = read_json(path)
        names = [field.name for field in dataclasses.fields(cls)]
        check_keys(data, names, names, str(path))
        losses = [math.nan if loss is None else loss for loss in data["xent_loss_per_step"]]
        return cls(**{**data, "xent_loss_per_step": losses})
