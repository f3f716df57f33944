"""The loss over the steps as a picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from nips_common.artifacts import atomic_file


def plot_loss(history: Sequence[Mapping[str, Any]], path: Path, title: str) -> None:
    """Draw the training loss, and the evaluation loss where there is one.

    Args:
        history: The Trainer's ``state.log_history``.
        path: The PNG file, replaced in one step.
        title: Above the plot.
    """
    figure = Figure(figsize=(8, 4.5), layout="constrained")
    FigureCanvasAgg(figure)  # without pyplot: no global state, no window system
    axes = figure.add_subplot()
    for key, label, style in (("loss", "training", "-"), ("eval_loss", "evaluation", "o--")):
        points = [(entry["step"], entry[key]) for entry in history if key in entry]
        if points:
            steps, losses = zip(*points, strict=True)
            axes.plot(steps, losses, style, label=f"{label}: {losses[-1]:.4g} at the end")
    axes.set(xlabel="step", ylabel="loss", title=title)
    axes.grid(alpha=0.3)
    if axes.has_data():
        axes.legend()
    with atomic_file(path) as temporary:
        figure.savefig(temporary, format="png", dpi=120)
