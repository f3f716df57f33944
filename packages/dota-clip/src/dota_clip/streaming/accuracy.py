"""Accuracy of a finished stream, from its rows, and the plot of how it moved."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from nips_common.artifacts import atomic_file
from nips_common.runtime import require

# The share of the stream over which the plotted moving accuracy is averaged, and the least number of images.
_WINDOW_SHARE, _LEAST_WINDOW = 0.1, 20


@dataclasses.dataclass(frozen=True)
class StreamAccuracy:
    """Which images were right, in stream order.

    Attributes:
        zero_shot: (n,) bool, of the images with a label.
        adapted: (n,) bool.
        images: all images, with and without a label.
        asked: images whose label a human gave.
    """

    zero_shot: np.ndarray[Any, np.dtype[np.bool_]]
    adapted: np.ndarray[Any, np.dtype[np.bool_]]
    images: int
    asked: int = 0

    @classmethod
    def from_rows(cls, rows: Iterable[dict[str, Any]]) -> StreamAccuracy:
        """Collects the rows of one or more streams."""
        right: list[tuple[bool, bool]] = []
        images = asked = 0
        for row in rows:
            images += 1
            asked += row["asked"]
            if row["label"] is not None:
                right.append((row["zero_shot"] == row["label"], row["adapted"] == row["label"]))
        table = np.array(right, dtype=bool).reshape(-1, 2)
        return cls(table[:, 0], table[:, 1], images, asked)

    def summary(self) -> dict[str, float | int | None]:
        """Counts and accuracies in percent (None without labels)."""
        labelled = len(self.adapted)
        percent = {
            name: 100 * float(values.mean()) if labelled else None
            for name, values in (("zero_shot_accuracy", self.zero_shot), ("adapted_accuracy", self.adapted))
        }
        return {"images": self.images, "labelled": labelled, **percent}


def plot_running_accuracy(accuracy: StreamAccuracy, path: Path, title: str) -> None:
    """Draws the cumulative and the moving accuracy over the stream, zero-shot beside adapted.

    Raises:
        ImportError: matplotlib is not installed.
    """
    require("matplotlib", "dota-clip[images]")
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4.5), layout="constrained")
    FigureCanvasAgg(figure)  # without pyplot: no global state, no window system
    axes = figure.add_subplot()
    seen = np.arange(1, len(accuracy.adapted) + 1)
    window = min(len(seen), max(_LEAST_WINDOW, round(_WINDOW_SHARE * len(seen))))
    for name, values, colour in (
        ("zero-shot", accuracy.zero_shot, "tab:gray"),
        ("adapted", accuracy.adapted, "tab:blue"),
    ):
        running = 100 * np.cumsum(values) / seen
        axes.plot(seen, running, color=colour, label=f"{name}: {running[-1]:.2f} % in all")
        moving = 100 * np.convolve(values, np.ones(window) / window, mode="valid")
        axes.plot(seen[window - 1 :], moving, color=colour, alpha=0.35, linewidth=1, label=f"{name}, last {window}")
    axes.set(xlabel="images seen", ylabel="accuracy, %", title=title)
    axes.grid(alpha=0.3)
    axes.legend()
    with atomic_file(path) as temporary:
        figure.savefig(temporary, format="png", dpi=120)
