"""How an adapter starts: the published algorithm, its error, and the starts that are the identity."""

from __future__ import annotations

import math
from typing import get_args

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from ridgelora import ridge_init, ridge_init_B, ridge_offset
from ridgelora.initialisation import Init

DENSE = ("gaussian", "kaiming_normal", "kaiming_uniform", "xavier_normal", "xavier_uniform")
IDENTITY = ("exact", "diagonal")


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def transform(lam: Tensor, sigma: Tensor, A: Tensor, B: Tensor, scaling: float) -> Tensor:
    """M in torch layout: x' = M x."""
    return torch.diag(lam * sigma) + scaling * B @ A


@pytest.mark.parametrize("init", get_args(Init))
def test_the_parts_have_their_shapes_and_first_values(init: str) -> None:
    lam, sigma, A, B = ridge_init(40, 5, 16, init=init, generator=seeded())
    assert [tuple(part.shape) for part in (lam, sigma, A, B)] == [(1,), (40,), (5, 40), (40, 5)]
    assert {part.dtype for part in (lam, sigma, A, B)} == {torch.float32}
    assert lam == 1
    assert torch.equal(sigma[5:], torch.ones(35))
    assert bool(((sigma[:5] > 0) & (sigma[:5] < 1)).all())
    assert not B[5:].any()  # I - Sigma is zero there


def test_the_ridge_noise_is_a_sigmoid_of_a_normal_number() -> None:
    draw = lambda seed, **noise: ridge_init(50, 50, 16, init="diagonal", generator=seeded(seed), **noise)[1].double()
    n = torch.logit(torch.cat([draw(seed, noise_mean=1.0, noise_std=0.5) for seed in range(20)]))
    assert float(n.mean()) == pytest.approx(1.0, abs=4 * 0.5 / math.sqrt(1000))
    assert float(n.std()) == pytest.approx(0.5, rel=0.1)
    default = torch.cat([draw(seed) for seed in range(20)])
    assert float(default.mean()) == pytest.approx(0.844, abs=0.015)  # the mean for n ~ N(2, 1)


@pytest.mark.parametrize(
    ("init", "variance", "largest"),
    [
        ("gaussian", 1 / 16, math.inf),
        ("gaussian_calibrated", 1 / 16, math.inf),
        ("kaiming_normal", 2 / 2000, math.inf),
        ("kaiming_uniform", 2 / 2000, math.sqrt(6 / 2000)),
        ("xavier_normal", 2 / 2016, math.inf),
        ("xavier_uniform", 2 / 2016, math.sqrt(6 / 2016)),
    ],
)
def test_a_dense_A_has_the_variance_of_its_name(init: str, variance: float, largest: float) -> None:
    A = ridge_init(2000, 16, 16, init=init, generator=seeded())[2]
    assert float(A.var()) == pytest.approx(variance, rel=0.03)
    assert float(A.abs().max()) <= largest
    assert bool(A.any(0).all())


def test_an_exact_or_diagonal_A_is_zero_behind_its_first_columns() -> None:
    for init in IDENTITY:
        A = ridge_init(30, 6, 16, init=init, generator=seeded())[2]
        assert not A[:, 6:].any()
        assert torch.linalg.matrix_rank(A) == 6
    A = ridge_init(30, 6, 16, init="diagonal")[2]
    assert torch.equal(A[:, :6], torch.eye(6) * 6**-0.5)
    draws = torch.stack([ridge_init(8, 4, 16, generator=seeded(i))[2][:, :4] for i in range(400)])
    assert float(draws.var()) == pytest.approx(1 / 4, rel=0.1)


def test_a_badly_conditioned_exact_A_is_drawn_anew() -> None:
    for seed in range(200):
        A = ridge_init(4, 1, 1, generator=seeded(seed))[2]
        assert abs(float(A[0, 0])) >= 0.2 - 1e-7


@settings(max_examples=60, deadline=None)
@given(
    d=st.integers(1, 40),
    rank=st.floats(0, 1),
    alpha=st.sampled_from([0.5, 1, 16, 128]),
    init=st.sampled_from(IDENTITY),
    rslora=st.booleans(),
    seed=st.integers(0, 2**31),
)
def test_the_start_is_the_identity(d: int, rank: float, alpha: float, init: str, rslora: bool, seed: int) -> None:
    r = 1 + round(rank * (d - 1))
    parts = ridge_init(d, r, alpha, init=init, use_rslora=rslora, generator=seeded(seed), dtype=torch.float64)
    scaling = alpha / (math.sqrt(r) if rslora else r)
    assert (transform(*parts, scaling) - torch.eye(d)).abs().max() <= 1e-11


@pytest.mark.parametrize(("d", "r"), [(64, 8), (1024, 64)])
def test_the_start_is_the_identity_in_single_precision(d: int, r: int) -> None:
    M = transform(*ridge_init(d, r, 16, generator=seeded()), 16 / r)
    assert (M - torch.eye(d)).abs().max() <= 2e-6


@pytest.mark.parametrize("init", DENSE)
def test_the_published_start_misses_the_identity_by_what_the_projection_leaves_out(init: str) -> None:
    lam, sigma, A, B = ridge_init(64, 8, 16, init=init, generator=seeded(), dtype=torch.float64)
    error = transform(lam, sigma, A, B, 2.0).T - torch.eye(64)  # the paper's layout
    projector = A.T @ torch.linalg.pinv(A.T)
    expected = -(torch.eye(64) - projector) @ torch.diag(1 - sigma)
    assert (error - expected).abs().max() <= 1e-12
    assert torch.linalg.matrix_rank(error) == 8
    assert not error[:, 8:].abs().max() > 1e-12  # only the first r coordinates of x' change
    assert 0.2 < float(torch.linalg.matrix_norm(error)) < 1.5


def test_the_product_at_the_start_depends_neither_on_alpha_nor_on_the_scale_of_A() -> None:
    products = []
    for alpha in (0.5, 1, 16, 128):
        _, _, A, B = ridge_init(32, 4, alpha, init="gaussian", generator=seeded())
        products.append(alpha / 4 * B @ A)
    assert all((product - products[0]).abs().max() <= 1e-6 for product in products)
    _, sigma, A, _ = ridge_init(32, 4, 4, init="gaussian", generator=seeded())
    assert (ridge_init_B(7 * A, sigma, 1.0) @ (7 * A) - products[0]).abs().max() <= 1e-6


def test_B_takes_lambda_into_account() -> None:
    _, sigma, A, _ = ridge_init(6, 6, 6, dtype=torch.float64, generator=seeded())
    for lam in (0.7, torch.tensor([0.7], dtype=torch.float64)):
        B = ridge_init_B(A, sigma, 2.0, lam)
        M = 0.7 * torch.diag(sigma) + 2 * B @ A
        assert (M - torch.eye(6)).abs().max() <= 1e-12


def test_the_offset_makes_a_dense_start_the_identity() -> None:
    parts = ridge_init(50, 7, 16, init="gaussian_calibrated", generator=seeded())
    offset = ridge_offset(*parts, 16 / 7)
    assert offset.shape == (7, 50)
    M = transform(*parts, 16 / 7)
    assert (M - torch.eye(50)).abs().max() > 0.05
    M[:7] += offset
    assert (M - torch.eye(50)).abs().max() <= 1e-6


def test_a_start_can_be_repeated() -> None:
    first, second = (ridge_init(20, 3, 8, generator=seeded(5)) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
    torch.manual_seed(5)
    third = ridge_init(20, 3, 8)
    assert all(torch.equal(a, b) for a, b in zip(first, third, strict=True))


def test_the_transform_has_full_rank_at_the_start() -> None:
    for init in (*IDENTITY, *DENSE):
        M = transform(*ridge_init(48, 6, 16, init=init, generator=seeded(), dtype=torch.float64), 16 / 6)
        assert torch.linalg.matrix_rank(M) == 48
        assert torch.linalg.cond(M) < 30


def test_the_bound_of_theorem_3_1_holds() -> None:
    """A diagonal and rank k come nearer to a matrix than rank k alone, by the constructed pair."""
    torch.manual_seed(0)
    n, k, ratios = 10, 3, []
    for _ in range(50):
        M = torch.randn(n, n, dtype=torch.float64)
        U, s, Vt = torch.linalg.svd(M)
        apart = ~torch.eye(n, dtype=torch.bool)
        Q = torch.einsum("pj,jq->pqj", U[:, :k], Vt[:k])[apart]
        c = ((U[:, k:] * s[k:]) @ Vt[k:])[apart]
        x = -torch.linalg.pinv(Q) @ c
        K = (U[:, :k] * (s[:k] - x)) @ Vt[:k]
        D = torch.diag((M - K).diagonal())
        error = (K + D - M).square().sum()
        bound = (c - Q @ (torch.linalg.pinv(Q) @ c)).square().sum()
        lora = s[k:].square().sum()
        assert error <= bound + 1e-9
        assert bound <= lora + 1e-9
        ratios.append(float(bound / lora))
    assert 0.85 < sum(ratios) / 50 < 0.98
