"""Checks of what enters an adapter: each refuses in one line, before any state changes."""

from __future__ import annotations

import math
import operator
from typing import SupportsIndex

import torch
from torch import Tensor

# How far a row of probabilities may be from 1: half-precision softmaxes of 1,000 classes stay well inside.
_SUM_TOLERANCE = 1e-2
# bfloat16 features of unit norm come back with norms off by up to 4e-3.
_NORM_TOLERANCE = 1e-2


def check_scale(logit_scale: float | Tensor) -> float:
    """The logit scale as a float; ValueError unless finite and above 0."""
    value = float(logit_scale.detach()) if isinstance(logit_scale, Tensor) else float(logit_scale)
    if not (math.isfinite(value) and value > 0):
        raise ValueError(f"logit_scale must be a finite number above 0, got {logit_scale!r}")
    return value


def check_class_weights(class_weights: Tensor, *, copy: bool = True) -> Tensor:
    """The (D, K) class weights in the state's precision, float64 if they are, else float32; by default a copy."""
    if not isinstance(class_weights, Tensor) or class_weights.ndim != 2 or 0 in class_weights.shape:
        found = tuple(class_weights.shape) if isinstance(class_weights, Tensor) else type(class_weights).__name__
        raise ValueError(f"class_weights must be a (D, K) tensor with D and K at least 1, got {found}")
    precision = torch.float64 if class_weights.dtype == torch.float64 else torch.float32
    weights = class_weights.detach().to(precision, copy=copy)
    if not bool(weights.isfinite().all()):
        raise ValueError("class_weights must be finite, found NaN or infinity")
    return weights.contiguous()


def check_features(features: Tensor, class_weights: Tensor, what: str = "features") -> Tensor:
    """Features as (n, D) in the class weights' type and device; ValueError if none, not finite or of other width."""
    if not isinstance(features, Tensor):
        raise ValueError(f"{what} must be a tensor, got {type(features).__name__}")
    rows = features.detach().unsqueeze(0) if features.ndim == 1 else features.detach()
    dimension = class_weights.shape[0]
    if rows.ndim != 2 or rows.shape[1] != dimension:
        raise ValueError(
            f"{what} must be (n, {dimension}) or ({dimension},) as the class weights are, got {tuple(features.shape)}"
        )
    if len(rows) == 0:
        raise ValueError(f"{what} must hold at least one row, got {tuple(features.shape)}")
    if rows.is_complex():
        raise ValueError(f"{what} must be real numbers, got {rows.dtype}")
    rows = rows.to(class_weights)
    if not bool(rows.isfinite().all()):
        raise ValueError(
            f"{what} must be finite, found NaN or infinity in row {int((~rows.isfinite()).any(1).nonzero()[0])}"
        )
    return rows


def check_probs(probs: Tensor, rows: Tensor, num_classes: int) -> Tensor:
    """Probabilities as (n, K) in the features' type; ValueError unless each row is a distribution over the classes."""
    if not isinstance(probs, Tensor):
        raise ValueError(f"probs must be a tensor, got {type(probs).__name__}")
    table = probs.detach().unsqueeze(0) if probs.ndim == 1 else probs.detach()
    if table.shape != (len(rows), num_classes):
        raise ValueError(f"probs must be ({len(rows)}, {num_classes}), one row per feature, got {tuple(probs.shape)}")
    table = table.to(rows)
    sums = table.sum(1)
    wrong = ~((sums - 1).abs() <= _SUM_TOLERANCE) | (table < 0).any(1) | ~table.isfinite().all(1)
    if bool(wrong.any()):
        row = int(wrong.nonzero()[0])
        raise ValueError(
            f"each row of probs must be non-negative and sum to 1 within {_SUM_TOLERANCE:g}; "
            f"row {row} sums to {float(sums[row]):g} with minimum {float(table[row].min()):g}"
        )
    return table


def check_label(label: SupportsIndex, num_classes: int) -> int:
    """The label as an int; ValueError unless it is a class index (of any integer type)."""
    try:
        index = -1 if isinstance(label, bool) else operator.index(label)
    except TypeError:
        index = -1
    if not 0 <= index < num_classes:
        raise ValueError(f"label must be a class index from 0 to {num_classes - 1}, got {label!r}")
    return index


def check_config(config: object, config_class: type) -> None:
    """ValueError unless the settings are of the class that validates them."""
    if not isinstance(config, config_class):
        raise ValueError(f"config must be a {config_class.__name__}, got {type(config).__name__}")


def unit_norm(vectors: Tensor, dim: int) -> bool:
    """Whether all vectors along ``dim`` have unit norm, up to the rounding of half precision."""
    return bool(((vectors.norm(dim=dim) - 1).abs() <= _NORM_TOLERANCE).all())
