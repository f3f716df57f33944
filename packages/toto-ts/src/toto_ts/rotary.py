"""xPos rotary position embedding as the official code applies it, its two peculiarities included.

Angles are interleaved, (f0, f0, f1, f1, ...), while the scale row is two concatenated halves, so that the two members
of a rotated pair are scaled differently. And the exponent of the scale is centred on the middle of the positions of one
call; that centre cancels between queries and keys only if both use the same one (not in the paper).
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

THETA = 10000.0
SCALE_BASE = 512.0


def xpos_tables(positions: Tensor, head_dim: int, *, center: float | None = None) -> tuple[Tensor, Tensor]:
    """Angles and scales of positions.

    Args:
        positions: `(n,)`, of any numeric type; computed in float32 at least, since bfloat16 cannot count past 256.
        head_dim: even width d of a head.
        center: position of scale 1; None is floor(largest position / 2), which the official code uses in each call.

    Returns:
        `(n, head_dim)` angles p f_i with f_i = 10000^(-2i/d), and `(n, head_dim)` scales z_i^((p - center) / 512) with
        z_i = (2i + 0.4 d) / (1.4 d).

    Raises:
        ValueError: no position, or an odd width.
    """
    if positions.ndim != 1 or len(positions) == 0:
        raise ValueError(f"positions must be a vector of at least one, got shape {tuple(positions.shape)}")
    if head_dim < 2 or head_dim % 2:
        raise ValueError(f"head_dim must be even, as xPos rotates pairs, got {head_dim}")
    p = positions.to(torch.float64 if positions.dtype == torch.float64 else torch.float32)
    even = torch.arange(0, head_dim, 2, device=p.device, dtype=p.dtype)
    angles = torch.outer(p, THETA ** (-even / head_dim)).repeat_interleave(2, -1)
    base = (even + 0.4 * head_dim) / (1.4 * head_dim)
    middle = torch.floor(p.max() / 2) if center is None else center
    scale = base ** ((p - middle) / SCALE_BASE).unsqueeze(-1)
    return angles, torch.cat([scale, scale], -1)


class XPos(NamedTuple):
    """cos, sin and scale of the positions of one call, `(n, head_dim)` each, shared by all layers."""

    cos: Tensor
    sin: Tensor
    scale: Tensor

    @classmethod
    def at(cls, positions: Tensor, head_dim: int, center: float | None = None) -> XPos:
        """The tables of :func:`xpos_tables` with cosines and sines taken."""
        angles, scale = xpos_tables(positions, head_dim, center=center)
        return cls(angles.cos(), angles.sin(), scale)

    def last(self) -> XPos:
        """The tables of the last position alone."""
        return XPos(self.cos[-1:], self.sin[-1:], self.scale[-1:])

    def query(self, query: Tensor) -> Tensor:
        """Compute q' = (q cos + rot(q) sin) * scale for `(..., n, head_dim)`, in the query's dtype."""
        return (_rotate(query, self.cos, self.sin) * self.scale).to(query.dtype)

    def key(self, key: Tensor) -> Tensor:
        """Compute k' = (k cos + rot(k) sin) / scale for `(..., n, head_dim)`, in the key's dtype."""
        return (_rotate(key, self.cos, self.sin) / self.scale).to(key.dtype)


def _rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Give x cos + rot(x) sin, where rot turns each interleaved pair (a, b) into (-b, a)."""
    a, b = x[..., 0::2], x[..., 1::2]
    turned = torch.stack([-b, a], -1).flatten(-2)
    return x * cos + turned * sin


def apply_xpos(query: Tensor, key: Tensor, *, offset: int = 0, center: float | None = None) -> tuple[Tensor, Tensor]:
    """Rotate and scale queries and keys at positions offset, offset + 1, ...

    Args:
        query: `(..., n, head_dim)`.
        key: `(..., n, head_dim)`.
        offset: position of the first.
        center: see :func:`xpos_tables`.

    Returns:
        The two, in their shapes and dtypes.

    Raises:
        ValueError: as :func:`xpos_tables`.
    """
    dtype = torch.float64 if query.dtype == torch.float64 else torch.float32
    positions = torch.arange(offset, offset + query.shape[-2], device=query.device, dtype=dtype)
    tables = XPos.at(positions, query.shape[-1], center)
    return tables.query(query), tables.key(key)
