"""The figure of the small experiment: accuracy on digits through drifted gains and turned, and SmolLM2's loss."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from nips_common.artifacts import atomic_file
from nips_common.runtime import require
from ridgelora.experiment.language_model import Tuned
from ridgelora.experiment.shift import Adapted

# Told apart by colour-blind readers too: Paul Tol's bright scheme.
OURS, THEIRS, OTHER = "#4477AA", "#EE6677", "#777777"

Shift = tuple[float, Mapping[str, Adapted]]  # accuracy in per cent without adaptation, methods
LanguageModel = tuple[float, Mapping[str, Tuned]]  # loss before training, methods


def draw(path: Path, drift: Shift, rotation: Shift, language_model: LanguageModel | None) -> Path:
    """Draw the figure as PNG: a point a seed, a tick at their mean, a dashed line without training.

    Args:
        path: The file.
        drift: Digits through drifted gains.
        rotation: Digits turned and inverted.
        language_model: SmolLM2; None leaves that panel out.

    Returns:
        ``path``.

    Raises:
        ImportError: matplotlib is missing; names the extra.
    """
    panels: list[tuple[str, str, float, Mapping[str, Sequence[float]]]] = [
        (title, "test accuracy in %", unadapted, {name: result.accuracy for name, result in methods.items()})
        for title, (unadapted, methods) in (
            ("Digits, gains drifted", drift),
            ("Digits, rotated and inverted", rotation),
        )
    ]
    if language_model is not None:
        before, tuned = language_model
        losses = {name: result.losses for name, result in tuned.items()}
        panels.append(("SmolLM2 on word problems", "held-out loss in nats a token", before, losses))
    figure = require("matplotlib.figure", "ridgelora[reproduce]").Figure(
        figsize=(10, 2.4 * len(panels)), layout="constrained"
    )
    for axes, panel in zip(figure.subplots(len(panels), 1), panels, strict=True):
        _panel(axes, *panel)
    with atomic_file(path) as temporary:
        figure.savefig(temporary, format="png", dpi=110)
    return path


def _panel(axes: Any, title: str, label: str, untrained: float, methods: Mapping[str, Sequence[float]]) -> None:
    for row, (name, values) in enumerate(methods.items()):
        colour = OURS if name.startswith("Ridge") else THEIRS if name.startswith("LoRA") else OTHER
        axes.scatter(values, [row] * len(values), color=colour, alpha=0.55, s=34, zorder=3)
        axes.scatter([fmean(values)], [row], color=colour, marker="|", s=320, linewidths=2.4, zorder=4)
    axes.axvline(untrained, color=OTHER, linestyle="--", linewidth=1)
    axes.set_yticks(range(len(methods)), list(methods))
    axes.set_ylim(len(methods) - 0.5, -0.5)
    axes.set_xlabel(f"{label} (dashed: without training)")
    axes.set_title(title, fontsize=11, loc="left")
    axes.grid(axis="x", color="#e2e2e2", zorder=0)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
