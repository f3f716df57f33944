"""Plain SVG for the page: scores of models by group, and the forecast of a window."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

import pandas as pd

WIDTH = 760
ROW = 20
LEFT, RIGHT, TOP, BOTTOM = 190, 20, 30, 30
COLOURS = 6  # classes c0 ... c5 of the style sheet


def ticks(low: float, high: float, wanted: int = 5) -> list[float]:
    """Round numbers between two values."""
    span = high - low
    if not (math.isfinite(span) and span > 0):
        return [low]
    step = 10 ** math.floor(math.log10(span / wanted))
    step *= next((factor for factor in (1, 2, 5) if span / (step * factor) <= wanted), 10)
    first = math.ceil(low / step - 1e-9)
    return [float(f"{index * step:.10g}") for index in range(first, math.floor(high / step + 1e-9) + 1)]


def dot_plot(scores: pd.DataFrame, title: str) -> str:
    """One row a model, one dot a group, on a logarithmic axis.

    Args:
        scores: index model, columns groups.
        title: what a score is.

    Returns:
        An ``<svg>`` element whose rows carry ``data-model``.
    """
    values = [value for value in scores.to_numpy().reshape(-1).tolist() if math.isfinite(value) and value > 0]
    if not values:
        return ""
    low, high = math.log10(min(values)), math.log10(max(values))
    low, high = (low - 0.02, high + 0.02) if high > low else (low - 0.1, high + 0.1)
    height = TOP + ROW * len(scores) + BOTTOM

    def x(value: float) -> float:
        return LEFT + (math.log10(value) - low) / (high - low) * (WIDTH - LEFT - RIGHT)

    parts = [f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{escape(title)}">']
    for tick in ticks(10**low, 10**high):
        if 10**low <= tick <= 10**high:
            at = f"{x(tick):.1f}"
            parts.append(f'<line class="grid" x1="{at}" x2="{at}" y1="{TOP}" y2="{height - BOTTOM}"/>')
            parts.append(f'<text class="tick" x="{at}" y="{height - BOTTOM + 16}">{tick:g}</text>')
    for row, model in enumerate(scores.index):
        y = TOP + ROW * row + ROW / 2
        dots = [
            f'<circle class="c{index % COLOURS}" cx="{x(value):.1f}" cy="{y:.1f}" r="4">'
            f"<title>{escape(f'{model}, {group}: {value:.3f}')}</title></circle>"
            for index, (group, value) in enumerate(scores.loc[model].items())
            if math.isfinite(value) and value > 0
        ]
        name = f'<text class="model" x="{LEFT - 10}" y="{y + 4:.1f}">{escape(str(model))}</text>'
        parts.append(f'<g data-model="{escape(str(model))}">{name}{"".join(dots)}</g>')
    place = float(LEFT)
    for index, group in enumerate(scores.columns):
        parts.append(f'<circle class="c{index % COLOURS}" cx="{place:.0f}" cy="12" r="4"/>')
        parts.append(f'<text class="legend" x="{place + 8:.0f}" y="16">{escape(str(group))}</text>')
        place += 30 + 6.5 * len(str(group))
    return "".join(parts) + "</svg>"


def window_plot(window: Mapping[str, Any]) -> str:
    """History, label, median and the band from 0.1 to 0.9 of one variate in one window.

    Args:
        window: what `boom_bench.running.shown_windows.show_window` gives.

    Returns:
        An ``<svg>`` element.
    """
    history, label = list(window["history"]), list(window["label"])
    lower, median, upper = (list(window["quantiles"][level]) for level in ("0.1", "0.5", "0.9"))
    known = [value for series in (history, label, lower, upper, median) for value in series if value is not None]
    low, high = (min(known), max(known)) if known else (0.0, 1.0)
    low, high = (low, high) if high > low else (low - 1, high + 1)
    height, count, left = 220, max(len(history) + len(label) - 1, 1), 60

    def x(index: int) -> float:
        return left + index / count * (WIDTH - left - RIGHT)

    def y(value: float) -> float:
        return height - 20 - (value - low) / (high - low) * (height - 35)

    def line(values: Sequence[float | None], first: int, kind: str) -> str:
        pieces, pen = [], "M"
        for index, value in enumerate(values):
            if value is None:
                pen = "M"
            else:
                pieces.append(f"{pen}{x(first + index):.1f} {y(value):.1f}")
                pen = "L"
        return f'<path class="{kind}" d="{"".join(pieces)}"/>'

    start = len(history)
    name = f"{window['model']}, {window['dataset']}, window {window['window']}, variate {window['variate']}"
    parts = [f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{escape(name)}">']
    for tick in ticks(low, high, 4):
        parts.append(f'<line class="grid" x1="{left}" x2="{WIDTH - RIGHT}" y1="{y(tick):.1f}" y2="{y(tick):.1f}"/>')
        parts.append(f'<text class="model" x="{left - 6}" y="{y(tick) + 4:.1f}">{tick:g}</text>')
    pairs = [(i, a, b) for i, (a, b) in enumerate(zip(lower, upper, strict=True)) if a is not None and b is not None]
    if pairs:
        there = " ".join(f"{x(start + i):.1f},{y(b):.1f}" for i, _, b in pairs)
        back = " ".join(f"{x(start + i):.1f},{y(a):.1f}" for i, a, _ in reversed(pairs))
        parts.append(f'<polygon class="band" points="{there} {back}"/>')
    parts += [line(history, 0, "history"), line(label, start, "label"), line(median, start, "median")]
    return "".join(parts) + "</svg>"
