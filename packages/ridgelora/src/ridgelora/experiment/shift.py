"""A small MLP that reads digits is adapted to digits seen through a changed sensor, or turned and inverted.

"drift": every pixel is multiplied by a gain of its own, and the first layer alone is adapted with 200 images; what
changed is a diagonal in front of that layer. "rotation": a quarter turn, bright for dark, and all three hidden layers
are adapted with all training images; nothing about it is diagonal. Rates are chosen on validation images.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np
import torch
from peft import PeftConfig, PeftModel
from torch import Tensor, nn
from torch.nn import functional

from nips_common.runtime import require
from ridgelora.experiment.training import fit, lora, prepared, ridge, trainable

WIDTH, CLASSES, SPLIT_SEED, GAIN_SEED = 64, 10, 0, 0
PRETRAINING_EPOCHS, PRETRAINING_RATE = 40, 3e-3
EPOCHS, BATCH, VALIDATION_ROWS = 30, 64, 200
RATES, FULL_RATES = (1e-2, 3e-2), (3e-3, 1e-2)

RIDGE, GAUSSIAN, CALIBRATED = "RidgeLoRA r=2", "RidgeLoRA r=2, published start", "RidgeLoRA r=2, calibrated start"
LORA_2, LORA_3, FULL = "LoRA r=2", "LoRA r=3", "full fine-tuning of the adapted layers"


class Digits(NamedTuple):
    """Images ``(n, 64)`` in [0, 1] and labels ``(n,)``."""

    images: Tensor
    labels: Tensor


@dataclass(frozen=True)
class Shift:
    """What changes, which layers are adapted, and with how many images (None: all but the validation ones)."""

    name: str
    targets: tuple[str, ...]
    rows: int | None

    def changed(self, images: Tensor) -> Tensor:
        """The images after the change, ``(n, 64)``."""
        if self.name == "drift":
            gains = np.exp(np.random.default_rng(GAIN_SEED).normal(size=WIDTH))
            return images * torch.from_numpy(gains).float()
        return 1 - images.view(-1, 8, 8).rot90(1, (1, 2)).flatten(1)

    def configs(self) -> dict[str, PeftConfig | None]:
        """The methods; None: full fine-tuning."""
        return {
            RIDGE: ridge(2, self.targets),
            GAUSSIAN: ridge(2, self.targets, "gaussian"),
            CALIBRATED: ridge(2, self.targets, "gaussian_calibrated"),
            LORA_2: lora(2, self.targets),
            LORA_3: lora(3, self.targets),
            FULL: None,
        }


DRIFT, ROTATION = Shift("drift", ("0",), 200), Shift("rotation", ("0", "2", "4"), None)


@dataclass(frozen=True)
class Adapted:
    """One method over the seeds: its rate, parameters, accuracies in per cent, and what merging changes at most."""

    rate: float
    parameters: int
    accuracy: tuple[float, ...]
    merge_change: tuple[float, ...] = ()


def splits() -> tuple[Digits, Digits]:
    """Training and test digits, 60 and 40 per cent, stratified."""
    bunch = _sklearn("datasets").load_digits()
    parts = _sklearn("model_selection").train_test_split(
        bunch.data.astype("float32") / 16,
        bunch.target.astype("int64"),
        test_size=0.4,
        stratify=bunch.target,
        random_state=SPLIT_SEED,
    )
    training_x, test_x, training_y, test_y = (torch.from_numpy(part) for part in parts)
    return Digits(training_x, training_y), Digits(test_x, test_y)


def pretrained(training: Digits, seed: int, epochs: int = PRETRAINING_EPOCHS) -> nn.Sequential:
    """The MLP with three hidden layers of 64, trained on the digits as they are, and then frozen."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        hidden = [module for _ in range(3) for module in (nn.Linear(WIDTH, WIDTH), nn.GELU())]
        model = nn.Sequential(*hidden, nn.Linear(WIDTH, CLASSES))
    fit(model, functional.cross_entropy, *training, PRETRAINING_RATE, epochs, BATCH, seed, weight_decay=0.01)
    return model.requires_grad_(False)


@torch.no_grad()
def accuracy(model: nn.Module, digits: Digits) -> float:
    """In per cent."""
    return 100 * float((model(digits.images).argmax(1) == digits.labels).double().mean())


def run_shift(
    shift: Shift, bases: Sequence[nn.Sequential], rates: Mapping[str, Sequence[float]], epochs: int = EPOCHS
) -> tuple[float, dict[str, Adapted]]:
    """Adapts every base by every method at every rate, and looks at the test digits with the best rate only.

    Args:
        shift: What changes.
        bases: One pretrained MLP a seed.
        rates: The methods to run, with their rates.
        epochs: Of each adaptation.

    Returns:
        The mean test accuracy without adaptation, and the methods.
    """
    training, test = (Digits(shift.changed(digits.images), digits.labels) for digits in splits())
    validation = Digits(*(part[-VALIDATION_ROWS:] for part in training))
    rest = Digits(*(part[:-VALIDATION_ROWS][: shift.rows] for part in training))
    configs, results = shift.configs(), {}
    for name, of_name in rates.items():
        models: dict[float, list[nn.Module]] = {}
        for rate in of_name:
            models[rate] = [prepared(base, configs[name], shift.targets, seed) for seed, base in enumerate(bases)]
            for seed, model in enumerate(models[rate]):
                fit(model, functional.cross_entropy, *rest, rate, epochs, BATCH, seed)
        best = max(of_name, key=lambda rate: fmean(accuracy(model, validation) for model in models[rate]))
        chosen = models[best]
        results[name] = Adapted(
            best,
            trainable(chosen[0]),
            tuple(accuracy(model, test) for model in chosen),
            tuple(merge_change(model, test.images) for model in chosen if isinstance(model, PeftModel)),
        )
    return fmean(accuracy(base, test) for base in bases), results


@torch.no_grad()
def merge_change(model: PeftModel, images: Tensor) -> float:
    """The greatest change of an output by merging, relative to the greatest output."""
    apart = model(images)
    merged: nn.Module = copy.deepcopy(model).merge_and_unload()
    return float((merged(images) - apart).abs().max() / apart.abs().max())


def _sklearn(module: str) -> Any:
    return require(f"sklearn.{module}", "ridgelora[reproduce]")
