"""The Adaptive Nonlinear Layer, sigma(z) = act(H act(z)) + spline(z) (paper eqs. 5 to 8), lean in memory.

Between forward and backward only z and the two small matrices are kept; the values of the basis, (..., rank, G + k),
are computed again. The backward consists of ordinary operations, so that it can be differentiated once more.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from lora_anl.spline import check_grid, uniform_basis, uniform_basis_and_slope

Activation = Literal["tanh", "leaky_relu", "sigmoid", "relu"]
SplineMode = Literal["pooled", "per_channel"]

LEAKY_SLOPE = 0.01
MAX_NUMBER = 1e30  # what float32 still takes with room for products


def activate(x: Tensor, activation: str) -> Tensor:
    """The fixed part's activation; ``leaky_relu`` has slope 0.01 below 0."""
    if activation == "tanh":
        return x.tanh()
    if activation == "sigmoid":
        return x.sigmoid()
    return x.relu() if activation == "relu" else torch.nn.functional.leaky_relu(x, LEAKY_SLOPE)


def activation_slope(value: Tensor, activation: str) -> Tensor:
    """The derivative of :func:`activate` where its result is ``value``, of which it is a function for all four."""
    if activation == "tanh":
        return 1 - value * value
    if activation == "sigmoid":
        return value - value * value
    below = 0.0 if activation == "relu" else LEAKY_SLOPE
    return torch.full_like(value, below).masked_fill(value > 0, 1.0)


def nonlinear(
    z: Tensor,
    proj: Tensor | None,
    spline_weight: Tensor | None,
    activation: str,
    spline_mode: str,
    grid_size: int,
    spline_order: int,
    low: float,
    high: float,
) -> Tensor:
    """sigma(z) in plain operations.

    Args:
        z: ``(..., r)``, float32 or float64.
        proj: H, ``(r, r)``, or None without the fixed part (paper eq. 6).
        spline_weight: ``(r, G + k)``, or None without the learnable part (paper eqs. 7, 8).
        activation: ``tanh | leaky_relu | sigmoid | relu``.
        spline_mode: ``pooled``: each output weighs the sum over all coordinates of their basis values (the printed
            formula); ``per_channel``: it weighs those of its own coordinate.
        grid_size: The number G of intervals.
        spline_order: The degree k.
        low: Where the grid begins.
        high: Where it ends.

    Returns:
        ``(..., r)``.
    """
    fixed = learned = None
    if proj is not None:
        fixed = activate(activate(z, activation) @ proj.T, activation)
    if spline_weight is not None:
        basis = uniform_basis(z, grid_size, spline_order, low, high)
        learned = basis.sum(-2) @ spline_weight.T if _pools(spline_mode, z) else (basis * spline_weight).sum(-1)
    if fixed is not None and learned is not None:
        return fixed + learned
    only = learned if fixed is None else fixed
    return torch.zeros_like(z) if only is None else only


class _Nonlinear(torch.autograd.Function):
    """:func:`nonlinear` with a backward that keeps nothing of the basis."""

    generate_vmap_rule = True

    @staticmethod
    def forward(*arguments: Any) -> Tensor:
        return nonlinear(*arguments)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.save_for_backward(*inputs[:3])
        ctx.settings = inputs[3:]

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        z, proj, spline_weight = ctx.saved_tensors
        activation, spline_mode, *grid = ctx.settings
        grad_z, grad_proj, grad_weight = None, None, None
        if proj is not None:
            inner = activate(z, activation)
            grad_outer = grad * activation_slope(activate(inner @ proj.T, activation), activation)
            grad_proj = _outer(grad_outer, inner)
            grad_z = (grad_outer @ proj) * activation_slope(inner, activation)
        if spline_weight is not None:
            basis, slope = uniform_basis_and_slope(z, *grid)
            if _pools(spline_mode, z):
                grad_weight = _outer(grad, basis.sum(-2))
                grad_spline = (slope * (grad @ spline_weight).unsqueeze(-2)).sum(-1)
            else:
                grad_weight = (basis * grad.unsqueeze(-1)).reshape(-1, *spline_weight.shape).sum(0)
                grad_spline = grad * (slope * spline_weight).sum(-1)
            grad_z = grad_spline if grad_z is None else grad_z + grad_spline
        return grad_z, grad_proj, grad_weight, *[None] * len(ctx.settings)


def _pools(spline_mode: str, z: Tensor) -> bool:
    return spline_mode == "pooled" or z.shape[-1] == 1  # with one coordinate the modes coincide, bit for bit


def _outer(left: Tensor, right: Tensor) -> Tensor:
    """The sum over all leading dimensions of left rightᵀ: ``(..., a), (..., b) -> (a, b)``."""
    return left.reshape(-1, left.shape[-1]).T @ right.reshape(-1, right.shape[-1])


class AdaptiveNonlinearLayer(nn.Module):
    """sigma(z) = act(act(z) Hᵀ) + spline(z), the layer between the projections of AuroRA; usable without peft.

    It computes in float32 for half-precision inputs, under autocast too (differences of neighbouring knots would lose
    their digits), and in float64 where its input or its weights are float64; the result has the dtype of the input.

    Args:
        rank: The number r >= 1 of coordinates.
        grid_size: The number G >= 1 of intervals of the spline's grid.
        spline_order: The degree k of the spline, 0 .. 5.
        grid_range: Where the grid begins and ends. Beyond k more steps on each side the spline is 0, without gradient.
        spline_mode: ``pooled`` (the paper's printed formula) or ``per_channel``; see :func:`nonlinear`.
        activation: ``tanh`` (the paper's), ``leaky_relu``, ``sigmoid`` or ``relu``.
        use_fixed: Off is the ablation "w/o F": no ``proj``.
        use_spline: Off is the ablation "w/o L": no ``spline_weight``.
        spline_init_scale: Spline weights start uniform in plus and minus this (not in the paper).

    Attributes:
        proj: H, ``(r, r)``, Xavier-normal at the start (not in the paper); None without the fixed part.
        spline_weight: ``(r, G + k)``; None without the spline.

    Raises:
        ValueError: A setting out of its range.
    """

    def __init__(
        self,
        rank: int,
        grid_size: int = 5,
        spline_order: int = 3,
        grid_range: tuple[float, float] = (-1.0, 1.0),
        spline_mode: SplineMode = "pooled",
        activation: Activation = "tanh",
        use_fixed: bool = True,
        use_spline: bool = True,
        spline_init_scale: float = 0.1,
    ) -> None:
        super().__init__()
        check_rank("rank", rank)
        check_grid(grid_size, spline_order, grid_range)
        check_nonlinearity(spline_mode, activation, use_fixed, use_spline, spline_init_scale)
        self.rank, self.grid_size, self.spline_order = rank, grid_size, spline_order
        self.grid_range = (float(grid_range[0]), float(grid_range[1]))
        self.spline_mode, self.activation, self.spline_init_scale = spline_mode, activation, spline_init_scale
        self.proj = nn.Parameter(torch.empty(rank, rank)) if use_fixed else None
        self.spline_weight = nn.Parameter(torch.empty(rank, grid_size + spline_order)) if use_spline else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw ``proj`` and ``spline_weight`` anew."""
        if self.proj is not None:
            nn.init.xavier_normal_(self.proj)
        if self.spline_weight is not None:
            nn.init.uniform_(self.spline_weight, -self.spline_init_scale, self.spline_init_scale)

    def forward(self, z: Tensor) -> Tensor:
        """Return sigma(z), ``(..., r)``, for z of that shape; another width is a ValueError."""
        if z.dim() == 0 or z.shape[-1] != self.rank:
            raise ValueError(f"z must have rank={self.rank} coordinates in its last dimension, got {tuple(z.shape)}")
        dtype = torch.promote_types(z.dtype, torch.float32)
        for weight in (self.proj, self.spline_weight):
            dtype = dtype if weight is None else torch.promote_types(dtype, weight.dtype)
        proj = None if self.proj is None else self.proj.to(dtype)
        spline_weight = None if self.spline_weight is None else self.spline_weight.to(dtype)
        grid = (self.grid_size, self.spline_order, *self.grid_range)
        with _without_autocast(z.device.type):
            sigma: Tensor = _Nonlinear.apply(z.to(dtype), proj, spline_weight, self.activation, self.spline_mode, *grid)
        return sigma.to(z.dtype)

    def extra_repr(self) -> str:
        """Return the settings, for printing."""
        parts = [f"rank={self.rank}"]
        if self.proj is not None:
            parts.append(f"activation={self.activation!r}")
        if self.spline_weight is not None:
            grid = f"grid_size={self.grid_size}, spline_order={self.spline_order}, grid_range={self.grid_range}"
            parts.append(f"spline_mode={self.spline_mode!r}, {grid}")
        return ", ".join(parts)


def _without_autocast(device_type: str) -> AbstractContextManager[Any]:
    if torch.amp.is_autocast_available(device_type):
        return torch.autocast(device_type, enabled=False)
    return nullcontext()


def check_rank(name: str, rank: int) -> None:
    """Raise a ValueError unless ``rank`` is a whole number of at least 1."""
    if not isinstance(rank, int) or isinstance(rank, bool) or rank < 1:
        raise ValueError(f"{name} must be a whole number of at least 1, got {rank!r}")


def check_nonlinearity(
    spline_mode: str, activation: str, use_fixed: bool, use_spline: bool, spline_init_scale: float
) -> None:
    """Raise a ValueError that names the first setting out of its range."""
    check_choice("spline_mode", spline_mode, get_args(SplineMode))
    check_choice("activation", activation, get_args(Activation))
    check_flag("use_fixed", use_fixed)
    check_flag("use_spline", use_spline)
    if not (use_fixed or use_spline):
        raise ValueError("use_fixed and use_spline must not both be False, or the nonlinear layer would be 0")
    check_number("spline_init_scale", spline_init_scale, 0)


def check_choice(name: str, value: object, choices: tuple[object, ...]) -> None:
    """Raise a ValueError unless ``value`` is one of ``choices``; True and False stand for themselves only."""
    if not any(type(value) is type(choice) and value == choice for choice in choices):
        raise ValueError(f"{name} must be one of {', '.join(map(str, choices))}; got {value!r}")


def check_flag(name: str, value: object) -> None:
    """Raise a ValueError unless ``value`` is True or False."""
    if not isinstance(value, bool):
        raise ValueError(f"{name} must be True or False, got {value!r}")


def check_number(name: str, value: float, low: float, *, open_end: bool = False) -> None:
    """Raise a ValueError unless ``value`` is a finite number of at least ``low``, or above it."""
    number = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= MAX_NUMBER
    if not number or value < low or (open_end and value == low):
        raise ValueError(
            f"{name} must be a finite number {'above' if open_end else 'of at least'} {low}, got {_shown(value)}"
        )


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 else text[:37] + "..."
