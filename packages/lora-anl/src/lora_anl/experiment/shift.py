"""The negative result: a small GELU MLP that reads digits is adapted to the same digits rotated and inverted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean
from typing import NamedTuple

import torch
from peft import PeftConfig
from torch import Tensor, nn
from torch.nn import functional

from lora_anl.experiment.training import (
    adapted,
    aurora,
    calibrated_merge,
    fit,
    lora,
    statically_merged,
    trainable,
)
from nips_common.runtime import require

LAYERS = ("0", "2", "4", "6")  # of the MLP: every linear layer is adapted
WIDTH, CLASSES = 64, 10
TRAINING_ROWS, VALIDATION_ROWS, SPLIT_SEED = 1000, 200, 0
PRETRAINING_RATE, PRETRAINING_STEPS, STEPS = 3e-3, 200, 300
RATES = (3e-3, 1e-2, 3e-2)

LORA_1, LORA_2, POOLED = "LoRA r=1", "LoRA r=2", "AuroRA r=2"
PER_CHANNEL, STATIC_1, STATIC_2 = "AuroRA r=2, per channel", "AuroRA-S r=1", "AuroRA-S r=2"
CONFIGS: dict[str, PeftConfig] = {
    LORA_1: lora(1, LAYERS),
    LORA_2: lora(2, LAYERS),
    POOLED: aurora(2, LAYERS),
    PER_CHANNEL: aurora(2, LAYERS, spline_mode="per_channel"),
    STATIC_1: aurora(1, LAYERS, forward_mode="static"),
    STATIC_2: aurora(2, LAYERS, forward_mode="static"),
}


class Split(NamedTuple):
    """Digits as read, ``(n, 64)`` in [0, 1], the same shifted, and their labels ``(n,)``."""

    original: Tensor
    shifted: Tensor
    labels: Tensor


@dataclass(frozen=True)
class Shifted:
    """One method over the seeds: its rate, parameters, and accuracies in per cent, one a seed."""

    rate: float
    parameters: int
    accuracy: tuple[float, ...]
    merged: tuple[float, ...] = ()
    calibrated: tuple[float, ...] = ()


def splits() -> tuple[Split, Split, Split]:
    """Training, validation and test digits; shifted means turned by a quarter and bright for dark."""
    bunch = require("sklearn.datasets", "lora-anl[reproduce]").load_digits()
    images, labels = torch.from_numpy(bunch.images).float() / 16, torch.from_numpy(bunch.target).long()
    shifted = 1 - images.rot90(1, (1, 2))
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(SPLIT_SEED))
    bounds = (0, TRAINING_ROWS, TRAINING_ROWS + VALIDATION_ROWS, len(order))
    parts = (order[begin:end] for begin, end in pairwise(bounds))
    training, validation, test = (Split(images[p].flatten(1), shifted[p].flatten(1), labels[p]) for p in parts)
    return training, validation, test


def pretrained(training: Split, seed: int, steps: int = PRETRAINING_STEPS) -> nn.Sequential:
    """The MLP with three hidden layers of 64, trained on the digits as they are, and then frozen."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        hidden = [module for _ in range(3) for module in (nn.Linear(WIDTH, WIDTH), nn.GELU())]
        model = nn.Sequential(*hidden, nn.Linear(WIDTH, CLASSES))
    _fit(model, training.original, training.labels, PRETRAINING_RATE, steps)
    return model.requires_grad_(False)


def _fit(model: nn.Module, x: Tensor, labels: Tensor, rate: float, steps: int) -> None:
    fit(model, lambda output: functional.cross_entropy(output, labels), x, rate, steps)


@torch.no_grad()
def accuracy(model: nn.Module, split: Split) -> float:
    """In per cent, on the shifted digits."""
    return 100 * float((model(split.shifted).argmax(1) == split.labels).double().mean())


def adapt(name: str, bases: Sequence[nn.Sequential], rates: Sequence[float], steps: int = STEPS) -> Shifted:
    """Adapts every base at every rate, takes the rate that is best on validation, and only then looks at the test."""
    training, validation, test = splits()
    models = {rate: [adapted(base, CONFIGS[name], seed) for seed, base in enumerate(bases)] for rate in rates}
    for rate, of_rate in models.items():
        for model in of_rate:
            _fit(model, training.shifted, training.labels, rate, steps)
    best = max(rates, key=lambda rate: fmean(accuracy(model, validation) for model in models[rate]))
    chosen = models[best]
    result = Shifted(best, trainable(chosen[0]), tuple(accuracy(model, test) for model in chosen))
    if name in (LORA_1, LORA_2):
        return result
    merged = tuple(accuracy(statically_merged(model), test) for model in chosen)
    calibrated = tuple(accuracy(calibrated_merge(model, [training.shifted]), test) for model in chosen)
    return Shifted(best, result.parameters, result.accuracy, merged, calibrated)


def run_shift(
    names: Sequence[str], seeds: int, rates: Mapping[str, Sequence[float]], steps: int = STEPS
) -> tuple[float, Mapping[str, Shifted]]:
    """The mean test accuracy without adaptation, and every named method on seeds 0 .. seeds - 1."""
    training, _, test = splits()
    bases = [pretrained(training, seed) for seed in range(seeds)]
    return fmean(accuracy(base, test) for base in bases), {
        name: adapt(name, bases, rates[name], steps) for name in names
    }
