"""The nuclear norm of M - I and its gradient at d = 2048: both fast routes against the full decomposition."""

from __future__ import annotations

import time
from typing import Any

import pytest
import torch
from torch import Tensor

from ridgelora import RidgeNorm, ridge_init, ridge_nuclear_norm

WIDTH = 2048


def adapter(rank: int, moved: int | None) -> list[Tensor]:
    """As after some training: of the ridge, ``moved`` entries have left 1, or all."""
    torch.manual_seed(0)
    lam, sigma, A, B = ridge_init(WIDTH, rank, 16)
    step = 0.05 * torch.randn(WIDTH)
    sigma = sigma + (step if moved is None else step * (torch.arange(WIDTH) < moved))
    return [lam, sigma, A + 0.02 * torch.randn_like(A), B + 0.02 * torch.randn_like(B)]


def run(parts: list[Tensor], scaling: float, route: str) -> tuple[float, RidgeNorm, Tensor]:
    """Seconds of processor time of forward and backward, the norm, and the gradient of all parts in one vector."""
    leaves = [part.clone().requires_grad_() for part in parts]
    start = time.process_time()
    norm = ridge_nuclear_norm(*leaves, scaling, route=route)
    norm.value.backward()
    seconds = time.process_time() - start
    return seconds, norm, torch.cat([leaf.grad.flatten() for leaf in leaves])


@pytest.mark.parametrize("rank", [8, 64])
@pytest.mark.parametrize(("moved", "route", "target"), [(64, "low_rank", 20), (None, "rational", 5)])
def test_the_time_and_the_error_of_a_norm(
    moved: int | None, route: str, target: int, rank: int, benchmark: Any, report: list[str]
) -> None:
    parts, scaling = adapter(rank, moved), 16 / rank
    slow, full, reference = run(parts, scaling, "svd")
    benchmark.group = f"nuclear norm, {route}"
    fast, norm, gradient = benchmark.pedantic(lambda: run(parts, scaling, "auto"), rounds=3, warmup_rounds=1)
    assert norm.route == route
    error = abs(float(norm.value) - float(full.value)) / float(full.value)
    turned = 1 - float(torch.nn.functional.cosine_similarity(gradient, reference, dim=0))
    # in double precision the threshold below which singular values count as 0 is out of the way
    _, exact, exact_gradient = run([part.double() for part in parts], scaling, "svd")
    exact_error = abs(float(norm.value) - float(exact.value)) / float(exact.value)
    exact_turned = 1 - float(torch.nn.functional.cosine_similarity(gradient.double(), exact_gradient, dim=0))
    report.append(
        f"{'norm ' + route:14} r={rank:<3} {fast:6.3f} s, svd {slow:6.2f} s   {slow / fast:.0f} times faster   "
        f"(at least {target}); value {error:.0e} and 1 - cosine of the gradient {turned:.0e} from the float32 svd, "
        f"{exact_error:.0e} and {exact_turned:.0e} from the float64 svd"
    )
    if route == "low_rank":
        assert error <= 1e-4
