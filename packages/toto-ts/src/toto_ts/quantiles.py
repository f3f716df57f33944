"""Quantiles of a Student-T mixture without sampling: the distribution function, and its inverse by Newton."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from toto_ts.output import StudentTParameters

_TINY = 1e-300
_FRACTION_STEPS = 400
_NEWTON_STEPS = 100
# Above this the incomplete beta function needs many terms, and the normal approximation is right to 1e-9.
_NEARLY_NORMAL = 2e4


def student_t_cdf(t: Tensor, df: Tensor) -> Tensor:
    """P(T <= t) of a standard Student-T.

    Args:
        t: any shape.
        df: degrees of freedom above 0, broadcast.

    Returns:
        float64, to about 1e-9. 1 - I(df / (df + t^2); df/2, 1/2) / 2 for t > 0, with the regularised incomplete beta
        function I by its continued fraction.
    """
    t, df = torch.broadcast_tensors(t.double(), df.double())
    few = df.clamp_max(_NEARLY_NORMAL)
    x = few / (few + t.square())
    tail = _incomplete_beta(few / 2, torch.full_like(few, 0.5), x, t.square() / (few + t.square())) / 2
    lower = torch.where(t < 0, tail, 1 - tail)
    # Wallace's transformation to a normal variable
    z = torch.sign(t) * (df * torch.log1p(t.square() / df)).sqrt() * (8 * df + 1) / (8 * df + 3)
    return torch.where(df > _NEARLY_NORMAL, torch.special.ndtr(z), lower)


def _incomplete_beta(a: Tensor, b: Tensor, x: Tensor, complement: Tensor) -> Tensor:
    """I_x(a, b), float64; `complement` is 1 - x without its rounding."""
    swap = x > (a + 1) / (a + b + 2)  # the fraction converges fast on one side only
    a, b = torch.where(swap, b, a), torch.where(swap, a, b)
    x, complement = torch.where(swap, complement, x), torch.where(swap, x, complement)
    log_front = torch.lgamma(a + b) - torch.lgamma(a) - torch.lgamma(b) + torch.xlogy(a, x) + torch.xlogy(b, complement)
    value = log_front.exp() * _beta_fraction(a, b, x) / a
    return torch.where(swap, 1 - value, value)


def _beta_fraction(a: Tensor, b: Tensor, x: Tensor) -> Tensor:
    """The continued fraction of the incomplete beta function by the modified Lentz algorithm."""

    def away(value: Tensor) -> Tensor:
        return torch.where(value.abs() < _TINY, _TINY, value)

    c = torch.ones_like(x)
    d = 1 / away(1 - (a + b) * x / (a + 1))
    result = d
    for m in range(1, _FRACTION_STEPS):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        d = 1 / away(1 + even * d)
        c = away(1 + even / c)
        result = result * d * c
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        d = 1 / away(1 + odd * d)
        c = away(1 + odd / c)
        change = d * c
        result = result * change
        if bool(((change - 1).abs() < 1e-14).all()):
            break
    return result


def _log_density(t: Tensor, df: Tensor) -> Tensor:
    norm = torch.lgamma((df + 1) / 2) - torch.lgamma(df / 2) - 0.5 * torch.log(math.pi * df)
    return norm - (df + 1) / 2 * torch.log1p(t.square() / df)


def mixture_quantile(parameters: StudentTParameters, levels: Tensor) -> Tensor:
    """Quantiles in normalised space.

    Args:
        parameters: `(..., K)`.
        levels: `(Q,)` in (0, 1).

    Returns:
        `(..., Q)` in the parameters' dtype.
    """
    df, loc, scale, probs = (field.double().unsqueeze(-2) for field in parameters)
    q = levels.double()
    low, high = _bracket(df, loc, scale, probs, q)
    x = (low + high) / 2
    for _ in range(_NEWTON_STEPS):
        t = (x.unsqueeze(-1) - loc) / scale
        excess = (probs * student_t_cdf(t, df)).sum(-1) - q
        low, high = torch.where(excess < 0, x, low), torch.where(excess < 0, high, x)
        density = (probs * _log_density(t, df).exp() / scale).sum(-1)
        newton = x - excess / density.clamp_min(_TINY)
        inside = (newton > low) & (newton < high)
        new = torch.where(inside, newton, (low + high) / 2)
        done = (new - x).abs() <= 1e-10 * (1 + x.abs())
        x = new
        if bool(done.all()):
            break
    return x.to(parameters.loc.dtype)


def _bracket(df: Tensor, loc: Tensor, scale: Tensor, probs: Tensor, q: Tensor) -> tuple[Tensor, Tensor]:
    """Points below and above every quantile, `(..., Q)`: each component's range, widened until they are."""
    width = torch.full_like(q, 4.0)
    while True:
        low, high = (loc - width.unsqueeze(-1) * scale).amin(-1), (loc + width.unsqueeze(-1) * scale).amax(-1)
        below = (probs * student_t_cdf((low.unsqueeze(-1) - loc) / scale, df)).sum(-1)
        above = (probs * student_t_cdf((high.unsqueeze(-1) - loc) / scale, df)).sum(-1)
        if bool(((below <= q) & (above >= q)).all()):
            return low, high
        width = width * 4
