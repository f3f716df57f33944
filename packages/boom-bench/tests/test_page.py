"""The HTML page: what it holds, and a real browser that sorts and filters it."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import pandas as pd
import pytest

from boom_bench.baselines import SeasonalNaive
from boom_bench.data import Series, official_results
from boom_bench.leaderboard import bootstrap_ci, breakdown, leaderboard, scale_by_baseline, split_degenerate, to_html
from boom_bench.leaderboard.charts import dot_plot, ticks, window_plot
from boom_bench.running.one_task import Scoring
from boom_bench.running.shown_windows import read_windows, show_window, write_windows
from boom_bench.tasks import make_task

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)


@pytest.fixture(scope="module")
def page(hourly: Series) -> str:
    results = official_results()
    main, _ = split_degenerate(results)
    return to_html(
        leaderboard(results),
        breakdowns=breakdown(results, by=("term", "domain")),
        intervals=bootstrap_ci(scale_by_baseline(main), n_resamples=20),
        windows=show_window(SeasonalNaive(), Scoring("toto"), make_task(hourly, "short")),
        note="A note with <angle> brackets.",
    )


class Reader(HTMLParser):
    """Counts elements and notes everything that would be fetched."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: dict[str, int] = {}
        self.fetched: list[str] = []
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.counts[tag] = self.counts.get(tag, 0) + 1
        self.fetched += [f"{name}={value}" for name, value in attrs if name in ("src", "href", "data")]
        if tag not in ("meta", "input", "line", "circle", "path", "polygon"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in ("line", "circle", "path", "polygon"):
            assert self.open.pop() == tag


def test_the_page_holds_all_models_plots_and_windows_and_fetches_nothing(page: str) -> None:
    reader = Reader()
    reader.feed(page)
    assert not reader.open
    assert not reader.fetched
    assert "http" not in page
    assert "url(" not in page
    assert page.count('<tr data-model="toto"') == 1 + 2 * 2
    assert reader.counts["svg"] == 2 * 2 + 2
    assert "A note with &lt;angle&gt; brackets." in page
    assert re.search(r"toto: 31", page)


def test_names_of_models_cannot_carry_markup() -> None:
    name = '<script>alert("x")</script>'
    table = pd.DataFrame({"a": [1.0], "b": [2.0], "Rank": [1.0]}, index=pd.Index([name], name="model"))
    tables = {"term": pd.DataFrame({("MASE", "<b>"): [1.0]}, index=pd.Index([name]))}
    found = to_html(table, breakdowns=tables, title="<i>")
    assert "<script>alert" not in found
    assert "<b>" not in found
    assert "<i>" not in found


def test_ticks_are_round_numbers_inside_the_range() -> None:
    assert ticks(0, 10) == [0, 2, 4, 6, 8, 10]
    assert ticks(0.31, 0.92) == [0.4, 0.6, 0.8]
    assert ticks(5, 5) == [5]


def test_plots_of_flat_missing_and_absent_values_are_drawn() -> None:
    window = {"model": "m", "dataset": "d", "window": 0, "variate": 0, "history": [None, 1.0, 1.0], "label": [None]}
    assert "<polygon" in window_plot({**window, "quantiles": {"0.1": [1.0], "0.5": [1.0], "0.9": [1.0]}})
    scores = pd.DataFrame({"x": [1.0, float("nan")]}, index=["a", "b"])
    assert dot_plot(scores, "t").count("<title>") == 1
    assert dot_plot(scores.iloc[1:], "t") == ""


def test_windows_are_kept_beside_the_results_and_read_back(hourly: Series, tmp_path: Path) -> None:
    shown = show_window(SeasonalNaive(), Scoring("mine"), make_task(hourly, "short"), 0)
    assert [(one["variate"], one["window"], len(one["label"]), len(one["history"])) for one in shown] == [
        (0, 0, 48, 96),
        (1, 0, 48, 96),
    ]
    (tmp_path / "mine").mkdir()
    write_windows(tmp_path / "mine", shown)
    assert read_windows(tmp_path, ["mine", "absent"]) == shown
    (tmp_path / "mine" / "windows.json").write_text("[]")
    with pytest.raises(ValueError, match=r"windows\.json: not a file of kept windows"):
        read_windows(tmp_path, ["mine"])
    damaged = [
        {},
        {**shown[0], "history": ["up"]},
        {**shown[0], "quantiles": {"0.5": [1.0]}},
        {**shown[0], "label": [1.0]},
    ]
    for window in damaged:
        write_windows(tmp_path / "mine", [window])
        with pytest.raises(ValueError, match=r"windows\.json: not a file of kept windows"):
            read_windows(tmp_path, ["mine"])
    with pytest.raises(ValueError, match="has 2 windows, got 2"):
        show_window(SeasonalNaive(), Scoring("mine"), make_task(hourly, "short"), 2)


STEPS = """
<script>
{ // a block: the page has names of its own
const report = [];
const rows = () => [...document.querySelectorAll("#leaderboard tbody tr")];
const names = () => rows().filter((row) => !row.hidden).map((row) => row.dataset.model);
const count = () => document.getElementById("count").textContent;
const click = (n) => document.querySelectorAll("#leaderboard th button")[n].click();
const sorted = (n) => document.querySelectorAll("#leaderboard th")[n].getAttribute("aria-sort");
const type = (text) => {
  const box = document.getElementById("filter");
  box.value = text;
  box.dispatchEvent(new Event("input"));
};
report.push(["start", names(), count()]);
click(0); report.push(["by name", names(), sorted(0)]);
click(1); report.push(["by MASE", names(), sorted(1)]);
click(1); report.push(["by MASE, falling", names(), sorted(1)]);
type("toto 2.0"); report.push(["filtered", names(), count()]);
const sections = [...document.querySelectorAll("section")].map((section) => section.hidden);
report.push(["faded", document.querySelectorAll("svg g.off").length, sections]);
type(""); report.push(["all", names().length, getComputedStyle(document.querySelector("table")).borderCollapse]);
const out = document.createElement("pre");
out.id = "report";
out.textContent = JSON.stringify(report);
document.body.append(out);
}
</script>
"""


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine (Debian: apt-get install chromium)")
def test_a_browser_sorts_and_filters_the_page(page: str, tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    file.write_text(page.replace("</body>", f"{STEPS}</body>"), "utf-8")
    command = [
        str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
        f"--user-data-dir={tmp_path / 'profile'}", "--virtual-time-budget=5000", "--dump-dom", file.as_uri(),
    ]  # fmt: skip
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    found = re.search(r'<pre id="report">(.*?)</pre>', ended.stdout, flags=re.DOTALL)
    assert found, ended.stderr[-2000:]
    report = {step[0]: step[1:] for step in json.loads(found[1].replace("&amp;", "&"))}
    table = leaderboard(official_results())
    assert report["start"] == [list(table.index), "23 of 23 models"]
    assert report["by name"] == [sorted(table.index, key=str.lower), "ascending"]
    by_mase = table.sort_values(table.columns[0], kind="stable")
    assert report["by MASE"] == [list(by_mase.index), "ascending"]
    falling = table.sort_values(table.columns[0], ascending=False, kind="stable")
    assert report["by MASE, falling"] == [list(falling.index), "descending"]
    kept = [model for model in falling.index if model.startswith("toto_2.0")]
    assert report["filtered"] == [kept, "5 of 23 models"]
    assert report["faded"] == [4 * 18, [True, True]]
    assert report["all"] == [23, "collapse"]
