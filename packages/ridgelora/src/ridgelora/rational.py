"""The inverse square root as a short sum of resolvents (Hale, Higham and Trefethen 2008).

1 / sqrt(h) is nearly sum_j weight_j / (h + shift_j) for all h between two ends, with an error that falls by a constant
factor a term; the terms come from the conformal map of their section 4, by Jacobi's elliptic functions.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

ACCURACY = 1e-6
_POINTS = 400


@lru_cache(maxsize=64)
def inverse_square_root(decades: int) -> tuple[tuple[tuple[float, float], ...], float]:
    """Poles for 1 / sqrt(h) on ``[10^-decades, 1]``.

    Returns:
        Pairs (shift, weight), and the largest relative error that these have on a fine grid of the interval.
    """
    low = 10.0**-decades
    terms = math.ceil((-math.log(low) + 6) * -math.log(ACCURACY) / (2 * math.pi**2))
    poles = _poles(low, terms)
    grid = (low ** (i / (_POINTS - 1)) for i in range(_POINTS))
    error = max(abs(math.sqrt(h) * sum(weight / (h + shift) for shift, weight in poles) - 1) for h in grid)
    return poles, error


def _poles(low: float, terms: int) -> tuple[tuple[float, float], ...]:
    """The shifts and weights of their "method 3" on ``[low, 1]``."""
    quarter, functions = _jacobi(low)
    poles = []
    for j in range(terms):
        sn, cn, dn = functions((j + 0.5) * quarter / terms)
        weight = 2 * quarter * math.sqrt(low) / (math.pi * terms) * dn / cn**2
        poles.append((low * (sn / cn) ** 2, weight))
    return tuple(poles)


def _jacobi(complement: float) -> tuple[float, Callable[[float], tuple[float, float, float]]]:
    """The quarter period for the parameter 1 - complement, and u -> (sn, cn, dn), by descending Landen steps."""
    a, b, c = [1.0], math.sqrt(complement), [math.sqrt(1 - complement)]
    while c[-1] > 1e-15:
        a_next, b, c_next = (a[-1] + b) / 2, math.sqrt(a[-1] * b), (a[-1] - b) / 2
        a.append(a_next)
        c.append(c_next)

    def functions(u: float) -> tuple[float, float, float]:
        phi = 2 ** (len(a) - 1) * a[-1] * u
        for a_n, c_n in zip(a[:0:-1], c[:0:-1], strict=True):
            phi = (phi + math.asin(c_n / a_n * math.sin(phi))) / 2
        sn, cn = math.sin(phi), math.cos(phi)
        return sn, cn, math.sqrt(complement + (1 - complement) * cn * cn)  # dn² without cancellation

    return math.pi / (2 * a[-1]), functions
