"""The three routes to the nuclear norm of M - I, against the singular values of the whole matrix."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from ridgelora import RidgeNorm, ridge_init, ridge_nuclear_norm, ridge_offset
from ridgelora.rational import inverse_square_root

each_dtype = pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)


def adapter(
    d: int, r: int, moved: int | None = None, noise: float = 0.1, init: str = "gaussian", seed: int = 0
) -> list[Tensor]:
    """lambda, sigma, A, B in float64 as after training; of sigma the first ``moved`` entries have left 1, or all."""
    generator = torch.Generator().manual_seed(seed)
    parts = list(ridge_init(d, r, r, init=init, generator=generator, dtype=torch.float64))
    for i, part in enumerate(parts):
        step = noise * torch.randn(part.shape, generator=generator, dtype=torch.float64)
        if i == 1 and moved is not None:
            step[moved:] = 0
        if i != 0 or moved is None:
            parts[i] = part + step
    return parts


def whole(parts: list[Tensor], scaling: float, offset: Tensor | None = None) -> Tensor:
    """M - I."""
    lam, sigma, A, B = parts
    X = torch.diag(lam * sigma - 1) + scaling * B @ A
    if offset is not None:
        X[: len(offset)] += offset
    return X


def gradients(parts: list[Tensor], scaling: float, **options: object) -> tuple[RidgeNorm, list[Tensor]]:
    leaves = [part.detach().clone().requires_grad_() for part in parts]
    norm = ridge_nuclear_norm(*leaves, scaling, **options)
    norm.value.backward()
    return norm, [leaf.grad for leaf in leaves]


@pytest.mark.parametrize(
    ("route", "moved", "tolerance"),
    [("svd", None, 1e-12), ("svd", 9, 1e-12), ("low_rank", 9, 1e-12), ("rational", None, 2e-6), ("rational", 9, 2e-6)],
)
@pytest.mark.parametrize("offset", [False, True], ids=["", "offset"])
def test_every_route_gives_the_sum_of_singular_values_and_its_gradient(
    route: str, moved: int | None, tolerance: float, offset: bool
) -> None:
    parts = adapter(60, 4, moved)
    constant = ridge_offset(*adapter(60, 4, seed=3), 1.0) if offset else None
    norm, found = gradients(parts, 1.5, offset=constant, route=route)
    exact = torch.linalg.svdvals(whole(parts, 1.5, constant)).sum()
    assert float(norm.value) == pytest.approx(float(exact), rel=tolerance)
    assert norm.route == route
    assert (norm.relative_error > 0) == (route == "rational")
    assert norm.relative_error < 2e-6
    _, reference = gradients(parts, 1.5, offset=constant, route="svd")
    for ours, theirs in zip(found, reference, strict=True):
        assert float((ours - theirs).norm() / theirs.norm()) <= 10 * tolerance


@pytest.mark.parametrize("route", ["svd", "rational"])
def test_gradients_are_those_of_finite_differences(route: str) -> None:
    parts, step = adapter(14, 3), 1e-5
    _, found = gradients(parts, 1.5, route="svd" if route == "svd" else route)
    generator = torch.Generator().manual_seed(1)
    for i, gradient in enumerate(found):
        direction = torch.randn(gradient.shape, generator=generator, dtype=torch.float64)
        ends = [
            torch.linalg.svdvals(whole([*parts[:i], parts[i] + sign * step * direction, *parts[i + 1 :]], 1.5)).sum()
            for sign in (1, -1)
        ]
        expected = float(ends[0] - ends[1]) / (2 * step)
        assert float((gradient * direction).sum()) == pytest.approx(expected, rel=1e-5, abs=1e-5)


@each_dtype
@pytest.mark.parametrize("init", ["exact", "diagonal"])
@pytest.mark.parametrize("route", ["auto", "svd", "low_rank"])
def test_at_an_exact_start_the_norm_and_its_gradient_are_zero(dtype: torch.dtype, init: str, route: str) -> None:
    parts = ridge_init(96, 8, 16, init=init, generator=torch.Generator().manual_seed(0), dtype=dtype)
    norm, found = gradients(list(parts), 2.0, route=route)
    assert norm.value == 0
    assert norm.value.dtype == dtype
    assert not any(gradient.any() for gradient in found)


def test_a_norm_below_the_threshold_is_zero_by_resolvents_too() -> None:
    lam, sigma, A, B = ridge_init(300, 2, 2, dtype=torch.float32)
    sigma, B = torch.ones_like(sigma) + 1e-6, torch.zeros_like(B)
    norm, found = gradients([lam, sigma, A, B], 1.0, route="rational")
    assert norm.value == 0
    assert not any(gradient.any() for gradient in found)


def test_a_singular_difference_has_the_gradient_of_its_non_zero_directions() -> None:
    """At the published start M - I has rank r, and a decomposition pairs its null spaces at random."""
    parts = adapter(40, 5, noise=0.0)
    U, s, Vt = torch.linalg.svd(whole(parts, 1.0))
    assert s[5] < 1e-13
    G = U[:, :5] @ Vt[:5]
    for route in ("svd", "low_rank", "rational"):
        _, (lam, sigma, A, B) = gradients(parts, 1.0, route=route)
        near = 1e-5 if route == "rational" else 1e-10
        assert (A - parts[3].T @ G).abs().max() <= near
        assert (B - G @ parts[2].T).abs().max() <= near
        assert (sigma - G.diagonal()).abs().max() <= near
        assert float(lam - (G.diagonal() * parts[1]).sum()) == pytest.approx(0, abs=10 * near)


def test_the_route_follows_from_the_width_and_the_moved_entries() -> None:
    few, all_moved = adapter(400, 8, moved=64), adapter(400, 8)
    assert ridge_nuclear_norm(*few, 1.0).route == "low_rank"
    assert ridge_nuclear_norm(*adapter(400, 8, moved=93), 1.0).route == "rational"
    assert ridge_nuclear_norm(*all_moved, 1.0).route == "rational"
    assert ridge_nuclear_norm(*adapter(256, 8), 1.0).route == "svd"
    assert ridge_nuclear_norm(*adapter(400, 120), 1.0).route == "svd"


def test_single_precision_is_close_to_double_precision() -> None:
    for parts, route in ((adapter(300, 4, moved=20), "low_rank"), (adapter(300, 4, noise=0.05), "rational")):
        exact = float(torch.linalg.svdvals(whole(parts, 1.5)).sum())
        norm = ridge_nuclear_norm(*(part.float() for part in parts), 1.5)
        assert norm.route == route
        assert norm.value.dtype == torch.float32
        assert float(norm.value) == pytest.approx(exact, rel=1e-4)


def test_half_precision_adapters_are_computed_in_single_precision() -> None:
    parts = [part.bfloat16() for part in adapter(64, 4)]
    norm = ridge_nuclear_norm(*parts, 1.0)
    assert norm.value.dtype == torch.float32
    assert norm.value == ridge_nuclear_norm(*(part.float() for part in parts), 1.0).value


@settings(max_examples=30, deadline=None)
@given(d=st.integers(2, 40), r=st.integers(1, 40), moved=st.integers(0, 40), seed=st.integers(0, 2**31))
def test_the_exact_routes_agree_for_all_sizes(d: int, r: int, moved: int, seed: int) -> None:
    parts = adapter(d, min(r, d), min(moved, d), 0.3, seed=seed)
    norms, found = zip(*(gradients(parts, 1.0, route=route) for route in ("svd", "low_rank")), strict=True)
    assert float(norms[1].value) == pytest.approx(float(norms[0].value), rel=1e-10)
    # a singular value near the threshold may count on one side; there are none in these draws
    for ours, theirs in zip(found[1], found[0], strict=True):
        assert (ours - theirs).abs().max() <= 1e-6 * max(1.0, float(theirs.abs().max()))


def test_it_is_differentiated_once_only() -> None:
    leaves = [part.requires_grad_() for part in adapter(10, 2)]
    (first,) = torch.autograd.grad(ridge_nuclear_norm(*leaves, 1.0).value, leaves[2], create_graph=True)
    with pytest.raises(RuntimeError):
        first.sum().backward()


@pytest.mark.parametrize("decades", [2, 7, 12, 16])
def test_few_resolvents_make_an_inverse_square_root(decades: int) -> None:
    poles, error = inverse_square_root(decades)
    assert len(poles) <= 2 * decades + 6
    assert error <= 2e-6
    for power in range(101):
        h = 10 ** (-decades * power / 100)
        value = sum(weight / (h + shift) for shift, weight in poles)
        assert value * math.sqrt(h) == pytest.approx(1, abs=2 * error)


def test_what_lies_below_the_interval_is_damped() -> None:
    poles, _ = inverse_square_root(6)
    shares = [math.sqrt(h) * sum(weight / (h + shift) for shift, weight in poles) for h in (1e-6, 1e-8, 1e-10, 0)]
    assert shares == sorted(shares, reverse=True)
    assert shares[1] < 0.5
    assert shares[3] == 0


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("part", range(4), ids=["lambda", "sigma", "A", "B"])
@pytest.mark.parametrize("route", ["auto", "svd", "low_rank", "rational"])
def test_what_is_not_finite_has_no_norm(bad: float, part: int, route: str) -> None:
    parts = adapter(300, 2, moved=4)
    parts[part][..., -1] = bad
    with pytest.raises(ValueError, match="holds NaN or infinity"):
        ridge_nuclear_norm(*parts, 1.0, route=route)


@pytest.mark.parametrize(("d", "r"), [(1, 1), (2, 2), (9, 9)])
@pytest.mark.parametrize("gain", [None, 1.0, 0.0], ids=["", "ones", "zeros"])
@pytest.mark.parametrize("route", ["svd", "low_rank", "rational"])
def test_the_routes_agree_at_full_rank_and_on_bare_ridges(d: int, r: int, gain: float | None, route: str) -> None:
    parts = adapter(d, r, noise=0.3)
    if gain is not None:
        parts[0], parts[1] = torch.ones_like(parts[0]), torch.full_like(parts[1], gain)
    exact = torch.linalg.svdvals(whole(parts, 1.0)).sum()
    near = 2e-6 if route == "rational" else 1e-12
    assert float(ridge_nuclear_norm(*parts, 1.0, route=route).value) == pytest.approx(float(exact), rel=near)
