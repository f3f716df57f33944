"""The figure of the experiment: where the subnetwork's weights lie, and how bigram-like it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bigram_subnet.figure import draw_bars
from nips_common.artifacts import atomic_file
from nips_common.runtime import require


def draw(path: Path, shares: Sequence[dict[str, Any]], correlations: Mapping[str, Sequence[float]]) -> Path:
    """Draws the figure as PNG.

    Args:
        path: the file.
        shares: from `block_shares`, of one subnetwork.
        correlations: r by what it is of, one a seed.

    Returns:
        ``path``.

    Raises:
        ImportError: matplotlib is missing; names the extra.
    """
    figure = require("matplotlib.figure", "bigram-subnet[reproduce]").Figure(figsize=(11, 4), layout="constrained")
    left, right = figure.subplots(1, 2)
    draw_bars(left, shares)
    left.set_title("Kept weights by layer, first seed", fontsize=11)
    left.legend(frameon=False)
    for place, values in enumerate(correlations.values()):
        right.plot([place] * len(values), values, "o", color="#0072B2", markersize=7)
    right.set_xticks(range(len(correlations)), list(correlations))
    right.set_ylim(0, 1)
    right.set_xlim(-0.5, len(correlations) - 0.5)
    right.set_ylabel("r with the bigram's surprisal")
    right.grid(axis="y", color="#dddddd")
    right.spines[["top", "right"]].set_visible(False)
    right.set_title("Held-out text, one mark a seed", fontsize=11)
    with atomic_file(path) as temporary:
        figure.savefig(temporary, format="png", dpi=110)
    return path
