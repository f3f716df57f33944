"""Puts the results of `nox -s reproduce` together: a table on the terminal, one self-contained page for the browser.

Reads reproduction/<package>/reproduction.json, prints every claim with its verdict, and writes reproduction/index.html,
which carries its plots inside and needs neither scripts nor a network.
"""

from __future__ import annotations

import argparse
import base64
import sys
import textwrap
from collections import Counter
from collections.abc import Container, Iterable, Sequence
from html import escape
from pathlib import Path
from statistics import stdev

from nips_common.artifacts import atomic_file
from nips_common.claims import Claim, Reproduction, Table
from workspace import ROOT, end

HEADER = ("package", "claim", "baseline", "ours", "spread over seeds", "holds?")
WIDTHS = (14, 42, 8, 8, 31, 15)
MARKS = {"holds": "good", "fails": "bad", "not judged at this budget": "open", "not run": "open"}

STYLE = Path(__file__).with_name("gallery.css")
NONE = "-"


def number(value: str | float | None) -> str:
    """A table's cell: four significant digits, a dash for what was not measured."""
    if value is None:
        return NONE
    return str(value) if isinstance(value, str | int) else f"{value:#.4g}".rstrip(".")


def spread(claim: Claim) -> str:
    """Least and greatest value over the seeds and their sample standard deviation."""
    if len(claim.seeds) < 2:
        return NONE
    return f"{number(min(claim.seeds))}..{number(max(claim.seeds))} (sd {stdev(claim.seeds):.2g}, n {len(claim.seeds)})"


def cells(package: str, claim: Claim) -> tuple[str, ...]:
    """The six cells of a claim, in the order of HEADER."""
    statement = f"{claim.statement} [{claim.metric}]" + (f" ({claim.reason})" if claim.reason else "")
    return package, statement, number(claim.baseline), number(claim.value), spread(claim), claim.verdict


def text_table(rows: Iterable[Sequence[str]]) -> str:
    """A table for the terminal, long cells wrapped."""
    lines = []
    for row in (HEADER, *rows):
        columns = [textwrap.wrap(cell, width) or [""] for cell, width in zip(row, WIDTHS, strict=True)]
        for i in range(max(map(len, columns))):
            parts = [
                (column[i] if i < len(column) else "").ljust(width)
                for column, width in zip(columns, WIDTHS, strict=True)
            ]
            lines.append("  ".join(parts).rstrip())
        if row is HEADER:
            lines.append("  ".join("-" * width for width in WIDTHS))
    return "\n".join(lines)


def html_table(columns: Sequence[str], rows: Sequence[Sequence[str | float]]) -> str:
    """A table for the page; columns that begin with a number stand to the right."""
    numeric = [i for i in range(len(columns)) if rows and not isinstance(rows[0][i], str)]
    return _table(columns, [[escape(number(cell)) for cell in row] for row in rows], numeric)


def claims_table(result: Reproduction) -> str:
    """The claims of one experiment, each with its verdict."""
    rows = []
    for claim in result.claims:
        reason = f'<br><span class="soft">{escape(claim.reason)}</span>' if claim.reason else ""
        numbers = [number(claim.baseline), number(claim.value), spread(claim)]
        verdict = f'<span class="verdict {MARKS[claim.verdict]}">{claim.verdict}</span>'
        rows.append([escape(claim.statement) + reason, escape(claim.metric), *numbers, verdict])
    columns = ("Claim", "Metric", "Baseline", "Ours", "Spread over seeds", "Holds?")
    return _table(columns, rows, range(2, 5))


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]], numeric: Container[int]) -> str:
    classes = [' class="number"' if i in numeric else "" for i in range(len(columns))]
    head = "".join(f"<th{mark}>{escape(column)}</th>" for mark, column in zip(classes, columns, strict=True))
    lines = ("".join(f"<td{mark}>{cell}</td>" for mark, cell in zip(classes, row, strict=True)) for row in rows)
    body = "\n".join(f"<tr>{line}</tr>" for line in lines)
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>\n{body}\n</tbody></table></div>'


def section(result: Reproduction, folder: Path) -> str:
    """One experiment: claims, plots, tables, notes, settings."""
    parts = [f'<section id="{escape(result.package)}"><h2>{escape(result.package)}</h2>']
    parts.append(f'<p class="soft">{escape(result.method)} · {result.budget} run, {result.seconds:.0f} s</p>')
    parts.append(claims_table(result))
    for plot in result.plots:
        data = base64.b64encode((folder / plot).read_bytes()).decode("ascii")
        parts.append(f'<figure><img alt="{escape(plot)}" src="data:image/png;base64,{data}"></figure>')
    parts += [table_section(table) for table in result.tables]
    parts += [f"<p>{escape(note)}</p>" for note in result.notes]
    if result.settings:
        settings = "\n".join(f"{key} = {value}" for key, value in result.settings.items())
        parts.append(f"<details><summary>Settings</summary><pre>{escape(settings)}</pre></details>")
    return "\n".join([*parts, "</section>"])


def table_section(table: Table) -> str:
    """A further table with its title."""
    return f"<h3>{escape(table.title)}</h3>{html_table(table.columns, table.rows)}"


PAGE = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>What was reproduced</title>
<style>
{style}</style>
</head>
<body><main>
<header><h1>What was reproduced</h1>
<p class="soft">{summary}. Each number was measured by the run that wrote this page.</p></header>
{sections}
</main></body>
</html>
"""


def page(results: Sequence[Reproduction], root: Path) -> str:
    """The whole page."""
    counts = Counter(claim.verdict for result in results for claim in result.claims)
    verdicts = ", ".join(f"{count} {verdict}" for verdict, count in counts.items())
    return PAGE.format(
        style=STYLE.read_text(encoding="utf-8"),
        summary=escape(f"Packages: {len(results)}. Claims: {verdicts or 'none'}"),
        sections="\n".join(section(result, root / result.package) for result in results),
    )


def main(argv: list[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="gallery.py", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("packages", nargs="*", metavar="PACKAGE", help="without names: every result that is there")
    parser.add_argument("--folder", type=Path, default=ROOT / "reproduction")
    options = parser.parse_args(argv)
    names = options.packages or sorted(path.parent.name for path in options.folder.glob("*/reproduction.json"))
    results = [Reproduction.from_json(options.folder / name / "reproduction.json") for name in names]
    if not results:
        raise ValueError(f"{options.folder} holds no reproduction.json; `nox -s reproduce` writes them")
    print(text_table(cells(result.package, claim) for result in results for claim in result.claims))
    with atomic_file(options.folder / "index.html") as temporary:
        temporary.write_text(page(results, options.folder), encoding="utf-8")
    print(f"\nwrote {options.folder / 'index.html'}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    end("gallery.py", main)
