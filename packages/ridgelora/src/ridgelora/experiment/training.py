"""What all parts of the experiment share: seeded adapters and one trainer with a linear decay."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
from peft import LoraConfig, PeftConfig, get_peft_model
from torch import Tensor, nn

from ridgelora.config import RidgeLoraConfig
from ridgelora.initialisation import Init

SCALING = 2.0  # alpha / r of every adapter


@contextmanager
def one_thread() -> Iterator[None]:
    """Small matrices lose time to threads; and sums then do not depend on how many cores there are."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def lora(rank: int, targets: Sequence[str]) -> PeftConfig:
    """LoRA at the experiment's scaling."""
    return LoraConfig(r=rank, lora_alpha=round(SCALING * rank), target_modules=list(targets))


def ridge(rank: int, targets: Sequence[str], init: Init = "exact") -> PeftConfig:
    """RidgeLoRA at the experiment's scaling."""
    return RidgeLoraConfig(r=rank, ridgelora_alpha=SCALING * rank, init_weights=init, target_modules=list(targets))


def prepared(base: nn.Module, config: PeftConfig | None, targets: Sequence[str], seed: int) -> nn.Module:
    """A copy of a frozen model with an adapter drawn from ``seed``, or with the targets' weights set free."""
    model = copy.deepcopy(base)
    if config is None:
        for name in targets:
            model.get_parameter(f"{name}.weight").requires_grad_(True)
        return model
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        adapted: nn.Module = get_peft_model(model, copy.deepcopy(config))
    return adapted


def trainable(model: nn.Module) -> int:
    """The number of parameters that train."""
    return sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)


def fit(
    model: nn.Module,
    loss: Callable[[Tensor, Tensor], Tensor],
    x: Tensor,
    target: Tensor,
    rate: float,
    epochs: int,
    batch: int,
    seed: int,
    weight_decay: float = 0.0,
) -> None:
    """AdamW on what trains, in shuffled batches, the rate falling linearly to 0; ``loss`` takes output and target."""
    generator = torch.Generator().manual_seed(seed)
    steps = epochs * -(-len(x) // batch)
    optimizer = torch.optim.AdamW(
        [p for p in model.parameters() if p.requires_grad], lr=rate, weight_decay=weight_decay
    )
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 - step / steps)
    model.train()
    for _ in range(epochs):
        for rows in torch.randperm(len(x), generator=generator).split(batch):
            optimizer.zero_grad()
            loss(model(x[rows]), target[rows]).backward()
            optimizer.step()
            schedule.step()
    model.eval()
