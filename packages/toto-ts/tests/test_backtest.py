"""The protocol of boom-bench on a user's file."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from toto_ts import TotoForecaster

pd = pytest.importorskip("pandas")
pytest.importorskip("boom_bench")


@pytest.fixture(scope="module")
def checkpoint(make_model: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("checkpoint")
    make_model().save_pretrained(folder)
    return folder


@pytest.fixture
def table(tmp_path: Path) -> Path:
    hours = np.arange(600)
    daily = np.sin(hours * 2 * np.pi / 24)
    noise = np.random.default_rng(0).normal(size=(2, 600))
    stamps = pd.date_range("2024-01-01", periods=600, freq="h")
    path = tmp_path / "metrics.csv"
    frame = {"host": "web-1", "when": stamps, "cpu": 50 + 20 * daily + noise[0], "latency": 9 + 2 * daily + noise[1]}
    pd.DataFrame(frame).to_csv(path, index=False)
    return path


def command(*arguments: Any) -> int:
    from nips_common.cli import run
    from toto_ts.cli import app

    with pytest.raises(SystemExit) as caught:
        run(app, ["backtest", *map(str, arguments)])
    return int(caught.value.code or 0)


def test_a_checkpoint_is_scored_beside_seasonal_naive_and_a_second_run_changes_nothing(
    checkpoint: Path, table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ["--checkpoint", checkpoint, "--data", table, "--id", "host", "--timestamp", "when"]
    flags += ["--targets", "cpu,latency", "--terms", "short", "--samples", "4", "--context", "64"]
    out = tmp_path / "out"
    assert command(*flags, "--out", out) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["configurations"] == 1
    assert set(report["leaderboard"]) == {"toto-ts", "seasonalnaive"}
    assert report["leaderboard"]["seasonalnaive"]["MASE-1-scaled"] == pytest.approx(1)
    assert report["leaderboard"]["toto-ts"]["MASE-1-scaled"] > 1  # its weights are random
    assert "toto-ts" in Path(report["page"]).read_text("utf-8")
    files = [out / name / "all_results.csv" for name in ("toto-ts", "seasonalnaive")]
    before = [file.read_bytes() for file in files]
    assert command(*flags, "--out", out) == 0
    assert json.loads(capsys.readouterr().out) == report
    assert [file.read_bytes() for file in files] == before
    assert command(*flags, "--out", out, "--seed", "1") == 2
    assert "seed" in capsys.readouterr().err


def test_data_that_is_not_there_is_named_before_anything_is_written(
    checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert command("--checkpoint", checkpoint, "--data", tmp_path / "absent.csv", "--out", out) == 2
    error = capsys.readouterr().err
    assert "absent.csv: no such data; accepted are" in error
    assert error.count("\n") == 1
    assert not out.exists()


def test_without_boom_bench_the_extra_is_named(
    checkpoint: Path, table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "boom_bench", None)
    assert command("--checkpoint", checkpoint, "--data", table, "--out", tmp_path / "out") == 2
    assert 'pip install "toto-ts[backtest]"' in capsys.readouterr().err


def test_a_forecaster_in_hand_is_scored_from_python(make_model: Any, table: Path, tmp_path: Path) -> None:
    from toto_ts.backtest import BacktestJob, backtest

    columns = {"id_column": "host", "timestamp_column": "when"}
    job = BacktestJob(table, tmp_path / "out", columns, ("short",), context=64, num_samples=2, horizon=24)
    report = backtest(TotoForecaster(make_model()), job)
    assert report["configurations"] == 1
