"""Result files are read strictly: what is wrong is named with file and line."""

from __future__ import annotations

import math
from pathlib import Path

import pandas as pd
import pytest

from boom_bench.config import CRPS, MAE, MASE
from boom_bench.leaderboard import leaderboard, load_results

HEADER = f"dataset,model,{MASE},{CRPS},{MAE},domain,num_variates,checkpoint"
ROWS = [
    "ds-0-T/Short/short,whatever,1.0,0.5,2.0,\"['Networking', 'Application Usage']\",1,v1",
    "ds-0-T/Short/long,whatever,nan,inf,2.0,Networking,1,v1",
    "ds-0-T/Short/medium,whatever,,0.5,2.0,Networking,1,v1",
]


def write(folder: Path, model: str, lines: list[str], end: str = "\n") -> Path:
    file = folder / model / "all_results.csv"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("\n".join([HEADER, *lines]) + end)
    return file


def test_models_are_called_by_their_folders_and_extra_columns_stay(tmp_path: Path) -> None:
    write(tmp_path, "b", ROWS)
    write(tmp_path, "a", ROWS)
    (tmp_path / "notes").mkdir()
    results = load_results(tmp_path)
    assert list(results["model"].unique()) == ["a", "b"]
    assert results["checkpoint"].tolist() == ["v1"] * 6
    assert results["domain"].iloc[0] == "['Networking', 'Application Usage']"
    assert results[MASE].iloc[0] == 1
    assert math.isnan(results[MASE].iloc[1])
    assert math.isinf(results[CRPS].iloc[1])
    assert math.isnan(results[MASE].iloc[2])
    assert list(load_results(tmp_path, ["b", "a"])["model"].unique()) == ["b", "a"]


def test_what_pandas_wrote_reads_back(tmp_path: Path) -> None:
    frame = pd.DataFrame({"dataset": ["a/Short/short"], MASE: [1 / 3], CRPS: [0.5], MAE: [2.0], "model": ["x"]})
    file = tmp_path / "seasonalnaive" / "all_results.csv"
    file.parent.mkdir()
    frame.to_csv(file, index=False)
    results = load_results(tmp_path)
    assert results[MASE].tolist() == [1 / 3]
    assert leaderboard(results).iloc[0, 0] == pytest.approx(1)


@pytest.mark.parametrize(
    ("lines", "end", "words"),
    [
        ([ROWS[0], ROWS[1][:40]], "\n", ["line 3", "truncated"]),
        ([ROWS[0], ROWS[1]], "", ["line 3", "truncated"]),
        ([ROWS[0], ROWS[0][:50]], "", ["line 3", "truncated"]),
        ([ROWS[0], ROWS[0].replace("1.0", "one")], "\n", ["line 3", "stands in line 2"]),
        ([ROWS[1].replace("inf", "much")], "\n", ["line 2", CRPS, "'much'"]),
        ([ROWS[0], ROWS[1].replace("/long", "/Long")], "\n", ["line 3", "'Long'", "short, medium, long"]),
        (["ds-0-T,x,1,1,1,,1,"], "\n", ["line 2", "'ds-0-T'", "<series>/<Short|Medium|Long>/<term>"]),
    ],
)
def test_a_damaged_file_is_named_with_its_line(tmp_path: Path, lines: list[str], end: str, words: list[str]) -> None:
    write(tmp_path, "good", ROWS)
    file = write(tmp_path, "bad", lines, end)
    with pytest.raises(ValueError) as caught:
        load_results(tmp_path)
    message = str(caught.value)
    assert all(word in message for word in [str(file), *words]), message
    assert "\n" not in message


def test_missing_files_and_columns_are_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no such folder"):
        load_results(tmp_path / "none")
    with pytest.raises(FileNotFoundError, match=r"holds no <model>/all_results\.csv"):
        load_results(tmp_path)
    write(tmp_path, "a", ROWS)
    with pytest.raises(FileNotFoundError, match="there are a"):
        load_results(tmp_path, ["z"])
    (tmp_path / "a" / "all_results.csv").write_text("dataset,x\na/Short/short,1\n")
    with pytest.raises(ValueError, match=r"line 1: lacks the column 'eval_metrics/MASE"):
        load_results(tmp_path)
    write(tmp_path, "a", [])
    with pytest.raises(ValueError, match=r"a.all_results\.csv: holds no result yet"):
        load_results(tmp_path)
    (tmp_path / "a" / "all_results.csv").write_text("")
    with pytest.raises(ValueError, match="is empty"):
        load_results(tmp_path)
