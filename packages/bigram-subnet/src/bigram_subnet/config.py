"""Hyperparameters of continuous sparsification for bigram subnetworks (arXiv 2504.15471), validated on construction."""

from __future__ import annotations

import dataclasses
import math


def _require(holds: bool, name: str, value: object, accepted: str) -> None:
    if not holds:
        raise ValueError(f"{name} must be {accepted}, got {value!r}")


def _number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


@dataclasses.dataclass(frozen=True)
class SparsifyConfig:
    """Hyperparameters of training one mask; the defaults are the paper's (A.2), lambda that of its small models.

    Args:
        l0_lambda: weight of the mean soft mask in the loss; larger is sparser, 0 keeps about half of the weights.
            The paper chose 10 for GPT-2 small and Pythia 160M, 100 for Pythia 1B and GPT-2 large.
        learning_rate: of AdamW on the mask parameters. A rate that is too high for the number of steps is unstable;
            with few steps keep ``learning_rate * max_steps`` near 0.25 to 0.5.
        temperature_factor: multiplies the sigmoid's temperature factor beta after every optimiser step; at least 1.
            With few steps choose it so that the last beta is near 150.
        batch_size: sequences in a micro-batch.
        max_steps: most micro-batches, as the official code counts them; divided by ``grad_accumulation`` (rounded
            down) it is the number of optimiser steps.
        stop_fraction: training stops when fewer entries than this share of the kept ones (mask above 0.9) are
            undecided (0.1 to 0.9); 0 never stops early.
        weight_decay: of AdamW; it pulls mask parameters towards "undecided" (official code: torch's default 0.01).
        attempts: most runs with another order of the data, while the loss curve is unstable.
        grad_accumulation: micro-batches per optimiser step.
        seed: of the order of the data; attempt k uses ``seed + k``.

    Raises:
        ValueError: a value outside its range; the message names field, value and range.
    """

    l0_lambda: float = 10.0
    learning_rate: float = 5e-5
    temperature_factor: float = 1.001
    batch_size: int = 32
    max_steps: int = 15000
    stop_fraction: float = 0.01
    weight_decay: float = 0.01
    attempts: int = 3
    grad_accumulation: int = 1
    seed: int = 0

    def __post_init__(self) -> None:
        _require(_number(self.l0_lambda) and self.l0_lambda >= 0, "l0_lambda", self.l0_lambda, "at least 0")
        rate, factor, stop = self.learning_rate, self.temperature_factor, self.stop_fraction
        _require(_number(rate) and rate > 0, "learning_rate", rate, "above 0")
        _require(_number(factor) and factor >= 1, "temperature_factor", factor, "at least 1")
        for name in ("batch_size", "max_steps", "attempts", "grad_accumulation"):
            value = getattr(self, name)
            _require(_whole(value) and value >= 1, name, value, "a whole number of at least 1")
        _require(_number(stop) and 0 <= stop < 1, "stop_fraction", stop, "in [0, 1)")
        _require(_number(self.weight_decay) and self.weight_decay >= 0, "weight_decay", self.weight_decay, "at least 0")
        _require(_whole(self.seed) and 0 <= self.seed < 2**32, "seed", self.seed, "a whole number in [0, 2**32)")
        _require(
            self.max_steps >= self.grad_accumulation,
            "max_steps",
            self.max_steps,
            f"at least grad_accumulation={self.grad_accumulation} micro-batches, or no optimiser step is made",
        )

    @property
    def optimizer_steps(self) -> int:
        """Most optimiser steps: ``max_steps // grad_accumulation``."""
        return self.max_steps // self.grad_accumulation
