"""How an adapter starts (paper algorithm 1): lambda, the ridge sigma, and the low-rank factors A and B.

Torch layouts throughout: A is ``(r, in)``, B is ``(in, r)``, and the transform is M = diag(lambda sigma) + s B A.
The published algorithm projects onto the column space of a random A, so that M differs from the identity by rank r;
"exact" and "diagonal" choose an A whose column space holds the first r axes, and M is the identity.
"""

from __future__ import annotations

import math
from typing import Literal, get_args

import torch
from torch import Tensor, nn

Init = Literal[
    "exact",
    "diagonal",
    "gaussian",
    "gaussian_calibrated",
    "kaiming_normal",
    "kaiming_uniform",
    "xavier_normal",
    "xavier_uniform",
]

# "exact" inverts an r x r normal matrix of variance 1 / r, whose smallest singular value falls below x / r in a share x
# of draws (Edelman 1988). Those below this x are drawn anew: B, its inverse, would be huge and rounding would show.
_WELL_CONDITIONED = 0.2


def ridge_init(
    in_features: int,
    r: int,
    alpha: float,
    *,
    init: str = "exact",
    noise_mean: float = 2.0,
    noise_std: float = 1.0,
    use_rslora: bool = False,
    generator: torch.Generator | None = None,
    dtype: torch.dtype = torch.float32,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Draw the start of an adapter on a layer of this width (paper algorithm 1).

    The first r entries of sigma are sigmoid(n) with n normal, all others 1; lambda is 1; B follows from A by
    :func:`ridge_init_B`. The product s B A depends neither on alpha nor on the scale of A.

    Args:
        in_features: Width d of the layer's input.
        r: The rank, 1 .. d.
        alpha: The scale; s is ``alpha / r``, or ``alpha / sqrt(r)`` with ``use_rslora``.
        init: What A is. Dense, algorithm 1 literally: "gaussian" (variance 1 / r, the paper's choice), or of its
            ablation "kaiming_normal", "kaiming_uniform", "xavier_normal", "xavier_uniform"; with these the layer's
            output changes at once, by rank r. "exact": zero but for its first r columns, which are normal with variance
            1 / r: M is the identity up to rounding. "diagonal": these are diagonal (the paper's ablation): the same.
            "gaussian_calibrated": as "gaussian"; add :func:`ridge_offset` to make M the identity.
        noise_mean: Mean of n (not in the paper).
        noise_std: Standard deviation of n (not in the paper).
        use_rslora: See ``alpha``.
        generator: A CPU generator; None: torch's own.
        dtype: Of the results.

    Returns:
        lambda ``(1,)``, sigma ``(d,)``, A ``(r, d)``, B ``(d, r)``, on the CPU.

    Raises:
        ValueError: A number or a name out of its range.
    """
    check_rank("in_features", in_features)
    check_rank("r", r, in_features)
    check_number("alpha", alpha, 0, open_end=True)
    check_choice("init", init, get_args(Init))
    check_number("noise_mean", noise_mean, -math.inf)
    check_number("noise_std", noise_std, 0)
    noise = noise_mean + noise_std * torch.randn(r, generator=generator, dtype=torch.float64)
    sigma = torch.cat([noise.sigmoid(), torch.ones(in_features - r, dtype=torch.float64)]).to(dtype)
    A = _down_projection(in_features, r, init, generator).to(dtype)
    return torch.ones(1, dtype=dtype), sigma, A, ridge_init_B(A, sigma, scaling_of(r, alpha, use_rslora))


def scaling_of(r: int, alpha: float, use_rslora: bool) -> float:
    """The factor s in front of B A."""
    return alpha / math.sqrt(r) if use_rslora else alpha / r


def ridge_init_B(A: Tensor, sigma: Tensor, scaling: float, lam: Tensor | float = 1.0) -> Tensor:
    """Solve for the B that brings M nearest to the identity (paper algorithm 1, steps 5 and 6).

    In the paper's layout, A_p ``(d, r)`` and B_p ``(r, d)``: B_p = (1 / s) A_p⁺ (I - lambda diag(sigma)).

    Args:
        A: ``(r, d)`` with full row rank.
        sigma: ``(d,)``.
        scaling: s.
        lam: lambda.

    Returns:
        ``(d, r)`` in A's dtype, computed in float64.

    Raises:
        ValueError: Shapes that do not fit, a scaling that is not above 0.
    """
    check_number("scaling", scaling, 0, open_end=True)
    if A.dim() != 2 or sigma.shape != A.shape[1:]:
        raise ValueError(f"A must be (r, in) and sigma (in,), got shapes {tuple(A.shape)} and {tuple(sigma.shape)}")
    check_rank("r, the rows of A,", len(A), A.shape[1])
    inverse: Tensor = torch.linalg.pinv(A.detach().T.cpu().double())  # A_p⁺ by a thin SVD, (r, d)
    defect = 1 - torch.as_tensor(lam, dtype=torch.float64).detach().cpu() * sigma.detach().cpu().double()
    B: Tensor = (inverse * defect / scaling).T
    return B.to(A)


def ridge_offset(lam: Tensor, sigma: Tensor, A: Tensor, B: Tensor, scaling: float) -> Tensor:
    """The first r rows of I - M, ``(r, d)``: all of it at the start of algorithm 1, where other rows are those of I.

    Kept as a constant and added to M it makes "gaussian_calibrated" start at the identity (not in the paper):
    M + C with C = (I - P_A)(I - Sigma_0) in the paper's layout, P_A the projector on the column space of A.

    Args:
        lam: ``(1,)``.
        sigma: ``(d,)``.
        A: ``(r, d)``.
        B: ``(d, r)``.
        scaling: s.

    Returns:
        ``(r, d)`` in A's dtype, computed in float64.
    """
    r = len(A)
    change = -scaling * (B[:r].double() @ A.double())
    change.diagonal().add_(1 - (lam.double() * sigma[:r].double()))
    return change.to(A)


def _down_projection(in_features: int, r: int, init: str, generator: torch.Generator | None) -> Tensor:
    """A, ``(r, in)`` in float64."""
    A = torch.zeros(r, in_features, dtype=torch.float64)
    if init == "diagonal":
        A.fill_diagonal_(r**-0.5)
    elif init == "exact":
        while torch.linalg.svdvals(A[:, :r])[-1] < _WELL_CONDITIONED / r:
            A[:, :r].normal_(std=r**-0.5, generator=generator)
    elif init in ("gaussian", "gaussian_calibrated"):
        A.normal_(std=r**-0.5, generator=generator)
    else:
        getattr(nn.init, f"{init}_")(A, generator=generator)
    return A


def check_rank(name: str, rank: int, in_features: int | None = None) -> None:
    """Raise a ValueError unless ``rank`` is a whole number of at least 1 and at most ``in_features``."""
    whole = isinstance(rank, int) and not isinstance(rank, bool)
    if not whole or rank < 1 or (in_features is not None and rank > in_features):
        most = "" if in_features is None else f" and at most in_features={in_features}"
        raise ValueError(f"{name} must be a whole number of at least 1{most}, got {rank!r}")


def check_choice(name: str, value: object, choices: tuple[object, ...]) -> None:
    """Raise a ValueError unless ``value`` is one of ``choices``; True and False stand for themselves only."""
    if not any(type(value) is type(choice) and value == choice for choice in choices):
        raise ValueError(f"{name} must be one of {', '.join(map(str, choices))}; got {value!r}")


def check_number(name: str, value: float, low: float, *, open_end: bool = False) -> None:
    """Raise a ValueError unless ``value`` is a finite number of at least ``low``, or above it."""
    number = isinstance(value, int | float) and not isinstance(value, bool) and _is_finite(value)
    if not number or value < low or (open_end and value == low):
        least = "" if low == -math.inf else f" {'above' if open_end else 'of at least'} {low}"
        shown = repr(value) if len(repr(value)) <= 40 else f"{repr(value)[:37]}..."
        raise ValueError(f"{name} must be a finite number{least}, got {shown}")


def _is_finite(value: float) -> bool:
    """Whole numbers beyond the range of float are not."""
    try:
        return math.isfinite(value)
    except OverflowError:
        return False
