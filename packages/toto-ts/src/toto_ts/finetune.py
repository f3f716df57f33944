"""Fine-tuning, and pre-training from scratch, of a model on series: the official recipe on transformers' Trainer."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Sequence
from dataclasses import field
from pathlib import Path
from typing import Any, Literal, get_args

from nips_common.runtime import require
from toto_ts.losses import CompositeLoss
from toto_ts.missing import Fill, check_fill
from toto_ts.model import Toto
from toto_ts.windows import SeriesInput, Split, TrainingWindows, ValidationWindows, read_series, split_series

Precision = Literal["float32", "bf16", "fp16"]


@dataclasses.dataclass(frozen=True)
class FinetuneConfig:
    """The recipe; the defaults are those of the official shipped configuration.

    Args:
        output_dir: folder of the best model and of the checkpoints; None keeps nothing on disk beyond the run.
        seed: of windows, dropout and new weights.
        learning_rate: highest rate.
        min_lr: rate at both ends of the schedule.
        warmup_steps: of the schedule (see `WarmupStableDecay`).
        stable_steps: of the schedule.
        decay_steps: of the schedule.
        max_steps: optimizer steps.
        context_patches: length of the context in patches, clipped to what the shortest series allows.
        horizon: steps that the test part of a series must hold; shorter series are dropped.
        test_fraction: share at the end of each series that training never sees.
        train_batch_size: windows a step and process.
        val_batch_size: windows of validation at once.
        gradient_accumulation_steps: batches a step.
        windows_per_series: windows drawn of each series an epoch.
        val_interval: steps between two validations, which are also when checkpoints are written; the best is kept.
        val_prediction_len: only so many valid steps at the end of a validation window count.
        lambda_nll: weight of the likelihood in the loss.
        delta: scale of the robust loss.
        alpha: shape of the robust loss.
        weight_decay: of AdamW, on all parameters.
        adam_beta1: of AdamW.
        adam_beta2: of AdamW.
        adam_epsilon: of AdamW.
        max_grad_norm: gradients are clipped to this norm; 0 leaves them.
        fill: what the network sees at missing points, as in `TotoForecaster`.
        precision: float32, or mixed precision in bf16 or fp16.
        device: auto, or cpu.
        logging_steps: steps between two logs of the loss.
        dataloader_workers: processes that cut windows.
        trainer_options: further `TrainingArguments` of transformers, by name.

    Raises:
        ValueError: a value outside its range; the message names it.
    """

    output_dir: str | None = field(default=None, metadata={"help": "folder to write to"})
    seed: int = field(default=42, metadata={"help": "of windows, dropout and new weights"})
    learning_rate: float = field(default=4e-5, metadata={"help": "highest rate"})
    min_lr: float = field(default=1e-5, metadata={"help": "rate at both ends of the schedule"})
    warmup_steps: int = field(default=1000, metadata={"help": "steps of linear warm-up"})
    stable_steps: int = field(default=200, metadata={"help": "steps at the highest rate"})
    decay_steps: int = field(default=200, metadata={"help": "steps of decay"})
    max_steps: int = field(default=1400, metadata={"help": "optimizer steps"})
    context_patches: int = field(default=8, metadata={"help": "length of the context in patches"})
    horizon: int = field(default=0, metadata={"help": "steps that the test part of a series must hold"})
    test_fraction: float = field(default=0.1, metadata={"help": "share of each series that training never sees"})
    train_batch_size: int = field(default=16, metadata={"help": "windows a step and process"})
    val_batch_size: int = field(default=1, metadata={"help": "windows of validation at once"})
    gradient_accumulation_steps: int = field(default=1, metadata={"help": "batches a step"})
    windows_per_series: int = field(default=100, metadata={"help": "windows of each series an epoch"})
    val_interval: int = field(default=100, metadata={"help": "steps between two validations and checkpoints"})
    val_prediction_len: int = field(default=96, metadata={"help": "last steps of a validation window that count"})
    lambda_nll: float = field(default=0.575, metadata={"help": "weight of the likelihood in the loss"})
    delta: float = field(default=0.1, metadata={"help": "scale of the robust loss"})
    alpha: float = field(default=0.0, metadata={"help": "shape of the robust loss"})
    weight_decay: float = field(default=0.01, metadata={"help": "of AdamW"})
    adam_beta1: float = field(default=0.9, metadata={"help": "of AdamW"})
    adam_beta2: float = field(default=0.999, metadata={"help": "of AdamW"})
    adam_epsilon: float = field(default=1e-7, metadata={"help": "of AdamW"})
    max_grad_norm: float = field(default=0.0, metadata={"help": "clip gradients to this norm; 0 leaves them"})
    fill: Fill = field(default="mean", metadata={"help": "what the network sees at missing points"})
    precision: Precision = field(default="float32", metadata={"help": "float32, bf16 or fp16 (mixed)"})
    device: Literal["auto", "cpu"] = field(default="auto", metadata={"help": "auto or cpu"})
    logging_steps: int = field(default=10, metadata={"help": "steps between two logs of the loss"})
    dataloader_workers: int = field(default=0, metadata={"help": "processes that cut windows"})
    trainer_options: dict[str, Any] | str | None = field(
        default=None, metadata={"help": "further TrainingArguments, as JSON"}
    )

    def __post_init__(self) -> None:
        for name in ("max_steps", "context_patches", "train_batch_size", "val_batch_size", "windows_per_series"):
            self._at_least(name, 1)
        for name in ("gradient_accumulation_steps", "val_interval", "val_prediction_len", "logging_steps"):
            self._at_least(name, 1)
        for name in ("seed", "warmup_steps", "stable_steps", "decay_steps", "horizon", "dataloader_workers"):
            self._at_least(name, 0)
        for name in ("learning_rate", "min_lr", "test_fraction", "weight_decay", "max_grad_norm", "adam_epsilon"):
            self._number(name, math.inf)
        for name in ("adam_beta1", "adam_beta2"):
            self._number(name, 1)
        if not (0 <= self.min_lr <= self.learning_rate and 0 < self.learning_rate < math.inf):
            raise ValueError(
                f"learning_rate must be finite, above 0 and at least min_lr={self.min_lr}, got {self.learning_rate}"
            )
        if not self.test_fraction < 1:
            raise ValueError(f"test_fraction must be in [0, 1), got {self.test_fraction}")
        check_fill(self.fill)
        for name, options in (("precision", Precision), ("device", Literal["auto", "cpu"])):
            if getattr(self, name) not in get_args(options):
                raise ValueError(f"{name} must be one of {', '.join(get_args(options))}, got {getattr(self, name)!r}")
        if isinstance(self.trainer_options, str):  # from a flag
            object.__setattr__(self, "trainer_options", _json_object("trainer_options", self.trainer_options))
        self.loss  # noqa: B018 - validates its three values

    def _at_least(self, name: str, least: int) -> None:
        value = getattr(self, name)
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise ValueError(f"{name} must be a whole number of at least {least}, got {value!r}")

    def _number(self, name: str, end: float) -> None:
        value = getattr(self, name)
        if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 <= value < end:
            raise ValueError(f"{name} must be a number of at least 0 and below {end}, got {value!r}")

    @property
    def loss(self) -> CompositeLoss:
        """The element-wise loss."""
        return CompositeLoss(self.lambda_nll, self.delta, self.alpha)


def _json_object(name: str, text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError as error:
        raise ValueError(f"{name} must be a JSON object: {error}") from error
    if not isinstance(value, dict):
        raise ValueError(f"{name} must be a JSON object, got {text!r}")
    return value


@dataclasses.dataclass(frozen=True)
class FinetuneResult:
    """What a run gave.

    Args:
        model: with its best weights, in evaluation mode.
        best_val_loss: of them.
        history: the log: losses by step, validation losses, learning rates.
        checkpoint_dir: folder that `Toto.from_pretrained` reads, or None without `output_dir`.
    """

    model: Toto
    best_val_loss: float
    history: list[dict[str, Any]]
    checkpoint_dir: Path | None


@dataclasses.dataclass(frozen=True)
class TrainingData:
    """A dataset as a run sees it.

    Args:
        split: of the series.
        train: windows of all steps.
        validation: a window a series.
    """

    split: Split
    train: TrainingWindows
    validation: ValidationWindows

    @property
    def num_exogenous(self) -> int:
        """Known-future variates of each series."""
        return len(self.split.series[0].exogenous)


def prepare_data(
    dataset: Sequence[SeriesInput], patch_size: int, config: FinetuneConfig, processes: int = 1
) -> TrainingData:
    """Split the series and lay out the windows of every step.

    Raises:
        ValueError: series that do not fit or are all too short.
    """
    split = split_series(read_series(dataset), patch_size, config.horizon, config.context_patches, config.test_fraction)
    count = config.max_steps * config.train_batch_size * config.gradient_accumulation_steps * processes
    train = TrainingWindows(split, patch_size, config.windows_per_series, count, config.seed)
    return TrainingData(split, train, ValidationWindows(split, patch_size))


def finetune(model: Toto, dataset: Sequence[SeriesInput], config: FinetuneConfig | None = None) -> FinetuneResult:
    """Train all parameters of a model; the best weights by validation loss are kept.

    Args:
        model: trained in place; from a checkpoint, or random for pre-training. Variate labels are added if the series
            have exogenous values.
        dataset: arrays `(variates, time)`, or mappings with "target" `(variates, time)` and "exogenous"
            `(exogenous, time)` on the same clock, which is moved one patch into the past inside.
        config: the recipe.

    Returns:
        The model with its best weights, and the log.

    Raises:
        ImportError: the extra `train` is not installed.
        ValueError: series that do not fit or are all too short.
    """
    if not isinstance(model, Toto):
        raise ValueError(f"model must be a Toto, got {type(model).__name__}")
    require("accelerate", "toto-ts[train]")
    require("transformers", "toto-ts[train]")
    from toto_ts.trainer import run_training

    return run_training(model, dataset, config or FinetuneConfig())
