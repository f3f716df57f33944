"""The leaderboard as one HTML page that needs nothing beside itself: sortable, filterable, with plots."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from importlib.resources import files
from typing import Any

import pandas as pd

from boom_bench.leaderboard.charts import dot_plot, window_plot
from boom_bench.leaderboard.table import format_number

_HERE = files("boom_bench.leaderboard")


def to_html(
    table: pd.DataFrame,
    *,
    breakdowns: Mapping[str, pd.DataFrame] | None = None,
    intervals: pd.DataFrame | None = None,
    windows: Sequence[Mapping[str, Any]] = (),
    title: str = "BOOM leaderboard",
    note: str = "",
) -> str:
    """The page.

    Args:
        table: what `leaderboard` gives; its rows can be sorted by each column and filtered by name.
        breakdowns: what `breakdown` gives; drawn and tabled.
        intervals: what `bootstrap_ci` gives for MASE; added as a column.
        windows: forecasts of chosen windows (see `boom_bench.running.shown_windows`); drawn.
        title: of the page.
        note: a sentence below the title.

    Returns:
        HTML.
    """
    sections = [_table(table, intervals), _imputed(table)]
    for name, scores in (breakdowns or {}).items():
        sections.append(_breakdown(name, scores, list(table.index)))
    sections.append(_windows(windows))
    style, script = ((_HERE / name).read_text("utf-8") for name in ("page.css", "page.js"))
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>{escape(title)}</title>\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<style>\n{style}</style>\n</head>\n<body>\n<h1>{escape(title)}</h1>\n<p>{escape(note)}</p>\n"
        '<div class="controls"><label for="filter">Models</label> '
        '<input id="filter" type="search" placeholder="part of a name" autocomplete="off">'
        '<output id="count"></output></div>\n'
        f"{''.join(sections)}<script>\n{script}</script>\n</body>\n</html>\n"
    )


def _table(table: pd.DataFrame, intervals: pd.DataFrame | None) -> str:
    heads = ["model", *(str(column).replace("eval_metrics/MAE[0.5]", "MAE") for column in table.columns)]
    rows = []
    for model in table.index:
        cells = [(format_number(value), value) for value in table.loc[model].tolist()]
        if intervals is not None:
            low, high = intervals.loc[model, ["low", "high"]]
            cells.insert(1, (f"{low:.3f} to {high:.3f}", float(low)))
        rows.append((str(model), cells))
    if intervals is not None:
        heads.insert(2, "MASE, interval")
    caption = "Lower is better. Click on a column to sort by it."
    return f"<h2>Leaderboard</h2>\n{_sortable('leaderboard', heads, rows, caption)}"


def _sortable(
    name: str, heads: Sequence[str], rows: Sequence[tuple[str, Sequence[tuple[str, float]]]], caption: str
) -> str:
    kinds = ["text", *["number"] * (len(heads) - 1)]
    head = "".join(
        f'<th scope="col" data-kind="{kind}"><button type="button">{escape(text)}</button></th>'
        for kind, text in zip(kinds, heads, strict=True)
    )
    body = "".join(
        f'<tr data-model="{escape(model)}"><td>{escape(model)}</td>'
        + "".join(f'<td data-value="{_plain(value)}">{escape(text)}</td>' for text, value in cells)
        + "</tr>\n"
        for model, cells in rows
    )
    return (
        f'<div class="scroll"><table id="{escape(name)}" class="sortable"><caption>{escape(caption)}</caption>'
        f"<thead><tr>{head}</tr></thead>\n<tbody>\n{body}</tbody></table></div>\n"
    )


def _plain(value: float) -> str:
    return "NaN" if math.isnan(value) else ("Infinity" if math.isinf(value) else repr(float(value)))


def _imputed(table: pd.DataFrame) -> str:
    counts = {model: count for model, count in table.attrs.get("imputed", {}).items() if count}
    if not counts:
        return "<p>No value was NaN or infinite.</p>\n"
    told = ", ".join(f"{escape(str(model))}: {count}" for model, count in counts.items())
    return f"<p>Values that were NaN or infinite and were replaced or left out: {told}.</p>\n"


def _breakdown(name: str, scores: pd.DataFrame, order: Sequence[Any]) -> str:
    shown = scores.loc[[model for model in order if model in scores.index]]
    parts = [f"<h2>By {escape(name.replace('_', ' '))}</h2>\n"]
    for metric in dict.fromkeys(metric for metric, _ in shown.columns):
        groups = shown[metric]
        title = f"{metric} by {name}, relative to the baseline"
        rows = [(str(model), [(format_number(v), v) for v in groups.loc[model].tolist()]) for model in groups.index]
        parts.append(f"<h3>{escape(title)}</h3>\n{dot_plot(groups, title)}\n")
        parts.append("<details><summary>The numbers</summary>\n")
        parts.append(_sortable(f"{name}-{metric}", ["model", *map(str, groups.columns)], rows, title))
        parts.append("</details>\n")
    return "".join(parts)


def _windows(windows: Sequence[Mapping[str, Any]]) -> str:
    if not windows:
        return ""
    key = "".join(
        f'<span><i style="background: var(--{colour})"></i>{text}</span>'
        for colour, text in (("c5", "history"), ("ink", "what came"), ("c0", "median, and 0.1 to 0.9"))
    )
    parts = [f'<h2>Forecasts of chosen windows</h2>\n<p class="key">{key}</p>\n']
    for window in windows:
        name = f"{window['model']}: {window['dataset']}, window {window['window']}, variate {window['variate']}"
        model = escape(str(window["model"]))
        parts.append(f'<section data-model="{model}"><h3>{escape(name)}</h3>{window_plot(window)}</section>\n')
    return "".join(parts)
