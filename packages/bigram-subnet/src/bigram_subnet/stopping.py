"""When training of a mask ends, and whether its loss curve can be trusted (paper A.2, official code)."""

from __future__ import annotations

import math
from collections.abc import Sequence

from bigram_subnet.sparsifier import MaskCounts


def should_stop(counts: MaskCounts, stop_fraction: float = 0.01) -> bool:
    """Whether few enough masks are undecided: ``undecided < stop_fraction * above``.

    It can never hold while no mask is above 0.9, not even when all are below 0.1; see :func:`is_empty`.

    Args:
        counts: of the soft masks, after an optimiser step and before the temperature is changed.
        stop_fraction: share of the kept entries; 0 never stops.
    """
    return counts.undecided < stop_fraction * counts.above


def is_empty(counts: MaskCounts) -> bool:
    """Whether every mask is below 0.1: nothing is left that training could keep [not in the paper]."""
    return counts.above == 0 and counts.undecided == 0


def loss_is_stable(
    losses: Sequence[float], window: int = 10, absolute: float = 0.25, relative: float = 1.25, tail: int = 100
) -> bool:
    """Whether a loss curve never jumped without coming back [code].

    It is unstable if at some step i >= 1 the loss exceeds the mean of the (up to ``window``) losses before it by more
    than ``absolute``, or by more than the factor ``relative``, and either i lies in the last ``tail`` steps or no later
    loss before those comes back to that mean. A curve with a loss that is not a number is unstable [not in the code].

    Args:
        losses: one cross-entropy per optimiser step.
        window: how many steps before a jump make its mean.
        absolute: largest allowed rise.
        relative: largest allowed factor.
        tail: the last steps, in which a jump has no time to come back.

    Raises:
        ValueError: no loss at all, or a window below 1 or a tail below 0.
    """
    if not len(losses):
        raise ValueError("a loss curve must hold at least one loss, got none")
    if window < 1 or tail < 0:
        raise ValueError(f"window must be at least 1 and tail at least 0, got {window!r} and {tail!r}")
    values = [float(loss) for loss in losses]
    if any(math.isnan(value) for value in values):
        return False
    end = len(values) - tail
    # least[i]: the minimum of values[i:end], which makes the rule linear in the number of steps
    least = [float("inf")] * (len(values) + 1)
    for i in range(min(end, len(values)) - 1, -1, -1):
        least[i] = min(values[i], least[i + 1])
    for i in range(1, len(values)):
        before = values[max(0, i - window) : i]
        mean = sum(before) / len(before)  # not fmean: whether a rise of just 0.25 counts hangs on the last bit
        if (values[i] > mean + absolute or values[i] > mean * relative) and (i >= end or least[i] > mean):
            return False
    return True
