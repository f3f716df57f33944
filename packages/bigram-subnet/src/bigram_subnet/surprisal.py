"""Surprisals, their correlation with the bigram's, and the choice among subnetworks by it (paper 3.6)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal, get_args

# Not torch: the package imports this module at once, since its name is also that of a public function, and a name
# that is looked up on demand would turn into the module. torch is imported where it is needed.
if TYPE_CHECKING:
    from torch import Tensor

Infinite = Literal["drop_target", "clamp"]


def surprisal(logits: Tensor, input_ids: Tensor) -> Tensor:
    """-log2 p(actual next token) of the tokens 1, ..., S - 1.

    Args:
        logits: (batch, sequence, vocabulary), any float dtype.
        input_ids: (batch, sequence) token ids.

    Returns:
        (batch, sequence - 1) bits, float32 or wider.

    Raises:
        ValueError: shapes that do not belong together, or ids outside of the vocabulary.
    """
    import torch

    if logits.ndim != 3 or logits.shape[:2] != input_ids.shape:
        raise ValueError(f"logits {tuple(logits.shape)} do not fit input_ids {tuple(input_ids.shape)}")
    wanted = input_ids[:, 1:].to(logits.device, torch.long)
    if wanted.numel() and not (int(wanted.min()) >= 0 and int(wanted.max()) < logits.shape[-1]):
        low, high = int(wanted.min()), int(wanted.max())
        raise ValueError(
            f"input_ids must lie in the logits' vocabulary, 0 to {logits.shape[-1] - 1}, got {low} to {high}"
        )
    dtype = torch.promote_types(logits.dtype, torch.float32)
    log_probs = torch.log_softmax(logits[:, :-1], dim=-1, dtype=dtype)
    chosen = log_probs.gather(-1, wanted.unsqueeze(-1)).squeeze(-1)
    return -chosen / math.log(2)


def surprisal_correlation(
    model_surprisal: Tensor, target_surprisal: Tensor, infinite: Infinite = "drop_target"
) -> float:
    """Pearson's r between two series of surprisals, which may hold infinite values.

    Args:
        model_surprisal: bits, any shape.
        target_surprisal: bits, the same shape.
        infinite: "drop_target" leaves tokens out whose target surprisal is infinite and replaces infinite values of the
            model by its largest finite one [the later code]; "clamp" replaces them in both series.

    Returns:
        r in [-1, 1]; NaN if a series does not vary.

    Raises:
        ValueError: different shapes, values that are not numbers, nothing left to compare, or an unknown treatment.
    """
    if infinite not in get_args(Infinite):
        raise ValueError(f"infinite must be one of {', '.join(get_args(Infinite))}, got {infinite!r}")
    if model_surprisal.shape != target_surprisal.shape:
        shapes = f"{tuple(model_surprisal.shape)} and {tuple(target_surprisal.shape)}"
        raise ValueError(f"surprisals must have one shape, got {shapes}")
    model, target = (series.detach().double().cpu().reshape(-1) for series in (model_surprisal, target_surprisal))
    if bool(model.isnan().any()) or bool(target.isnan().any()):
        raise ValueError("surprisals must not be NaN")
    if infinite == "drop_target":
        finite = target.isfinite()
        model, target = model[finite], target[finite]
    if len(model) < 2:
        raise ValueError(f"a correlation needs at least two tokens with a finite target surprisal, got {len(model)}")
    x, y = (_clamped(series) for series in (model, target))
    if x.max() == x.min() or y.max() == y.min():
        return math.nan  # asked of the values: around a rounded mean they would vary by the last bit
    x, y = x - x.mean(), y - y.mean()
    scale = float(x.norm() * y.norm())
    return max(-1.0, min(1.0, float(x @ y) / scale)) if scale > 0 else math.nan


def _clamped(series: Tensor) -> Tensor:
    """Infinite values replaced by the largest finite one."""
    import torch

    finite = series[series.isfinite()]
    if not len(finite):
        raise ValueError("every surprisal is infinite")
    return torch.where(series.isfinite(), series, finite.max())


def select_subnetwork(results: Mapping[float, float], tolerance: float = 0.04) -> float:
    """The sparsest subnetwork that is nearly as bigram-like as the densest [paper].

    Args:
        results: bigram correlation r by lambda.
        tolerance: how far r may lie below that of the smallest lambda (0 in the paper).

    Returns:
        The largest lambda whose r is within ``tolerance`` of it.

    Raises:
        ValueError: no result, an r that is not a number at the smallest lambda, or a negative tolerance.
    """
    if not tolerance >= 0:
        raise ValueError(f"tolerance must be at least 0, got {tolerance!r}")
    if not results:
        raise ValueError("there must be at least one result to choose from, got none")
    reference = results[min(results)]
    if math.isnan(reference):
        raise ValueError(f"r must be a number at lambda {min(results):g}, got {reference}")
    # The difference of two r's that were rounded to the same digits must not fail on the last bit.
    return max(value for value, r in results.items() if r >= reference - tolerance - 1e-12)
