"""Paths as text and as a figure."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from nips_common.artifacts import atomic_file
from nips_common.runtime import require

_FORMATS = (".png", ".pdf", ".svg")
Hop = tuple[str, str, str, bool]  # head, relation, tail, and whether the walk goes from tail to head


def path_text(hops: Sequence[Hop]) -> str:
    """One line, a --[relation]--> b <--[relation]-- c: arrows are those of triples, the walk goes left to right."""
    first = hops[0][2] if hops[0][3] else hops[0][0]
    parts = [first]
    for head, relation, tail, inverse in hops:
        parts.append(f" <--[{relation}]-- {head}" if inverse else f" --[{relation}]--> {tail}")
    return "".join(parts)


def check_figure(file: str | Path) -> None:
    """What `draw_paths` could not write, before any work.

    Raises:
        ValueError: a name that does not end in .png, .pdf or .svg, or a folder.
        FileNotFoundError: a folder that does not exist.
        ImportError: matplotlib is missing; names the extra.
    """
    path = Path(file)
    if path.suffix.lower() not in _FORMATS:
        raise ValueError(f"{path}: a figure must be a {', '.join(_FORMATS)} file")
    if path.is_dir():
        raise ValueError(f"{path} is a folder: name a file")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"{path}: the folder {path.parent} does not exist")
    require("matplotlib", "gfm-rag[plots]")


def draw_paths(file: str | Path, paths: Sequence[tuple[float, Sequence[Hop]]], title: str) -> None:
    """Draws a row for each path, its entities from left to right, with the relations on the arrows.

    Args:
        file: a .png, .pdf or .svg file, written atomically.
        paths: importance and hops of each.
        title: above the figure.

    Raises:
        ValueError: there is no path, or another kind of file.
        ImportError: matplotlib is missing; names the extra.
    """
    check_figure(file)
    if not paths:
        raise ValueError(f"{file}: there is no path to draw")
    from matplotlib.figure import Figure

    longest = max((len(hops) for _, hops in paths), default=1)
    figure = Figure(figsize=(2.6 * (longest + 1) + 0.8, 0.9 * len(paths) + 1.0), layout="constrained")
    axes = figure.subplots()
    for row, (weight, hops) in enumerate(paths):
        names = [hops[0][2] if hops[0][3] else hops[0][0]] + [
            head if inverse else tail for head, _, tail, inverse in hops
        ]
        # names may hold dollar signs, which would begin a formula
        axes.text(-0.6, -row, f"{weight:.3g}", va="center", ha="right", fontsize=8, color="0.4")
        for place, name in enumerate(names):
            box = {
                "boxstyle": "round",
                "facecolor": "#dbe9f6" if 0 < place < len(hops) else "#f9dcc4",
                "edgecolor": "0.5",
            }
            axes.text(place, -row, _short(name), va="center", ha="center", fontsize=8, bbox=box, parse_math=False)
        for place, (_, relation, _, inverse) in enumerate(hops):
            ends = (place + 0.3, -row), (place + 0.7, -row)
            begin, end = reversed(ends) if inverse else ends
            axes.annotate("", xy=end, xytext=begin, arrowprops={"arrowstyle": "->", "color": "0.3"})
            middle = place + 0.5, -row + 0.22
            axes.text(*middle, _short(relation), ha="center", fontsize=7, color="0.2", parse_math=False)
    axes.set_xlim(-1.1, longest + 0.6)
    axes.set_ylim(-len(paths) + 0.3, 0.7)
    axes.set_axis_off()
    axes.set_title(title, fontsize=9, parse_math=False)
    with atomic_file(file) as temporary:
        figure.savefig(temporary, dpi=150, format=Path(file).suffix.lower().lstrip("."))


def _short(text: str, longest: int = 24) -> str:
    return text if len(text) <= longest else text[: longest - 1] + "…"
