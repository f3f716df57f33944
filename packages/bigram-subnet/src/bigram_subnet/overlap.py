"""Whether two masks share more weights than chance would have it (paper A.9).

Two nulls. "uniform" [paper] puts the entries of each block (q, k, v, o, MLP in, MLP out of each layer) at random places
of it; "rows" [code] shuffles whole rows of each block, which keeps the counts in its columns. Both expectations are
known in closed form; the p-value comes from draws.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bigram_subnet.choices import Layout, Null
from bigram_subnet.layout import split_layers
from bigram_subnet.mask import SubnetworkMask, check_same_weights, count

_AT_ONCE = 1 << 21  # row indices drawn at a time


@dataclass(frozen=True)
class OverlapResult:
    """How two masks overlap.

    Args:
        overlap: share of all entries that both keep.
        expected: its expectation under the null, closed form.
        contained: share of the first mask's entries that the second keeps too; NaN if it keeps none.
        p_value: (draws with at least this overlap + 1) / (draws + 1).
        ratio: ``overlap / expected``; NaN if nothing is expected.
        null_mean: mean overlap of the draws.
        null_std: standard deviation of the draws.
        kept_a: entries that the first mask keeps.
        kept_b: entries that the second mask keeps.
        total: all entries.
        null: the null.
        draws: how many draws.
    """

    overlap: float
    expected: float
    contained: float
    p_value: float
    ratio: float
    null_mean: float
    null_std: float
    kept_a: int
    kept_b: int
    total: int
    null: Null
    draws: int


def mask_overlap(
    a: SubnetworkMask,
    b: SubnetworkMask,
    null: Null = "uniform",
    draws: int = 10000,
    layout: Layout = "per_head",
    config: Any = None,
    seed: int = 0,
) -> OverlapResult:
    """Compares the overlap of two masks with chance.

    Args:
        a: a mask.
        b: a mask of the same weights.
        null: "uniform" [paper] or "rows" [code].
        draws: how many draws give the p-value.
        layout: how GPT-NeoX's fused projection is split into q, k, v; "blocks" is the official code's reading.
        config: the model's transformers config, for "per_head" on that projection if neither mask knows it.
        seed: of the draws.

    Returns:
        The overlap, its expectation and the p-value; swapping the masks changes ``contained`` only.

    Raises:
        ValueError: masks of different models, an unknown null or layout, no draw, or a missing config.
    """
    if null not in get_args(Null):
        raise ValueError(f"null must be one of {', '.join(get_args(Null))}, got {null!r}")
    if not isinstance(draws, int) or isinstance(draws, bool) or draws < 1:
        raise ValueError(f"draws must be a whole number of at least 1, got {draws!r}")
    check_same_weights(a, b)
    config = next((each for each in (config, a.config, b.config) if each is not None), None)
    parts_a, parts_b = split_layers(a, layout, config), split_layers(b, layout, config)
    rng = np.random.default_rng(seed)
    both, expected, sampled = 0, 0.0, np.zeros(draws)
    for name, part in parts_a.items():
        other = parts_b[name].to(part.device)
        both += count(part & other)
        expected += _expected(part, other, null)
        sampled += _draw(part, other, null, draws, rng)
    total, kept_a, kept_b = a.total, a.kept, b.kept
    at_least = int((sampled >= both - 0.5).sum())  # whole numbers, summed as floats
    return OverlapResult(
        overlap=both / max(total, 1),
        expected=expected / max(total, 1),
        contained=both / kept_a if kept_a else float("nan"),
        p_value=(at_least + 1) / (draws + 1),
        ratio=both / expected if expected else float("nan"),
        null_mean=float(sampled.mean()) / max(total, 1),
        null_std=float(sampled.std()) / max(total, 1),
        kept_a=kept_a,
        kept_b=kept_b,
        total=total,
        null=null,
        draws=draws,
    )


def _expected(a: Tensor, b: Tensor, null: Null) -> float:
    """Expected entries in both: |A||B| / size, or the sum over columns of a_j b_j / rows."""
    if null == "uniform":
        return count(a) * count(b) / max(a.numel(), 1)
    return float(a.sum(0).double() @ b.sum(0).double()) / max(a.shape[0], 1)


def _draw(a: Tensor, b: Tensor, null: Null, draws: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Overlaps of one block under the null."""
    if null == "uniform":
        # The overlap of two random sets is hypergeometric. Its two sets may change places: the larger comes first, so
        # that swapping the masks leaves the draws.
        small, large = sorted((count(a), count(b)))
        return rng.hypergeometric(large, a.numel() - large, small, size=draws).astype(np.float64)
    if _bytes(b) < _bytes(a):
        a, b = b, a
    return _draw_rows(a, b, draws, rng)


def _bytes(mask: Tensor) -> bytes:
    return np.packbits(mask.cpu().contiguous().numpy()).tobytes()


def _draw_rows(a: Tensor, b: Tensor, draws: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Overlaps after shuffling the rows of both: only the rows' order relative to each other matters.

    With G = A B^T, the overlap is the sum of G[r, permutation(r)].
    """
    rows = a.shape[0]
    used = torch.nonzero(a.any(1)).flatten()
    if not len(used) or not bool(b.any()):
        return np.zeros(draws)
    pairs = (a[used].float() @ b.float().T).cpu().numpy()  # (used rows of a, rows); exact up to 2^24 columns
    result = np.empty(draws)
    step = max(1, _AT_ONCE // rows)
    each = np.arange(len(used))
    for start in range(0, draws, step):
        count = min(step, draws - start)
        order = rng.permuted(np.broadcast_to(np.arange(rows), (count, rows)), axis=1)[:, : len(used)]
        result[start : start + count] = pairs[each, order].sum(axis=1, dtype=np.float64)
    return result
