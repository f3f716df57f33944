"""The picture of a mask: kept weights of every layer, attention and MLP side by side."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bigram_subnet.shares import PARTS
from nips_common.artifacts import atomic_file
from nips_common.runtime import require

# Okabe and Ito's palette, told apart by colour-blind readers too; the hatches tell them apart in grey.
_STYLES = dict(zip(PARTS, (("#56B4E9", "//"), ("#0072B2", ""), ("#E69F00", "..")), strict=True))


def draw_shares(path: Path, rows: Sequence[dict[str, Any]], title: str) -> Path:
    """Draws stacked bars of kept weights by layer as PNG.

    Args:
        path: the file.
        rows: from `block_shares`.
        title: above the bars.

    Returns:
        ``path``.

    Raises:
        ImportError: matplotlib is missing; names the extra.
    """
    figure = require("matplotlib.figure", "bigram-subnet[plot]").Figure(figsize=(8, 4), layout="constrained")
    axes = figure.subplots()
    draw_bars(axes, rows)
    axes.set_title(title, fontsize=11)
    axes.legend(frameon=False)
    with atomic_file(path) as temporary:
        figure.savefig(temporary, format="png", dpi=110)
    return path


def draw_bars(axes: Any, rows: Sequence[dict[str, Any]]) -> None:
    """The stacked bars on matplotlib axes."""
    layers = sorted({row["layer"] for row in rows})
    below = dict.fromkeys(layers, 0)
    for part, (colour, hatch) in _STYLES.items():
        heights = [sum(row["kept"] for row in rows if (row["layer"], row["part"]) == (layer, part)) for layer in layers]
        bottoms = [below[layer] for layer in layers]
        axes.bar(layers, heights, 0.8, bottoms, label=part, color=colour, hatch=hatch, edgecolor="white")
        below = {layer: below[layer] + height for layer, height in zip(layers, heights, strict=True)}
    axes.set_xlabel("layer")
    axes.set_ylabel("kept weights")
    axes.set_xticks(layers)
    axes.spines[["top", "right"]].set_visible(False)
