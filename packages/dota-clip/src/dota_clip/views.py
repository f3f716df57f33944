"""Selection of the confident views of one image (DOTA on the out-of-distribution sets: 6 of 64 AugMix views)."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from dota_clip.inputs import check_class_weights, check_features, check_scale


class ViewSelection(NamedTuple):
    """The kept views of one image, in ascending order of entropy.

    Attributes:
        indices: (n,) positions among the V views.
        features: (n, D) unit-norm.
        probs: (n, K) zero-shot probabilities of each.
        logits: (K,) mean of their logits.
        entropy: 0-d, nats, of the mean of their probabilities.
        mean_feature: (D,) mean of ``features``, not re-normalised.
    """

    indices: Tensor
    features: Tensor
    probs: Tensor
    logits: Tensor
    entropy: Tensor
    mean_feature: Tensor


def entropy(probs: Tensor) -> Tensor:
    """Entropy in nats over the last dimension; 0 log 0 = 0."""
    terms: Tensor = torch.special.entr(probs)
    return terms.sum(-1)


@torch.no_grad()
def select_views(
    features: Tensor, class_weights: Tensor, fraction: float = 0.1, logit_scale: float = 100.0
) -> ViewSelection:
    """Keeps the int(fraction V) views whose zero-shot prediction has the lowest entropy.

    Args:
        features: (V, D) features of the views, normalised here.
        class_weights: (D, K) unit-norm class weights.
        fraction: share of the views to keep, in (0, 1]. A single view is kept as it is.
        logit_scale: multiplies the cosines.

    Returns:
        The selection; its ``features`` go to `DotaAdapter.step`.

    Raises:
        ValueError: wrong sizes, values that are not finite, a zero feature, or a fraction that keeps no view.
    """
    weights = check_class_weights(class_weights, copy=False)
    rows = check_features(features, weights)
    scale = check_scale(logit_scale)
    if not 0 < fraction <= 1:
        raise ValueError(f"fraction must be in (0, 1], got {fraction!r}")
    # fraction V as an exact product of decimals: 0.29 * 100 is 28.999... in floating point
    kept = 1 if len(rows) == 1 else math.floor(fraction * len(rows) + 1e-9)
    if kept < 1:
        raise ValueError(
            f"fraction={fraction:g} of V={len(rows)} views keeps none: use at least {math.ceil(1 / fraction)} views, "
            "a larger fraction, or a single view"
        )
    norms = rows.norm(dim=1, keepdim=True)
    if not bool((norms > 0).all()):
        raise ValueError("features must not be zero vectors: they cannot be normalised")
    rows = functional.normalize(rows, dim=1)
    logits = (rows * scale) @ weights
    probs = logits.softmax(1)
    indices = entropy(probs).argsort(stable=True)[:kept]
    chosen = probs[indices]
    return ViewSelection(
        indices, rows[indices], chosen, logits[indices].mean(0), entropy(chosen.mean(0)), rows[indices].mean(0)
    )
