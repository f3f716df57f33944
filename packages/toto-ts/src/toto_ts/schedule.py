"""The warmup-stable-decay learning rate of the official fine-tuning recipe."""

from __future__ import annotations

import math

from torch import Tensor
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler


def learning_rate(step: int, base: float, minimum: float, warmup: int, stable: int, decay: int) -> float:
    """The rate of an optimizer step k, counted from 1.

    k < warmup: min + k/warmup (base - min); then base for `stable` steps; then
    min + (1 - sqrt((k - warmup - stable)/decay)) (base - min); then min.
    """
    if step < warmup:
        return minimum + step / warmup * (base - minimum)
    if step <= warmup + stable:
        return base
    if step < warmup + stable + decay:
        return minimum + (1 - math.sqrt((step - warmup - stable) / decay)) * (base - minimum)
    return minimum


class WarmupStableDecay(LRScheduler):
    """Linear warm-up, constant rate, decay by the square root.

    Args:
        optimizer: its groups are set to the rate of the first update on construction.
        warmup_steps: updates of the warm-up.
        stable_steps: updates at the base rate.
        decay_steps: updates of the decay.
        min_lr: the rate at both ends.
        base_lr: the highest rate; None is each group's own.

    Raises:
        ValueError: a negative number of steps, or a base rate below the minimum.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        warmup_steps: int,
        stable_steps: int,
        decay_steps: int,
        *,
        min_lr: float = 1e-5,
        base_lr: float | None = None,
    ) -> None:
        for name, steps in (("warmup", warmup_steps), ("stable", stable_steps), ("decay", decay_steps)):
            if steps < 0:
                raise ValueError(f"{name}_steps must be at least 0, got {steps}")
        rates = [base_lr] if base_lr is not None else [group["lr"] for group in optimizer.param_groups]
        if not 0 <= min_lr <= min(rates):
            raise ValueError(f"min_lr must be between 0 and the base rate {min(rates)}, got {min_lr}")
        self.steps = warmup_steps, stable_steps, decay_steps
        self.min_lr = min_lr
        self.base_lr = base_lr
        super().__init__(optimizer)

    def get_lr(self) -> list[float | Tensor]:
        """The rate of the next update for each group."""
        bases = self.base_lrs if self.base_lr is None else [self.base_lr] * len(self.base_lrs)
        return [learning_rate(self.last_epoch + 1, float(base), self.min_lr, *self.steps) for base in bases]
