"""What all parts of the experiment share: seeded adapters, one full-batch trainer, merged copies."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from peft import LoraConfig, PeftConfig, PeftModel, get_peft_model
from torch import Tensor, nn

from lora_anl.config import AuroraConfig
from lora_anl.layer import StaticMergeWarning
from lora_anl.merge import merge_calibrated

SCALING = 2.0  # alpha / r of every adapter: 4 / 2, the paper's


@contextmanager
def one_thread() -> Iterator[None]:
    """Small matrices lose time to threads; and sums then do not depend on how many cores there are."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def lora(rank: int, targets: Sequence[str], **settings: Any) -> PeftConfig:
    """LoRA at the experiment's scaling."""
    return LoraConfig(r=rank, lora_alpha=round(SCALING * rank), target_modules=list(targets), **settings)


def aurora(rank: int, targets: Sequence[str], **settings: Any) -> AuroraConfig:
    """AuroRA at the experiment's scaling, with leave to merge as the paper does."""
    alpha = SCALING * rank
    return AuroraConfig(r=rank, aurora_alpha=alpha, target_modules=list(targets), merge_policy="static", **settings)


def adapted(base: nn.Module, config: PeftConfig, seed: int) -> PeftModel:
    """A copy of ``base`` with an adapter whose random weights follow from ``seed`` alone."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return get_peft_model(copy.deepcopy(base), config)


def trainable(model: nn.Module) -> int:
    """The number of parameters that train."""
    return sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)


def fit(model: nn.Module, loss: Callable[[Tensor], Tensor], x: Tensor, learning_rate: float, steps: int) -> None:
    """Full-batch Adam on what trains; ``loss`` takes the model's output on ``x``."""
    optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=learning_rate, fused=True)
    model.train()
    for _ in range(steps):
        optimizer.zero_grad()
        loss(model(x)).backward()
        optimizer.step()
    model.eval()


def statically_merged(model: PeftModel) -> nn.Module:
    """A merged copy by the paper's policy, B sigma(A) for B sigma(A x); of a static adapter the exact merge."""
    merged = copy.deepcopy(model)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", StaticMergeWarning)  # what it warns of is what is measured here
        base: nn.Module = merged.merge_and_unload()
    return base


def calibrated_merge(model: PeftModel, batches: Sequence[Any]) -> nn.Module:
    """A copy merged by the linear maps that fit the adapter best on ``batches``."""
    return merge_calibrated(copy.deepcopy(model), batches)
