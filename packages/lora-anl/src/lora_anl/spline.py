"""B-spline bases: Cox-de Boor on any knots, and a closed form on uniform ones (paper section 3.2, eq. 7).

The closed form is what the adapter runs: a function of the basis depends only on the distance a between its centre and
the point, in steps of the grid: M_k(a) = 1/k! sum_i (-1)^i C(k+1, i) max((k+1)/2 - i - a, 0)^k. As a is not negative,
floor(k/2) + 1 terms are left, never much larger than their sum, so that float32 stays exact to its rounding.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import torch
from torch import Tensor, nn

MAX_ORDER = 5
MIN_WIDTH, MAX_WIDTH = 1e-30, 1e30  # of a grid, so that float32 can count its steps


def bspline_basis(x: Tensor, knots: Tensor, order: int) -> Tensor:
    """Evaluate all B-spline basis functions on the given knots by the Cox-de Boor recursion.

    Intervals are half open, ``[t_j, t_{j+1})``, and outside the knots every function is 0. A term with two equal knots
    counts as 0.

    Args:
        x: Points, any shape ``(...)``.
        knots: ``(G + 2k + 1,)``, not decreasing.
        order: The degree k of the pieces, 0 .. 5.

    Returns:
        ``(..., G + k)`` in the dtype of ``x``, computed in at least float32.

    Raises:
        ValueError: An order outside 0 .. 5, or too few knots for it.
    """
    _check_order(order)
    if knots.dim() != 1 or len(knots) < order + 2:
        raise ValueError(f"knots must be a vector of at least order + 2 = {order + 2}, got shape {tuple(knots.shape)}")
    dtype = torch.promote_types(torch.promote_types(x.dtype, knots.dtype), torch.float32)
    points, t = x.to(dtype).unsqueeze(-1), knots.to(dtype)
    points = torch.where((points < t[0]) | (points >= t[-1]), t[-1], points)  # infinity times 0 would be NaN
    basis = ((points >= t[:-1]) & (points < t[1:])).to(dtype)
    for degree in range(1, order + 1):
        width = t[degree:] - t[:-degree]
        inverse = torch.where(width > 0, 1 / width, 0)
        rising = (points - t[: -degree - 1]) * inverse[:-1]
        falling = (t[degree + 1 :] - points) * inverse[1:]
        basis = rising * basis[..., :-1] + falling * basis[..., 1:]
    return basis.to(x.dtype)


def uniform_knots(grid_size: int, order: int, grid_range: tuple[float, float]) -> list[float]:
    """The G + 2k + 1 knots of ``grid_size`` equal intervals and ``order`` more on each side, each correctly rounded."""
    low, high = map(Fraction, grid_range)
    step = (high - low) / grid_size
    return [float(low + (j - order) * step) for j in range(grid_size + 2 * order + 1)]


def uniform_basis(x: Tensor, grid_size: int, order: int, low: float, high: float) -> Tensor:
    """Evaluate the basis on :func:`uniform_knots`; equals :func:`bspline_basis` there.

    Args:
        x: Points ``(...)``, float32 or float64.
        grid_size: The number G of intervals on the range.
        order: The degree k.
        low: Where the range begins.
        high: Where it ends.

    Returns:
        ``(..., G + k)`` in the dtype of ``x``.
    """
    if order == 0:
        return bspline_basis(x, _knots_like(x, grid_size, low, high), 0)
    distance, _ = _distance(x, grid_size, order, low, high)
    return _combine(distance, order, lambda excess: excess.pow(order)) / math.factorial(order)


def uniform_basis_and_slope(x: Tensor, grid_size: int, order: int, low: float, high: float) -> tuple[Tensor, Tensor]:
    """Evaluate the basis and its derivative with respect to ``x``, both ``(..., G + k)``; see :func:`uniform_basis`."""
    if order == 0:
        basis = uniform_basis(x, grid_size, order, low, high)
        return basis, torch.zeros_like(basis)
    distance, side = _distance(x, grid_size, order, low, high)
    basis = _combine(distance, order, lambda excess: excess.pow(order)) / math.factorial(order)
    if order == 1:  # max(..., 0)^0 is the indicator of the support
        falling = _combine(distance, order, lambda excess: (excess > 0).to(excess.dtype))
    else:
        falling = _combine(distance, order, lambda excess: excess.pow(order - 1))
    # d(distance)/dx = side / step, and d(excess^k)/d(distance) = -k excess^(k-1)
    return basis, side * falling * (-grid_size / ((high - low) * math.factorial(order - 1)))


def _distance(x: Tensor, grid_size: int, order: int, low: float, high: float) -> tuple[Tensor, Tensor]:
    """``(..., G + k)``: how far the point is from the centre of each function, in steps of the grid, and on which side.

    The side is never 0, so that at a centre, where the slope is 0 but its own derivative is not, both are right.
    """
    per_step = grid_size / (high - low)
    first = low * per_step + (1 - order) / 2
    centres = torch.arange(grid_size + order, dtype=x.dtype, device=x.device) + first
    signed = torch.sub(x.unsqueeze(-1) * per_step, centres)
    side = 1 - 2 * (signed < 0).to(x.dtype)
    return signed * side, side


def _combine(distance: Tensor, order: int, power: Callable[[Tensor], Tensor]) -> Tensor:
    """``sum_i (-1)^i C(k+1, i) power(max((k+1)/2 - i - distance, 0))``."""
    excess = ((order + 1) / 2 - distance).clamp_min(0)
    total = power(excess)
    for i in range(1, order // 2 + 1):
        excess = (excess - 1).clamp_min(0)
        total = torch.add(total, power(excess), alpha=(-1) ** i * math.comb(order + 1, i))
    return total


def _knots_like(x: Tensor, grid_size: int, low: float, high: float) -> Tensor:
    return torch.tensor(uniform_knots(grid_size, 0, (low, high)), dtype=x.dtype, device=x.device)


class BSplineBasis(nn.Module):
    """The basis on uniform knots as a module; its knots follow the module's dtype, rounded from their exact values.

    Args:
        grid_size: The number G >= 1 of intervals on the range.
        order: The degree k, 0 .. 5.
        grid_range: Where the grid begins and ends; k steps more lie on each side.

    Attributes:
        knots: ``(G + 2k + 1,)``, a buffer that is not saved.

    Raises:
        ValueError: A setting out of its range.
    """

    knots: Tensor

    def __init__(self, grid_size: int = 5, order: int = 3, grid_range: tuple[float, float] = (-1.0, 1.0)) -> None:
        super().__init__()
        check_grid(grid_size, order, grid_range)
        self.grid_size, self.order = grid_size, order
        self.grid_range = (float(grid_range[0]), float(grid_range[1]))
        self.register_buffer("knots", torch.tensor(self._exact_knots()), persistent=False)

    def _exact_knots(self) -> list[float]:
        return uniform_knots(self.grid_size, self.order, self.grid_range)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> BSplineBasis:
        super()._apply(fn, recurse)
        # widening float32 knots would leave them 3e-8 off
        self.knots = torch.tensor(self._exact_knots(), dtype=self.knots.dtype, device=self.knots.device)
        return self

    def forward(self, x: Tensor) -> Tensor:
        """Return ``(..., G + k)`` for floating points ``(...)``, in their dtype, computed in at least float32."""
        if not x.is_floating_point():
            raise ValueError(f"points must be floating, got {x.dtype}")
        work = x.to(torch.promote_types(x.dtype, torch.float32))
        return uniform_basis(work, self.grid_size, self.order, *self.grid_range).to(x.dtype)

    def extra_repr(self) -> str:
        """Return the settings, for printing."""
        return f"grid_size={self.grid_size}, order={self.order}, grid_range={self.grid_range}"


def check_grid(grid_size: int, order: int, grid_range: tuple[float, float]) -> None:
    """Raise a ValueError that names the first setting of a grid out of its range."""
    if not isinstance(grid_size, int) or isinstance(grid_size, bool) or grid_size < 1:
        raise ValueError(f"grid_size must be a whole number of at least 1, got {grid_size!r}")
    _check_order(order)
    ends = tuple(grid_range) if isinstance(grid_range, tuple | list) else ()
    if len(ends) != 2 or not all(isinstance(end, int | float) and not isinstance(end, bool) for end in ends):
        raise ValueError(f"grid_range must be two numbers, low and high, got {grid_range!r}")
    low, high = (_finite(end) for end in ends)
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise ValueError(f"grid_range must be finite and increasing, got {grid_range!r}")
    if not MIN_WIDTH <= high - low <= MAX_WIDTH:
        raise ValueError(f"grid_range must be between 1e-30 and 1e30 wide, got {grid_range!r}")


def _finite(number: float) -> float:
    """The number as a float; infinity if it is too large for one."""
    try:
        return float(number)
    except OverflowError:
        return math.inf


def _check_order(order: int) -> None:
    if not isinstance(order, int) or isinstance(order, bool) or not 0 <= order <= MAX_ORDER:
        raise ValueError(f"spline_order must be a whole number from 0 to {MAX_ORDER}, got {order!r}")
