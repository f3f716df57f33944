"""The series transform x' = lambda sigma x + s B A x in front of a frozen weight (paper eq. 1), and its merge (eq. 2).

No ``in x in`` matrix is formed. Forward and backward are written out, so that between them only x in its own dtype and
the r-dimensional A x are kept, and the elementwise part and the low-rank part share one output.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor

_PARTS = ("lambda", "sigma", "A", "B")


def ridge_transform(
    x: Tensor, lam: Tensor, sigma: Tensor, A: Tensor, B: Tensor, scaling: float, offset: Tensor | None = None
) -> Tensor:
    """Return lambda sigma x + scaling B (A x) (paper eq. 1), differentiable in all tensors but ``offset``.

    Args:
        x: ``(..., d)``.
        lam: lambda, ``(1,)``.
        sigma: ``(d,)``.
        A: ``(r, d)``.
        B: ``(d, r)``.
        scaling: s.
        offset: Constant rows ``(q, d)`` added to the first q of the transform; see
            :func:`ridgelora.ridge_offset` (not in the paper).

    Returns:
        ``(..., d)`` in the dtype of x. float16 and bfloat16 are computed in float32, autocast or not.

    Raises:
        ValueError: Shapes that do not fit together.
        TypeError: An x of whole numbers, which the result would be rounded to.
    """
    check_adapter("x", x, lam, sigma, A, B)
    if torch.amp.is_autocast_available(x.device.type) and torch.is_autocast_enabled(x.device.type):  # not on meta
        with torch.autocast(x.device.type, enabled=False):
            return ridge_transform(x, lam, sigma, A, B, scaling, offset)
    work = work_dtype(x, A)
    gain = lam.to(work) * sigma.to(work)
    rows = x.reshape(-1, x.shape[-1])
    out, _ = _Transform.apply(rows, gain, A.to(work), B.to(work), offset, scaling)
    return out.view(x.shape)  # type: ignore[no-any-return]


def transform_with_dropout(
    x: Tensor,
    lam: Tensor,
    sigma: Tensor,
    A: Tensor,
    B: Tensor,
    scaling: float,
    offset: Tensor | None,
    dropout: torch.nn.Module,
) -> Tensor:
    """:func:`ridge_transform` with dropout in front of A only: the ridge passes all of x on."""
    guard: Any = nullcontext()
    if torch.amp.is_autocast_available(x.device.type) and torch.is_autocast_enabled(x.device.type):  # not on meta
        guard = torch.autocast(x.device.type, enabled=False)
    with guard:
        work = work_dtype(x, A)
        full = x.to(work)
        dropped: Tensor = dropout(full)
        out = full * (lam.to(work) * sigma.to(work)) + scaling * ((dropped @ A.to(work).T) @ B.to(work).T)
        if offset is not None:
            rows = full @ offset.to(work).T
            out = out + torch.nn.functional.pad(rows, (0, x.shape[-1] - len(offset)))
        return out.to(x.dtype)


def ridge_merge(
    weight: Tensor, lam: Tensor, sigma: Tensor, A: Tensor, B: Tensor, scaling: float, offset: Tensor | None = None
) -> Tensor:
    """Return the weight that does what the transform and ``weight`` do (paper eq. 2), in O(out r in) operations.

    Args:
        weight: ``(out, d)``.
        lam: lambda, ``(1,)``.
        sigma: ``(d,)``.
        A: ``(r, d)``.
        B: ``(d, r)``.
        scaling: s.
        offset: As in :func:`ridge_transform`.

    Returns:
        The merged weight, ``(out, d)`` in the dtype of ``weight``; float16 and bfloat16 are computed in float32.

    Raises:
        ValueError: Shapes that do not fit together.
        TypeError: A weight of whole numbers, which the result would be rounded to.
    """
    check_adapter("weight", weight, lam, sigma, A, B)
    work = work_dtype(weight, A)
    full = weight.to(work)
    merged = full * (lam.to(work) * sigma.to(work))
    merged.addmm_(full @ B.to(work), A.to(work), alpha=scaling)
    if offset is not None:
        merged.addmm_(full[:, : len(offset)], offset.to(work))
    return merged.to(weight.dtype)


def check_adapter(name: str, x: Tensor, lam: Tensor, sigma: Tensor, A: Tensor, B: Tensor) -> None:
    """Raise a ValueError unless an adapter's shapes fit ``(..., d)``, a TypeError unless that is floating.

    Args:
        name: What x is called.
        x: ``(..., d)``.
        lam: ``(1,)`` or ``()``.
        sigma: ``(d,)``.
        A: ``(r, d)``.
        B: ``(d, r)``.
    """
    if not x.is_floating_point():
        raise TypeError(f"{name} must be a floating tensor, got {x.dtype}")
    d, r = x.shape[-1] if x.dim() else 0, A.shape[0] if A.dim() else 0
    if lam.numel() != 1 or sigma.shape != (d,) or A.shape != (r, d) or B.shape != (d, r):
        found = ", ".join(
            f"{part} {tuple(tensor.shape)}" for part, tensor in zip(_PARTS, (lam, sigma, A, B), strict=True)
        )
        raise ValueError(
            f"for {name} {tuple(x.shape)}, lambda (1,), sigma (d,), A (r, d) and B (d, r) fit; got {found}"
        )


def work_dtype(*tensors: Tensor) -> torch.dtype:
    """The widest dtype of the tensors, at least float32."""
    dtype = torch.float32
    for tensor in tensors:
        dtype = torch.promote_types(dtype, tensor.dtype)
    return dtype


class _Transform(torch.autograd.Function):
    """x gain + scaling B A x on rows; returns it and A x, which is kept for the backward."""

    @staticmethod
    def forward(
        x: Tensor, gain: Tensor, A: Tensor, B: Tensor, offset: Tensor | None, scaling: float
    ) -> tuple[Tensor, Tensor]:
        full = x.to(gain.dtype)
        hidden = full @ A.T
        out = full * gain
        out.addmm_(hidden, B.T, alpha=scaling)
        if offset is not None:
            out[:, : len(offset)].addmm_(full, offset.to(gain.dtype).T)
        return out.to(x.dtype), hidden

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        x, gain, A, B, offset, ctx.scaling = inputs
        ctx.mark_non_differentiable(output[1])
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(x, gain, A, B, offset, output[1])

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None, _: Tensor | None) -> tuple[Tensor | None, ...]:
        if grad is None:
            return (None,) * 6
        x, gain, A, B, offset, hidden = ctx.saved_tensors
        wanted = ctx.needs_input_grad
        full, grad = x.to(gain.dtype), grad.to(gain.dtype)
        if torch.is_grad_enabled():
            hidden = full @ A.T  # to be differentiated once more
        grad_hidden = ctx.scaling * (grad @ B)
        grad_gain = (grad * full).sum(0) if wanted[1] else None
        grad_A = grad_hidden.T @ full if wanted[2] else None
        grad_B = ctx.scaling * (grad.T @ hidden) if wanted[3] else None
        grad_x = None
        if wanted[0]:
            grad_x = (grad * gain).addmm_(grad_hidden, A)
            if offset is not None:
                grad_x.addmm_(grad[:, : len(offset)], offset.to(gain.dtype))
            grad_x = grad_x.to(x.dtype)
        return grad_x, grad_gain, grad_A, grad_B, None, None
