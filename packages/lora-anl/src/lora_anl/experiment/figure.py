"""The figure of the small experiment: errors on the planted residual, accuracy under shift, and on Reuters R8."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean, median
from typing import Any

from lora_anl.experiment.comparison import Scores
from lora_anl.experiment.extra import from_extra
from lora_anl.experiment.residual import LINEAR, POOLED, Fit
from lora_anl.experiment.shift import Shifted
from nips_common.artifacts import atomic_file

# Okabe and Ito's palette, told apart by colour-blind readers too.
GREY, ORANGE, BLUE, GREEN = "#555555", "#E69F00", "#0072B2", "#009E73"

Rows = Sequence[tuple[str, Sequence[float]]]


def draw(
    path: Path,
    fits: Mapping[str, Sequence[Fit]],
    unadapted: float,
    shifted: Mapping[str, Shifted],
    scores: Mapping[str, Scores] | None,
) -> Path:
    """Draws the figure as PNG: a point a seed, a bar at their mean (of the residual: median).

    Args:
        path: the file.
        fits: of the planted residual, by method.
        unadapted: accuracy in per cent on the shifted digits before adaptation.
        shifted: of the domain shift, by method.
        scores: of Reuters R8, by method; None leaves that panel out.

    Returns:
        ``path``.

    Raises:
        ImportError: matplotlib is missing; names the extra.
    """
    panels = 2 if scores is None else 3
    figure = from_extra("matplotlib.figure").Figure(figsize=(5.6 * panels, 4.6), layout="constrained")
    axes = figure.subplots(1, panels)
    _residual(axes[0], fits)
    _shift(axes[1], unadapted, shifted)
    if scores is not None:
        _reuters(axes[2], scores)
    for panel in axes:
        panel.spines[["top", "right"]].set_visible(False)
        panel.set_axisbelow(True)
    with atomic_file(path) as temporary:
        figure.savefig(temporary, format="png", dpi=110)
    return path


def _colour(name: str) -> str:
    if "merge" in name:
        return GREEN
    return BLUE if name.startswith("AuroRA") else ORANGE if name.startswith("LoRA") else GREY


def _strip(axes: Any, rows: Rows, middle: Any) -> None:
    """One line a method: its seeds as points, their middle as a tick."""
    for place, (name, values) in enumerate(rows):
        axes.plot(values, [place] * len(values), "o", color=_colour(name), alpha=0.6, markersize=6)
        axes.plot([middle(values)], [place], "|", color=_colour(name), markersize=20, markeredgewidth=2.5)
    axes.set_yticks(range(len(rows)), [name for name, _ in rows])
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.grid(axis="x", color="#dddddd")


def _residual(axes: Any, fits: Mapping[str, Sequence[Fit]]) -> None:
    rows = [
        (name, [one.training / best.training for one, best in zip(of_seed, fits[LINEAR], strict=True)])
        for name, of_seed in fits.items()
        if name != LINEAR
    ]
    for label, field in (("static merge of\nAuroRA r=2", "merged"), ("calibrated merge\nof AuroRA r=2", "calibrated")):
        pairs = zip(fits[POOLED], fits[LINEAR], strict=True)
        rows.append((label, [getattr(one, field) / best.training for one, best in pairs]))
    _strip(axes, rows, median)
    axes.set_xscale("log")
    axes.axvline(1, color=GREY, linestyle="--", linewidth=1)
    axes.set_xlabel("training MSE / that of the best linear map (dashed)")
    axes.set_title("Planted nonlinear residual", fontsize=11)


def _shift(axes: Any, unadapted: float, shifted: Mapping[str, Shifted]) -> None:
    rows: list[tuple[str, Sequence[float]]] = [(name, result.accuracy) for name, result in shifted.items()]
    rows.append((f"static merge of\n{POOLED}", shifted[POOLED].merged))
    _strip(axes, rows, fmean)
    axes.axvline(unadapted, color=GREY, linestyle="--", linewidth=1)
    axes.set_xlim(0, 100)
    axes.set_xlabel("test accuracy in % (dashed: before adaptation)")
    axes.set_title("Digits, rotated and inverted", fontsize=11)


def _reuters(axes: Any, scores: Mapping[str, Scores]) -> None:
    for name, score in scores.items():
        parameters = score.encoder_parameters + score.head_parameters
        axes.plot([parameters] * len(score.accuracy), score.accuracy, "o", color=_colour(name), alpha=0.6, markersize=6)
        middle = fmean(score.accuracy)
        axes.plot([parameters], [middle], "_", color=_colour(name), markersize=20, markeredgewidth=2.5)
        below = name.startswith("LoRA r=2")  # as many parameters as AuroRA r=2: one name above, one below
        axes.annotate(
            name, (parameters, min(score.accuracy) if below else max(score.accuracy)),
            (0, -9 if below else 9), textcoords="offset points", ha="center", va="top" if below else "bottom",
        )  # fmt: skip
    axes.set_xscale("log")
    axes.margins(x=0.2, y=0.2)
    axes.grid(color="#dddddd")
    axes.set_xlabel("trained parameters, with the head")
    axes.set_ylabel("test accuracy in %")
    axes.set_title("MiniLM on Reuters R8", fontsize=11)
