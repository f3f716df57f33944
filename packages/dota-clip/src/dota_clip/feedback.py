"""Human feedback on the least certain images (first version of the paper, arXiv 2409.19375v1; dropped in v3)."""

from __future__ import annotations

import bisect
from collections.abc import Callable, Sequence

from torch import Tensor

from dota_clip.adapter import DotaAdapter, DotaOutput


class HumanFeedback:
    """Asks for the label of images whose confidence is among the lowest share ``gamma`` of those seen so far.

    Confidence is the largest probability of the softmax of the image's zero-shot logits (which softmax is meant is not
    certain). An image is uncertain if its confidence lies below the value at position
    int(gamma n) of the sorted confidences, its own included.

    Args:
        gamma: share of images to ask about, in [0, 1); 0 never asks.
        seen: confidences of earlier images, to go on with a stopped stream.

    Raises:
        ValueError: gamma outside [0, 1).
    """

    def __init__(self, gamma: float, seen: Sequence[float] = ()) -> None:
        if not 0 <= gamma < 1:
            raise ValueError(f"gamma must be in [0, 1), got {gamma!r}")
        self.gamma = gamma
        self.confidences = sorted(seen)

    def is_uncertain(self, confidence: float) -> bool:
        """Takes note of an image's confidence and says whether to ask for its label."""
        bisect.insort(self.confidences, confidence)
        return confidence < self.confidences[int(len(self.confidences) * self.gamma)]

    def step(self, adapter: DotaAdapter, views: Tensor, ask: Callable[[], int]) -> tuple[DotaOutput, bool]:
        """`DotaAdapter.step`, fitting the answer of ``ask`` where the image is uncertain.

        Args:
            adapter: the adapter to go forward.
            views: (V, D) or (D,) as in `DotaAdapter.step`.
            ask: called only if the image is uncertain; returns the class index.

        Returns:
            The output and whether the human was asked.
        """
        confidence = float(adapter.zero_shot_logits(views).mean(0).softmax(0).max())
        if self.is_uncertain(confidence):
            return adapter.step(views, label=ask()), True
        return adapter.step(views), False
