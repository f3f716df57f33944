"""Samples of Student-T mixtures from uniform noise that belongs to the sample, not to the batch it is computed in."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from toto_ts.cumsum import cumsum
from toto_ts.output import Projections

UNIFORMS = 3  # a value takes: which component, and two for the Student-T


def noise_of(seed: int, series: int, samples: range, shape: tuple[int, ...]) -> Tensor:
    """Uniform noise for some samples of one series.

    A sample's stream is keyed by (seed, series, sample), so that it does not depend on how many are drawn together.

    Args:
        seed: 0 to 2**63 - 1.
        series: index in the batch.
        samples: which samples.
        shape: of the noise of one sample.

    Returns:
        `(samples, *shape)` float32 in [0, 1), on the CPU.
    """
    noise = np.empty((len(samples), *shape), dtype=np.float32)
    for row, sample in zip(noise, samples, strict=True):
        key = np.array([seed, series << 32 | sample], dtype=np.uint64)
        np.random.Generator(np.random.Philox(key=key)).random(out=row, dtype=np.float32)
    return torch.from_numpy(noise)


def sample(projections: Projections, noise: Tensor) -> Tensor:
    """One value of each distribution.

    The component is the first whose cumulative weight exceeds the first uniform; its Student-T value comes from the
    other two by Bailey's polar method (Math. Comp. 62, 1994): t = sqrt(df (w^(-2/df) - 1)) cos(2 pi v), exact for any
    df.

    Args:
        projections: `(..., K)` of the heads, broadcast against the noise.
        noise: `(samples, ..., 3)` uniforms in [0, 1).

    Returns:
        `(samples, ...)` in normalised space.
    """
    u, w, v = noise.unbind(-1)
    component = (u.unsqueeze(-1) >= cumsum(projections.probs())).sum(-1, keepdim=True)
    component = component.clamp_max(projections.loc.shape[-1] - 1)  # rounding may leave the last sum below u
    df, loc, scale = projections.component(component)
    radius = (df * torch.expm1(-2 / df * torch.log1p(-w))).sqrt()  # 1 - w lies in (0, 1]
    return torch.addcmul(loc, scale, radius * torch.cos(2 * math.pi * v))
