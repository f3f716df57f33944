"""Merging a 4096 x 4096 layer at r = 64 against the product with the explicit transform."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from nips_common.testing.adapter_bench import in_turns
from ridgelora import ridge_init, ridge_merge

WIDTH, RANK = 4096, 64


def explicit(weight: Tensor, lam: Tensor, sigma: Tensor, A: Tensor, B: Tensor, scaling: float) -> Tensor:
    """W M with M formed (paper eq. 2 as written)."""
    return weight @ (torch.diag(lam * sigma) + scaling * B @ A)


def test_the_time_of_a_merge(benchmark: Any, report: list[str]) -> None:
    torch.manual_seed(0)
    weight, *parts = (torch.randn(WIDTH, WIDTH) / 64, *ridge_init(WIDTH, RANK, 16, init="gaussian"))
    assert (ridge_merge(weight, *parts, 16 / RANK) - explicit(weight, *parts, 16 / RANK)).abs().max() <= 1e-5
    benchmark.group = "merge"
    found = in_turns(
        benchmark, lambda: explicit(weight, *parts, 16 / RANK), lambda: ridge_merge(weight, *parts, 16 / RANK), 2
    )
    spent = f"{found['fast']:6.3f} s, explicit {found['slow']:6.2f} s"
    report.append(f"{'merge 4096':14} r={RANK:<3} {spent}   {1 / found['ratio']:.1f} times faster   (at least 10)")
