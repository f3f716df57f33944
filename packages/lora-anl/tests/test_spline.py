"""The basis against scipy, against the recursion, and its properties."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.interpolate import BSpline

from lora_anl import BSplineBasis, bspline_basis
from lora_anl.spline import uniform_basis, uniform_basis_and_slope, uniform_knots

POINTS = torch.linspace(-2.5, 2.5, 2001, dtype=torch.float64)
KNOTS = torch.tensor(uniform_knots(5, 3, (-1.0, 1.0)), dtype=torch.float64)

grids = st.tuples(st.integers(1, 9), st.integers(0, 5), st.floats(-3, 0), st.floats(0.5, 3))


def scipy_basis(points: torch.Tensor, knots: torch.Tensor, order: int) -> torch.Tensor:
    columns = []
    for j in range(len(knots) - order - 1):
        values = BSpline.basis_element(knots[j : j + order + 2].numpy(), extrapolate=False)(points.numpy())
        columns.append(np.nan_to_num(values))
    return torch.tensor(np.stack(columns, -1))


def test_the_cubic_basis_equals_scipys() -> None:
    expected = scipy_basis(POINTS, KNOTS, 3)
    assert (bspline_basis(POINTS, KNOTS, 3) - expected).abs().max() <= 1e-14
    assert (BSplineBasis().double()(POINTS) - expected).abs().max() <= 1e-14


@given(grids)
def test_closed_form_recursion_and_scipy_agree_on_any_uniform_grid(grid: tuple[int, int, float, float]) -> None:
    size, order, low, high = grid
    knots = torch.tensor(uniform_knots(size, order, (low, high)), dtype=torch.float64)
    # away from the knots, where a rounding decides which piece of a step function a point belongs to
    points = torch.cat([knots[:-1] + share * (knots[1:] - knots[:-1]) for share in (0.03, 0.5, 0.97)])
    expected = scipy_basis(points, knots, order)
    assert (bspline_basis(points, knots, order) - expected).abs().max() <= 1e-12
    assert (uniform_basis(points, size, order, low, high) - expected).abs().max() <= 1e-12


def test_the_recursion_takes_knots_that_are_not_uniform_or_repeat() -> None:
    knots = torch.tensor([0.0, 0.0, 0.0, 0.4, 1.0, 1.7, 1.7, 1.7], dtype=torch.float64)
    points = torch.linspace(0.01, 1.69, 57, dtype=torch.float64)
    assert (bspline_basis(points, knots, 2) - scipy_basis(points, knots, 2)).abs().max() <= 1e-14


@pytest.mark.parametrize("order", range(6))
def test_the_slope_is_the_derivative(order: int) -> None:
    points = POINTS[3::17].clone().requires_grad_()
    knots = torch.tensor(uniform_knots(5, order, (-1.0, 1.0)), dtype=torch.float64)
    basis, slope = uniform_basis_and_slope(points.detach(), 5, order, -1.0, 1.0)
    recursion = bspline_basis(points, knots, order)
    assert (basis - recursion).abs().max() <= 1e-13
    if order == 0:
        assert not slope.any()
        return
    for j in range(basis.shape[1]):
        (expected,) = torch.autograd.grad(recursion[:, j].sum(), points, retain_graph=True)
        assert (slope[:, j] - expected).abs().max() <= 1e-12


def test_the_basis_is_a_partition_of_unity_with_the_known_bounds() -> None:
    basis = bspline_basis(POINTS, KNOTS, 3)
    assert basis.shape == (2001, 8)
    assert (basis >= 0).all()
    inside = (POINTS >= -1) & (POINTS <= 1)  # at 1.0 too: the interval [1.0, 1.4) is covered
    assert (basis[inside].sum(-1) - 1).abs().max() <= 1e-12
    assert (basis.sum(-1) <= 1 + 1e-12).all()
    assert not basis[(POINTS < -2.2) | (POINTS >= 2.2)].any()
    assert (basis.max() - 2 / 3).abs() <= 1e-5
    slope = uniform_basis_and_slope(POINTS, 5, 3, -1.0, 1.0)[1]
    assert 1.66 < slope.abs().max() <= 2 / 3 / 0.4 + 1e-12
    assert slope.abs().sum(-1).max() <= 3.75 + 1e-12
    at_zero = bspline_basis(torch.zeros((), dtype=torch.float64), KNOTS, 3)
    expected = torch.tensor([0, 0, 1 / 48, 23 / 48, 23 / 48, 1 / 48, 0, 0], dtype=torch.float64)
    assert (at_zero - expected).abs().max() <= 1e-15


def test_intervals_are_half_open() -> None:
    knots = torch.tensor(uniform_knots(5, 0, (-1.0, 1.0)), dtype=torch.float64)
    expected = torch.cat([torch.eye(5), torch.zeros(1, 5)]).double()
    assert torch.equal(bspline_basis(knots, knots, 0), expected)
    assert torch.equal(BSplineBasis(5, 0).double()(knots), expected)


@pytest.mark.parametrize("order", range(6))
def test_float32_is_exact_to_its_rounding(order: int) -> None:
    points = POINTS[3::17]
    exact = uniform_basis(points, 5, order, -1.0, 1.0)
    single = uniform_basis(points.float(), 5, order, -1.0, 1.0)
    assert single.dtype == torch.float32
    assert (single - exact).abs().max() <= 2e-6


def test_knots_are_rounded_from_their_exact_values_in_every_dtype() -> None:
    basis = BSplineBasis(5, 3, (-1.0, 1.0))
    exact = [float(Fraction(-11, 5) + j * Fraction(2, 5)) for j in range(12)]
    assert basis.knots.dtype == torch.float32
    for dtype in (torch.float64, torch.bfloat16, torch.float32, torch.float64):
        assert torch.equal(basis.to(dtype).knots, torch.tensor(exact, dtype=dtype))
    assert torch.equal(basis.to("meta").to_empty(device="cpu").knots, torch.tensor(exact, dtype=torch.float64))
    assert not basis.state_dict()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16], ids=str)
def test_the_result_has_the_dtype_of_the_points(dtype: torch.dtype) -> None:
    points = torch.linspace(-1, 1, 7, dtype=dtype)
    for basis in (BSplineBasis()(points), bspline_basis(points, KNOTS, 3)):
        assert basis.dtype == dtype
        assert (basis.double() - bspline_basis(points.double(), KNOTS, 3)).abs().max() <= torch.finfo(dtype).eps


def test_any_shape_goes_through() -> None:
    for shape in ((), (0,), (3,), (2, 0, 5), (2, 3, 4)):
        assert BSplineBasis()(torch.zeros(shape)).shape == (*shape, 8)


@pytest.mark.parametrize("far", [float("inf"), float("-inf"), 3e38, -3e38])
def test_far_outside_every_function_is_zero(far: float) -> None:
    point = torch.tensor([far])
    for basis in (BSplineBasis()(point), bspline_basis(point, KNOTS, 3), BSplineBasis(5, 0)(point)):
        assert torch.equal(basis, torch.zeros_like(basis))


def test_what_is_not_a_number_stays_none() -> None:
    point = torch.tensor([float("nan")])
    assert BSplineBasis()(point).isnan().all()
    assert bspline_basis(point, KNOTS, 3).isnan().any()


def test_points_must_be_floating() -> None:
    with pytest.raises(ValueError, match=r"floating, got torch\.int64"):
        BSplineBasis()(torch.tensor([0, 1]))
