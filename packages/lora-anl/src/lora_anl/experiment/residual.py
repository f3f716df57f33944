"""A residual that no linear map can hold: the layer's target is base(x) + U sin(2 V x) on real digits, V of rank 2.

AuroRA at rank 2 can represent the structure, LoRA at any rank cannot: its limit is the best linear map on the training
rows, which is full fine-tuning of the layer and is computed in closed form.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import torch
from peft import PeftModel
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
from lora_anl.gap import measure_merge_gap
from nips_common.runtime import require

PIXELS, OUTPUTS, PLANTED_RANK = 64, 32, 2
TRAINING_ROWS, SPLIT_SEED = 1200, 0
LEARNING_RATE, STEPS = 1e-2, 800
RIDGE = 1.0  # of the best linear map on the held-out rows: 1,200 rows of unit variance weigh 1,200

LINEAR, POOLED, PER_CHANNEL, STATIC = "best linear map", "AuroRA r=2", "AuroRA r=2, per channel", "AuroRA-S r=2"
LORA_2, LORA_8 = "LoRA r=2", "LoRA r=8"
CONFIGS = {
    LORA_2: lora(2, ["0"]),
    LORA_8: lora(8, ["0"]),
    POOLED: aurora(2, ["0"]),
    PER_CHANNEL: aurora(2, ["0"], spline_mode="per_channel"),
    STATIC: aurora(2, ["0"], forward_mode="static"),
}


class Task(NamedTuple):
    """The frozen layer and its rows: x ``(n, 64)``, y ``(n, 32)``."""

    base: nn.Sequential
    x: Tensor
    y: Tensor
    held_out_x: Tensor
    held_out_y: Tensor


@dataclass(frozen=True)
class Fit:
    """One method on one seed: mean squared errors, and what merging makes of them (None: nothing to merge)."""

    parameters: int
    training: float
    held_out: float
    merged: float | None = None
    calibrated: float | None = None
    relative_gap: float | None = None
    greatest_change: float | None = None


def standardised_digits() -> tuple[Tensor, Tensor]:
    """The 1,797 digits as training and held-out rows, by the training rows' mean and deviation.

    Pixels that are constant there are dropped from what the layer sees: they stay as columns of zeros, so that the
    layer keeps its 64 inputs.
    """
    pixels = torch.from_numpy(require("sklearn.datasets", "lora-anl[reproduce]").load_digits().data).float()
    order = torch.randperm(len(pixels), generator=torch.Generator().manual_seed(SPLIT_SEED))
    training, held_out = pixels[order[:TRAINING_ROWS]], pixels[order[TRAINING_ROWS:]]
    mean, deviation = training.mean(0), training.std(0)
    varies = deviation > 0
    scale = varies / deviation.where(varies, torch.ones(()))
    return (training - mean) * scale, (held_out - mean) * scale


def planted(seed: int) -> Task:
    """The task of a seed: frozen random layer, U and V; the two projections have unit variance on the training rows."""
    x, held_out_x = standardised_digits()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        base = nn.Sequential(nn.Linear(PIXELS, OUTPUTS)).requires_grad_(False)
        V, U = torch.randn(PLANTED_RANK, PIXELS), torch.randn(OUTPUTS, PLANTED_RANK)
    V = V / (x @ V.T).std(0).unsqueeze(1)
    y, held_out_y = (base(rows) + torch.sin(2 * rows @ V.T) @ U.T for rows in (x, held_out_x))
    return Task(base, x, y, held_out_x, held_out_y)


def best_linear(task: Task) -> Fit:
    """Least squares with a bias; on the held-out rows with a small ridge."""

    def rows(x: Tensor) -> Tensor:
        return torch.cat([x, torch.ones(len(x), 1)], 1).double()

    def error(weight: Tensor, x: Tensor, y: Tensor) -> float:
        return float((rows(x) @ weight - y).square().mean())

    inputs, y = rows(task.x), task.y.double()
    least = torch.linalg.lstsq(inputs, y, driver="gelsd").solution  # columns of zeros: the rank is not full
    ridge = torch.linalg.solve(inputs.T @ inputs + RIDGE * torch.eye(inputs.shape[1]).double(), inputs.T @ y)
    parameters = trainable(nn.Linear(PIXELS, OUTPUTS))
    return Fit(parameters, error(least, task.x, task.y), error(ridge, task.held_out_x, task.held_out_y))


@torch.no_grad()
def mean_squared_error(model: nn.Module, x: Tensor, y: Tensor) -> float:
    """Over all rows and outputs."""
    return float(functional.mse_loss(model(x), y))


def fit_adapter(name: str, task: Task, seed: int, steps: int = STEPS) -> Fit:
    """Trains one of :data:`CONFIGS` and, if it is AuroRA, merges it in the ways there are."""
    model = adapted(task.base, CONFIGS[name], seed)
    fit(model, lambda output: functional.mse_loss(output, task.y), task.x, LEARNING_RATE, steps)
    errors = (mean_squared_error(model, task.x, task.y), mean_squared_error(model, task.held_out_x, task.held_out_y))
    if name in (LORA_2, LORA_8):
        return Fit(trainable(model), *errors)
    return Fit(trainable(model), *errors, *_merged(model, task))


@torch.no_grad()
def _merged(model: PeftModel, task: Task) -> tuple[float, float, float, float]:
    gap = measure_merge_gap(model, [task.x])
    static = statically_merged(model)
    return (
        mean_squared_error(static, task.x, task.y),
        mean_squared_error(calibrated_merge(model, [task.x]), task.x, task.y),
        gap["relative_gap"],
        float((static(task.x) - model(task.x)).abs().max()),
    )


def run_residual(seeds: int, steps: int = STEPS) -> Mapping[str, list[Fit]]:
    """All methods on seeds 0 .. seeds - 1, the best linear map first."""
    fits: dict[str, list[Fit]] = {name: [] for name in (LINEAR, *CONFIGS)}
    for seed in range(seeds):
        task = planted(seed)
        fits[LINEAR].append(best_linear(task))
        for name in CONFIGS:
            fits[name].append(fit_adapter(name, task, seed, steps))
    return fits
