"""The figure of the experiment: one panel a table, bars of its means with the spread over seeds."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from nips_common.claims import Table
from nips_common.runtime import require


def draw(file: Path, tables: Sequence[Table]) -> Path:
    """Draws bars of the columns of means of each table: all numeric ones but those that name a seed.

    Args:
        file: a PNG file.
        tables: first column the label of a row.

    Returns:
        The file.
    """
    require("matplotlib", "gfm-rag[plots]")
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.5 * len(tables), 4), layout="constrained")
    for axes, table in zip(figure.subplots(1, len(tables), squeeze=False)[0], tables, strict=True):
        shown = [
            column for column, name in enumerate(table.columns) if column and "worst" not in name and "best" not in name
        ]
        width = 0.8 / len(shown)
        for offset, column in enumerate(shown):
            places = [row + offset * width for row in range(len(table.rows))]
            axes.bar(places, [float(row[column]) for row in table.rows], width, label=table.columns[column])
        middle = width * (len(shown) - 1) / 2
        axes.set_xticks([row + middle for row in range(len(table.rows))], [str(row[0]) for row in table.rows])
        axes.tick_params(axis="x", labelrotation=30, labelsize=8)
        axes.set_title(table.title, fontsize=9)
        axes.legend(fontsize=8)
    figure.savefig(file, dpi=130)
    return file
