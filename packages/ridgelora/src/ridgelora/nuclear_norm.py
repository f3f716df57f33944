"""The nuclear norm of M - I and its gradient (paper eq. 4), by the cheapest of three routes.

M - I = D + P Q with D = diag(lambda sigma - 1) and P Q = s B A (plus the constant offset, if any) of low rank. With the
polar factor G = U Vᵀ of its singular vectors, the gradient with respect to M is G. Only three pieces of G are needed,
its diagonal, G Qᵀ and Pᵀ G, and only "svd" ever forms a ``d x d`` matrix:

* "svd": all of it. Exact.
* "low_rank": when few entries of D are not 0, D + P Q maps the span of these axes and of Q's rows into that of the axes
  and of P's columns; the singular values are those of the small matrix between the two. Exact.
* "rational": the nuclear norm is the trace of H^(1/2), H = (D + P Q)ᵀ (D + P Q), and G = (D + P Q) H^(-1/2). H is a
  diagonal matrix plus one of rank 2 r, so (H + t)⁻¹ follows from the Woodbury identity, and H^(-1/2) is a sum of a
  score of such resolvents (:mod:`ridgelora.rational`), accurate to about 1e-6 for every singular value above the
  threshold. Those below it are damped, not cut off.

In the other two, singular values up to ``d eps max(1, s_max)`` count as 0 in the value and in the gradient: a
decomposition pairs the null spaces at random, which would be noise as large as the signal.
"""

from __future__ import annotations

import math
from typing import Any, Literal, NamedTuple, get_args

import torch
from torch import Tensor

from ridgelora.initialisation import check_choice
from ridgelora.rational import inverse_square_root
from ridgelora.transform import check_adapter, work_dtype

Route = Literal["auto", "svd", "low_rank", "rational"]

SVD_UP_TO = 256
"""Widths up to which "auto" decomposes M - I itself."""


_SMALLEST = 1e-8  # of the largest singular value: what resolvents in float64 can tell from 0


class RidgeNorm(NamedTuple):
    """A nuclear norm and how it was found.

    Attributes:
        value: The norm, a scalar, differentiable once.
        route: "svd", "low_rank" or "rational".
        relative_error: The largest relative error of a singular value above the threshold: 0 for the exact routes, for
            "rational" that of its terms, measured on the interval they serve.
    """

    value: Tensor
    route: str
    relative_error: float


class _Polar(NamedTuple):
    """The norm and the pieces of G, for P ``(d, q)`` and Q ``(q, d)``."""

    value: Tensor
    diagonal: Tensor  # (d,)
    G_Qt: Tensor  # (d, q)
    Pt_G: Tensor  # (q, d)


def ridge_nuclear_norm(
    lam: Tensor,
    sigma: Tensor,
    A: Tensor,
    B: Tensor,
    scaling: float,
    offset: Tensor | None = None,
    route: Route = "auto",
) -> RidgeNorm:
    """The sum of the singular values of diag(lambda sigma) + scaling B A - I (paper eq. 4, one matrix).

    Args:
        lam: lambda, ``(1,)``.
        sigma: ``(d,)``.
        A: ``(r, d)``.
        B: ``(d, r)``.
        scaling: s.
        offset: Constant rows ``(q, d)`` added to the first q of the matrix.
        route: "auto" takes "low_rank" if the rank and the number of entries of lambda sigma that differ from 1 are
            together at most d / 4, else "svd" up to a width of 256, and "rational" beyond.

    Returns:
        The norm in at least float32, and the route.

    Raises:
        ValueError: An unknown route, shapes that do not fit together, NaN or infinity.
    """
    check_choice("route", route, get_args(Route))
    check_adapter("sigma", sigma, lam, sigma, A, B)
    work = work_dtype(lam, sigma, A, B)
    gain, A, B = lam.to(work) * sigma.to(work), A.to(work), B.to(work)
    with torch.no_grad():
        ridge, left, right = gain - 1, scaling * B, A
        if offset is not None:
            axes = torch.eye(len(gain), len(offset), dtype=work, device=A.device)
            left, right = torch.cat([left, axes], 1), torch.cat([right, offset.to(work)])
        if not all(part.isfinite().all() for part in (ridge, left, right)):  # a threshold would make nothing of NaN
            raise ValueError("the transform holds NaN or infinity, so it has no nuclear norm")
        chosen = _choose(ridge, len(right)) if route == "auto" else route
        polar, error = _ROUTES[chosen](ridge, left, right)
        r = len(A)
        pieces = (polar.diagonal, polar.Pt_G[:r], scaling * polar.G_Qt[:, :r])
    value = _Value.apply(gain, A, B, polar.value, *pieces)
    return RidgeNorm(value, chosen, error)


def _choose(ridge: Tensor, rank: int) -> str:
    d = len(ridge)
    if rank + len(_moved(ridge)) <= d / 4:
        return "low_rank"
    return "svd" if d <= SVD_UP_TO or rank > d / 4 else "rational"


def _moved(ridge: Tensor) -> Tensor:
    """Where lambda sigma is not 1, beyond its own rounding."""
    return (ridge.abs() > 4 * torch.finfo(ridge.dtype).eps).nonzero().flatten()


def _threshold(d: int, largest: float, dtype: torch.dtype) -> float:
    return float(d * torch.finfo(dtype).eps * max(1.0, largest))


def _svd(ridge: Tensor, P: Tensor, Q: Tensor) -> tuple[_Polar, float]:
    U, values, Vt = torch.linalg.svd(torch.diag(ridge).addmm_(P, Q))
    keep = values > _threshold(len(ridge), float(values[0]), ridge.dtype)
    return _from_vectors(values[keep], U[:, keep], Vt[keep].T, P, Q), 0.0


def _from_vectors(values: Tensor, U: Tensor, V: Tensor, P: Tensor, Q: Tensor) -> _Polar:
    return _Polar(values.sum(), (U * V).sum(1), U @ (V.T @ Q.T), (P.T @ U) @ V.T)


def _low_rank(ridge: Tensor, P: Tensor, Q: Tensor) -> tuple[_Polar, float]:
    moved = _moved(ridge)
    still = torch.ones_like(ridge, dtype=torch.bool).index_fill_(0, moved, False).nonzero().flatten()
    # P = [axes, orthonormal] times p, and the same for Qᵀ; the two bases are (d, k + q)
    bases, cores = zip(*(_basis(factor, moved, still) for factor in (P, Q.T)), strict=True)
    core = cores[0] @ cores[1].T
    core.diagonal()[: len(moved)].add_(ridge[moved])
    U, values, Vt = torch.linalg.svd(core, full_matrices=False)
    largest = float(values[0]) if len(values) else 0.0
    keep = values > _threshold(len(ridge), largest, ridge.dtype)
    return _from_vectors(values[keep], bases[0] @ U[:, keep], bases[1] @ Vt[keep].T, P, Q), 0.0


def _basis(factor: Tensor, moved: Tensor, still: Tensor) -> tuple[Tensor, Tensor]:
    """An orthonormal basis of the moved axes and of the columns of ``factor``, and the latter in it."""
    rest, triangle = torch.linalg.qr(factor[still])
    basis = factor.new_zeros(len(factor), len(moved) + rest.shape[1])
    basis[moved, torch.arange(len(moved), device=moved.device)] = 1
    basis[still, len(moved) :] = rest
    return basis, torch.cat([factor[moved], triangle])


def _rational(ridge: Tensor, P: Tensor, Q: Tensor) -> tuple[_Polar, float]:
    dtype, device = ridge.dtype, ridge.device
    place = "cpu" if device.type == "mps" else device  # MPS has no float64
    D, P, Q = (tensor.to(place, torch.float64) for tensor in (ridge, P, Q))
    low_rank_norm = torch.linalg.matrix_norm(torch.linalg.qr(P)[1] @ torch.linalg.qr(Q.T)[1].T, 2)
    largest = float(D.abs().max() + low_rank_norm)
    threshold = max(_threshold(len(ridge), largest, dtype), _SMALLEST * largest)
    if not threshold < largest:
        zeros = [torch.zeros_like(tensor, dtype=dtype, device=device) for tensor in (D, P, Q)]
        return _Polar(ridge.new_zeros(()), *zeros), 0.0
    poles, error = inverse_square_root(math.ceil(2 * math.log10(largest / threshold)))
    # on [low, 1] largest²; scaled back, 1 / sqrt(h) gets weights times largest
    diagonal, first, second = _resolvents(D, P, Q, [(t * largest**2, w * largest) for t, w in poles])
    diagonal = D * diagonal + (P * second).sum(1)
    G_Qt = D[:, None] * second + P @ (Q @ second)
    value = torch.dot(D, diagonal) + (G_Qt * P).sum()
    return _Polar(*(tensor.to(device, dtype) for tensor in (value, diagonal, G_Qt, first.T))), error


def _resolvents(D: Tensor, P: Tensor, Q: Tensor, poles: list[tuple[float, float]]) -> tuple[Tensor, Tensor, Tensor]:
    """The diagonal of R, R Xᵀ P and R Qᵀ, for X = diag(D) + P Q and R the weighted sum of (XᵀX + shift)⁻¹.

    XᵀX = D² + W C Wᵀ with W = [Qᵀ, D P] and C⁻¹ = [[0, I], [I, -PᵀP]]. With t² the shift, E = t² / (D² + t²) and
    V = E [Qᵀ, (D / t) P], the Woodbury identity becomes (XᵀX + t²)⁻¹ = (E - V N⁻¹ Vᵀ) / t² with the matrix N below,
    whose entries stay of the size of P and Q however small t is; and R W C has the columns of V N⁻¹ in it.
    """
    q = len(Q)
    diagonal = torch.zeros_like(D)
    columns = D.new_zeros(len(D), 2 * q)
    N = D.new_empty(2 * q, 2 * q)
    eye = torch.eye(q, dtype=D.dtype, device=D.device)
    for shift, weight in poles:
        t = math.sqrt(shift)
        E = shift / (D * D + shift)
        V = torch.cat([E[:, None] * Q.T, (E * D / t)[:, None] * P], 1)
        upper = Q @ V
        N[:q], N[q:, :q] = upper, upper[:, q:].T
        N[:q, q:] += t * eye
        N[q:, :q] += t * eye
        N[q:, q:] = -(P.T @ (E[:, None] * P))
        solved = torch.linalg.solve(N, V.T).T
        diagonal += weight * (E - (solved * V).sum(1)) / shift
        solved[:, q:] /= t
        columns.add_(solved, alpha=weight)
    return diagonal, columns[:, :q], columns[:, q:]


class _Value(torch.autograd.Function):
    """The value, whose gradients are given."""

    @staticmethod
    def forward(ctx: Any, gain: Tensor, A: Tensor, B: Tensor, value: Tensor, *gradients: Tensor) -> Tensor:
        ctx.save_for_backward(*gradients)
        return value.clone()

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        return *(grad * gradient for gradient in ctx.saved_tensors), None, None, None, None


_ROUTES = {"svd": _svd, "low_rank": _low_rank, "rational": _rational}
