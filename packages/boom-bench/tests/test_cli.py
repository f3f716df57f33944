"""The command line from end to end."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from boom_bench.cli import app
from boom_bench.data import official_results
from nips_common.cli import run

HERE = Path(__file__).parent


def call(*args: object) -> int:
    with pytest.raises(SystemExit) as ended:
        run(app, [str(arg) for arg in args])
    code = ended.value.code
    return code if isinstance(code, int) else 0


def lines(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return capsys.readouterr().out.splitlines()


@pytest.fixture
def metrics_csv(tmp_path: Path) -> Path:
    """Three hosts of 600 hours, one of them flat."""
    times = pd.date_range("2024-01-01", periods=600, freq="h")
    draw = np.random.default_rng(0)
    season = 3 * np.sin(np.arange(600) * 2 * np.pi / 24)
    hosts = {"web": 10 + season + draw.normal(size=600), "db": draw.normal(5, 1, 600), "idle": np.zeros(600)}
    frames = [pd.DataFrame({"host": name, "time": times, "cpu": cpu, "free": 100 - cpu}) for name, cpu in hosts.items()]
    file = tmp_path / "metrics.csv"
    pd.concat(frames).to_csv(file, index=False)
    return file


@pytest.fixture
def columns() -> list[str]:
    return ["--id-column", "host", "--timestamp", "time"]


def test_without_an_argument_the_published_table_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("leaderboard") == 0
    rows = {line.split()[0]: line.split()[1:] for line in lines(capsys)[2:]}
    assert len(rows) == 23
    assert rows["toto_2.0_2.5b"][:3] == ["0.581", "0.349", "3.879"]
    assert rows["toto"] == ["0.617", "0.375", "6.939", "0.001", "0.025", "14.490"]
    assert rows["seasonalnaive"][:2] == ["1.000", "1.000"]
    expected = json.loads((HERE / "golden" / "full_leaderboard.expected.json").read_text())["official_formatted_table"]
    for position, column in enumerate(expected):
        for model, cell in expected[column].items():
            if column.startswith("Rank"):
                assert abs(float(rows[model][position]) - float(cell)) <= 0.03
            else:
                assert rows[model][position] == cell


def test_boomlet_formats_and_chosen_models(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert call("leaderboard", "--boomlet", "--format", "csv", "--models", "toto,seasonalnaive") == 0
    table = pd.read_csv(pd.io.common.StringIO(capsys.readouterr().out))
    assert table["model"].tolist() == ["toto", "seasonalnaive"]
    assert "MASE-90-scaled" in table.columns
    assert call("leaderboard", "--format", "md", "-o", tmp_path / "table.md", "--intervals") == 0
    text = (tmp_path / "table.md").read_text()
    assert text.startswith("| model | MASE-6750-scaled | MASE-low | MASE-high |")


def test_breakdowns_are_printed_by_group(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("breakdown", "--by", "domain,type", "--format", "csv") == 0
    domain, kind = capsys.readouterr().out.split("\n\n")
    assert "Application Usage" in domain
    table = pd.read_csv(pd.io.common.StringIO(kind), header=[0, 1], index_col=0)
    assert table.loc["toto", "MASE"].round(3).to_dict() == {
        "count": 0.687, "distribution": 0.658, "gauge": 0.583, "rate": 0.634,
    }  # fmt: skip


def test_a_users_own_metrics_from_file_to_page(
    metrics_csv: Path, columns: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    results = tmp_path / "results"
    arguments = ["run", "--data", metrics_csv, *columns, "--terms", "short,medium"]
    assert call(*arguments, "--model", "seasonal-naive", "--out", results / "seasonalnaive") == 0
    assert json.loads(capsys.readouterr().out)["configurations"] == 6
    assert call(*arguments, "--model", "drift", "--out", results / "drift", "--show", "web/Medium/short:0") == 0
    capsys.readouterr()
    assert call("leaderboard", results) == 0
    rows = {line.split()[0]: line.split()[1:] for line in lines(capsys)[2:]}
    assert rows["seasonalnaive"][:3] == ["1.000", "1.000", "1.500"] or rows["seasonalnaive"][:2] == ["1.000", "1.000"]
    assert all("nan" not in row[:4] for row in rows.values())
    page = tmp_path / "page.html"
    assert call("leaderboard", results, "--format", "html", "-o", page) == 0
    assert "drift: web/Medium/short, window 0, variate 1" in page.read_text()
    assert call("breakdown", results, "--by", "term") == 0
    properties = {name: {"domain": ["Web"], "type": "gauge"} for name in ("web", "db", "idle")}
    (tmp_path / "properties.json").write_text(json.dumps(properties))
    capsys.readouterr()
    assert call("breakdown", results, "--by", "type", "--properties", tmp_path / "properties.json") == 0
    assert "gauge" in capsys.readouterr().out


def test_a_dry_run_lists_the_configurations_and_writes_nothing(
    metrics_csv: Path, columns: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "results" / "x"
    arguments = ["run", "--data", metrics_csv, *columns, "--model", "naive", "--out", out, "--limit", 2, "--dry-run"]
    assert call(*arguments) == 0
    plan = json.loads(capsys.readouterr().out)
    assert plan["configurations"] == [
        {"name": "web/Medium/short", "variates": 2, "horizon": 48, "windows": 2, "seasonality": 24},
        {"name": "web/Medium/medium", "variates": 2, "horizon": 480, "windows": 1, "seasonality": 24},
    ]
    assert not out.parent.exists()


def test_results_on_boom_are_ranked_among_the_published_ones(
    boom_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    results = tmp_path / "results"
    mine = official_results().query("model == 'toto'").drop(columns="model")
    (results / "mine").mkdir(parents=True)
    mine.to_csv(results / "mine" / "all_results.csv", index=False)
    assert call("leaderboard", results, "--with-published") == 0
    names = [line.split()[0] for line in lines(capsys)[2:]]
    assert len(names) == 24
    assert abs(names.index("mine") - names.index("toto")) == 1
    assert (
        call(
            "run", "--model", "naive", "--data", boom_folder, "--boomlet", "--terms", "short", "--out", results / "few"
        )
        == 0
    )
    assert call("leaderboard", results, "--models", "few", "--with-published") == 2
    assert "model 'few' has no result for 7411 of 7413 configurations" in capsys.readouterr().err


def test_describe_tells_of_a_file_and_of_boom(
    metrics_csv: Path, columns: list[str], boom_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call("describe", metrics_csv, *columns) == 0
    assert capsys.readouterr().out.endswith("3 series, degenerate: idle\n")
    assert call("describe", boom_folder, "--format", "json") == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["item_id"] for row in rows] == ["ds-9-5T", "ds-1901-D", "ds-1975-H", "ds-2187-H"]
    assert call("describe", metrics_csv, *columns, "--format", "csv") == 0
    assert len(lines(capsys)) == 4


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["leaderboard", "nowhere"], ["nowhere: no such folder"]),
        (["leaderboard", "--format", "pdf"], ["text, md, csv, html", "'pdf'"]),
        (["leaderboard", "--tie", "last"], ["average, first, min"]),
        (["leaderboard", "--tie", "first", "--order", "toto"], ["order must name every model once"]),
        (["leaderboard", "--tie", "min", "--order", "toto"], ["--order goes with --tie first", "'min'"]),
        (["leaderboard", "--baseline", "mine"], ["no results of the model 'mine'"]),
        (["leaderboard", "--models", "mine"], ["'mine'"]),
        (["leaderboard", "--invalid", "zero"], ["column_mean, worst, drop"]),
        (["breakdown", "--by", "colour"], ["term, type, domain, frequency, full_benchmark", "'colour'"]),
        (["breakdown", "--by", ","], ["by must hold one of term, type"]),
        (
            ["run", "--model", "os:path", "--out", "m", "--data", "nowhere"],
            ["--model os:path", "module cannot be called"],
        ),
        (["run", "--model", "naive", "--out", "m", "--data", "nowhere"], ["nowhere: no such data"]),
        (["run", "--model", "magic", "--out", "m", "--data", "nowhere"], ["seasonal-naive", "'magic'"]),
        (["run", "--model", "naive", "--out", "m"], ["environment variable BOOM"]),
        (["run", "--model", "naive", "--out", "m", "--terms", "Short"], ["short, medium, long", "'Short'"]),
        (["describe", "nowhere"], ["nowhere: no such data"]),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(
    arguments: list[str], words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("BOOM", raising=False)
    assert call(*arguments) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("boom-bench: error: ")
    assert all(word in line for word in words), line


def test_horizons_that_do_not_fit_and_unknown_windows_are_named(
    metrics_csv: Path, columns: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["run", "--model", "naive", "--data", metrics_csv, *columns, "--out", tmp_path / "r" / "naive"]
    assert call(*arguments, "--terms", "long") == 2
    assert "web (long): 600 points leave no history" in capsys.readouterr().err
    assert call(*arguments, "--horizon", 600) == 2
    assert not (tmp_path / "r").exists()
    assert call(*arguments, "--horizon", 48, "--limit", 1, "--restart") == 0
    assert call(*arguments, "--horizon", 24) == 2
    assert "was begun with horizon=48, this run has 24" in capsys.readouterr().err
    arguments.append("--restart")
    assert call(*arguments, "--horizon", 24, "--show", "web/Medium/long") == 2
    assert "--show web/Medium/long: no such configuration" in capsys.readouterr().err


def test_hosts_with_ports_and_markup_in_their_names_can_be_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    times = pd.date_range("2024-01-01", periods=400, freq="h")
    values = np.random.default_rng(0).normal(5, 1, 400)
    frames = [pd.DataFrame({"item_id": name, "timestamp": times, "cpu": values}) for name in ("web:8080", "<b>&'\"")]
    pd.concat(frames).to_csv(tmp_path / "m.csv", index=False)
    shown = ["--show", "web:8080/Medium/short", "--show", "<b>&'\"/Medium/short:0"]
    out = tmp_path / "r" / "seasonalnaive"
    assert call("run", "--model", "seasonal-naive", "--data", tmp_path / "m.csv", "--out", out, *shown) == 0
    assert call("leaderboard", tmp_path / "r", "--format", "html", "-o", tmp_path / "page.html") == 0
    page = (tmp_path / "page.html").read_text()
    assert "seasonalnaive: web:8080/Medium/short, window 0" in page
    assert "seasonalnaive: &lt;b&gt;&amp;&#x27;&quot;/Medium/short, window 0" in page
    assert "<b>" not in page
    capsys.readouterr()


def test_data_that_is_all_degenerate_has_a_table_and_a_page_and_no_breakdown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    times = pd.date_range("2024-01-01", periods=400, freq="h")
    pd.DataFrame({"timestamp": times, "cpu": 0.0}).to_csv(tmp_path / "idle.csv", index=False)
    results = tmp_path / "r"
    out = results / "seasonalnaive"
    assert call("run", "--model", "seasonal-naive", "--data", tmp_path / "idle.csv", "--out", out) == 0
    capsys.readouterr()
    assert call("leaderboard", results, "--intervals", "--format", "csv") == 0
    assert lines(capsys) == ["model,eval_metrics/MAE[0.5]-1-unscaled", "seasonalnaive,0.0"]
    assert call("leaderboard", results, "--format", "html", "-o", tmp_path / "page.html") == 0
    assert "seasonalnaive" in (tmp_path / "page.html").read_text()
    assert call("breakdown", results) == 2
    assert "all series are degenerate" in capsys.readouterr().err


def test_a_collection_without_series_cannot_be_described(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pyarrow, ipc = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.ipc")
    schema = pyarrow.schema([("start", pyarrow.timestamp("s")), ("freq", pyarrow.string())])
    with ipc.new_stream(str(tmp_path / "none.arrow"), schema):
        pass
    assert call("describe", tmp_path / "none.arrow") == 2
    assert "none.arrow: holds no series" in capsys.readouterr().err
