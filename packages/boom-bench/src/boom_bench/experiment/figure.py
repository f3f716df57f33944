"""The figure of the small experiment: scores of the forecasters, and their forecasts of one window."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from nips_common.artifacts import atomic_file
from nips_common.runtime import require

# Okabe and Ito's palette, told apart by colour-blind readers too.
COLOURS = ("#555555", "#E69F00", "#0072B2", "#56B4E9", "#009E73", "#CC79A7")
SHOWN_HISTORY = 96


def draw(path: Path, table: pd.DataFrame, windows: Sequence[Mapping[str, Any]], unit: str) -> Path:
    """Draws the figure as PNG.

    Args:
        path: the file.
        table: what `leaderboard` gives.
        windows: one variate of one window by several models, as `show_window` gives it.
        unit: what the window counts.

    Returns:
        ``path``.

    Raises:
        ImportError: matplotlib is missing; names the extra.
    """
    figure = require("matplotlib.figure", "boom-bench[plot]").Figure(figsize=(13, 5), layout="constrained")
    scores, panel = figure.subplots(1, 2, width_ratios=(1, 1.6))
    _scores(scores, table)
    _window(panel, windows, unit)
    for axes in (scores, panel):
        axes.spines[["top", "right"]].set_visible(False)
    with atomic_file(path) as temporary:
        figure.savefig(temporary, format="png", dpi=110)
    return path


def _scores(axes: Any, table: pd.DataFrame) -> None:
    places = range(len(table))
    for offset, (column, label, colour) in enumerate(
        ((table.columns[0], "MASE", COLOURS[1]), (table.columns[1], "CRPS", COLOURS[2]))
    ):
        axes.barh([place - 0.2 + 0.4 * offset for place in places], table[column], 0.38, label=label, color=colour)
    axes.axvline(1, color="#999999", linewidth=1)
    axes.set_yticks(list(places), list(table.index))
    axes.invert_yaxis()
    axes.set_title("Relative to seasonal naive, lower is better", fontsize=11)
    axes.legend(frameon=False)


def _window(axes: Any, windows: Sequence[Mapping[str, Any]], unit: str) -> None:
    history, label = windows[0]["history"][-SHOWN_HISTORY:], windows[0]["label"]
    ahead = list(range(len(label)))
    axes.plot(range(-len(history), 0), history, color="#999999", linewidth=1.2)
    axes.plot(ahead, label, color="#000000", linewidth=1.2, label="what came")
    for window, colour in zip(windows, COLOURS[1:], strict=False):
        low, median, high = (window["quantiles"][level] for level in ("0.1", "0.5", "0.9"))
        axes.fill_between(ahead, low, high, color=colour, alpha=0.2, linewidth=0)
        axes.plot(ahead, median, color=colour, linewidth=1.6, label=window["model"])
    axes.set_xlabel("hours from the forecast on")
    axes.set_ylabel(unit)
    axes.set_title(f"{windows[0]['dataset']}: medians, and 0.1 to 0.9", fontsize=11)
    axes.set_ylim(top=axes.get_ylim()[1] * 1.3)  # room for the legend
    axes.legend(frameon=False, loc="upper left", ncols=2)
