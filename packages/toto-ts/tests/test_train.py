"""The training script: files in, a folder out, resumed after a kill, refused in one line."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from nips_common.testing.interrupt import kill_and_resume
from toto_ts import Toto, TotoConfig

sys.path.insert(0, str(Path(__file__).parent))
import training_runs

from toto_ts import train
from toto_ts.series_files import SeriesColumns, read_series_files

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore:.*pin_memory:UserWarning")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three hosts with two targets over ten days, as CSV."""
    frames = [
        pd.DataFrame(
            {"host": f"h{i}", "timestamp": pd.date_range("2024-01-01", periods=240, freq="h"), "a": s[0], "b": s[1]}
        )
        for i, s in enumerate(training_runs.series())
    ]
    path = tmp_path_factory.mktemp("data") / "hosts.csv"
    pd.concat(frames).to_csv(path, index=False)
    return path


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The config.json of a tiny new model."""
    path = tmp_path_factory.mktemp("config") / "config.json"
    training_runs.model().config.to_json(path)
    return path


def flags(data: Path, out: Path, **changes: Any) -> list[str]:
    """Flags of a short run."""
    options = {**training_runs.RECIPE, "max_steps": 4, "val_interval": 2, "output_dir": out, **changes}
    columns = ["--id_column", "host", "--target_columns", "a", "b"]
    return [*columns, "--train_data", str(data), *(f"--{name}={value}" for name, value in options.items())]


def test_a_new_model_is_trained_from_files(data: Path, config: Path, tmp_path: Path, capsys: Any) -> None:
    train.run(["--model_config", str(config), *flags(data, tmp_path / "run")])
    report = json.loads(capsys.readouterr().out)
    assert json.loads((tmp_path / "run" / "metrics.json").read_text()) == report
    assert report["steps"] == 4
    assert report["resumed_from"] is None
    model = Toto.from_pretrained(tmp_path / "run")
    assert model.config == TotoConfig.from_json(config)
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert min(line["eval_loss"] for line in lines if "eval_loss" in line) == pytest.approx(report["best_val_loss"])
    assert (tmp_path / "run" / "loss.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    # the function gives the same run
    arrays = [entry["target"] for entry in read_series_files([data], SeriesColumns("host", targets=("a", "b")))]
    job = train.JobArguments(model_config=str(config), train_data=[str(data)])
    same = training_runs.run(None, arrays, train.make_model(job, 1), max_steps=4, val_interval=2)
    assert same.best_val_loss == pytest.approx(report["best_val_loss"], rel=1e-6)


def test_a_checkpoint_is_fine_tuned_by_a_yaml_file_that_flags_override(data: Path, tmp_path: Path, capsys: Any) -> None:
    training_runs.model().save_pretrained(tmp_path / "start")
    (tmp_path / "cfg.yaml").write_text(
        f"""
model: {tmp_path / "start"}
train_data: [{data}]
id_column: host
target_columns: [a]
exogenous_columns: [b]
output_dir: {tmp_path / "run"}
learning_rate: 4e-3
max_steps: 9
val_interval: 2
context_patches: 3
train_batch_size: 4
device: cpu
"""
    )
    train.run(["--config", str(tmp_path / "cfg.yaml"), "--max_steps", "2"])
    capsys.readouterr()
    record = json.loads((tmp_path / "run" / "training.json").read_text())
    assert record["max_steps"] == 2
    assert record["learning_rate"] == 4e-3
    assert Toto.from_pretrained(tmp_path / "run").model.target_variate_label is not None


def test_a_dry_run_says_what_would_be_done_and_writes_nothing(data: Path, tmp_path: Path, capsys: Any) -> None:
    config = tmp_path / "config.json"
    TotoConfig(spacewise_first=False).to_json(config)
    columns = ["--id_column", "host", "--target_columns", "a", "b", "--train_data", str(data)]
    with pytest.raises(ValueError, match="no series is long enough: the longest has 240 steps"):
        # 24 steps for testing, 64 for validation: 152 remain, three patches are 192
        train.run(["--model_config", str(config), *columns, "--output_dir", str(tmp_path / "run"), "--dry_run"])
    small = TotoConfig(patch_size=16, stride=16, spacewise_first=False)
    small.to_json(config)
    train.run(["--model_config", str(config), *columns, "--output_dir", str(tmp_path / "run"), "--dry_run"])
    report = json.loads(capsys.readouterr().out)
    with torch.device("meta"):
        assert report["parameters"] == sum(p.numel() for p in Toto(small).parameters())
    assert (report["series"], report["series_too_short"], report["context_length"]) == (3, 0, 8 * 16)
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_a_killed_run_ends_where_the_whole_one_does(data: Path, config: Path, tmp_path: Path) -> None:
    def command(out: Path) -> list[str]:
        arguments = flags(data, out, max_steps=60, val_interval=10, stable_steps=40, decay_steps=18)
        return [sys.executable, "-m", "toto_ts.train", "--model_config", str(config), *arguments]

    saved = tmp_path / "killed" / "checkpoint-20" / "trainer_state.json"
    killed = command(tmp_path / "killed")
    kill_and_resume(killed, saved.exists, resume=[*killed, "--resume"], timeout=300)
    train.run([*command(tmp_path / "whole")[3:]])
    resumed, whole = (Toto.from_pretrained(tmp_path / name).state_dict() for name in ("killed", "whole"))
    assert all(torch.equal(tensor, resumed[name]) for name, tensor in whole.items())
    reports = [json.loads((tmp_path / name / "metrics.json").read_text()) for name in ("killed", "whole")]
    assert reports[0]["best_val_loss"] == reports[1]["best_val_loss"]
    assert reports[0]["resumed_from"] is not None


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ([], "give either --model (to fine-tune) or --model_config (to pre-train)"),
        (["--model", "nowhere"], "nowhere: no such folder"),
        (["--model", "x", "--model_config", "y"], "give either"),
        (["--model", "x", "--learning_rate", "fast"], "invalid float value: 'fast'"),
        (["--model", "x", "--learning_rat", "1"], "unknown arguments: --learning_rat 1"),
        (["--model", "x", "--resume", "True", "--overwrite", "True"], "exclude each other"),
        (["--trainer_options", '{"max_step": 2}'], "unexpected keyword argument 'max_step'"),
        (["--trainer_options", '{"per_device_train_batch_size": 2}'], "give train_batch_size instead of per_device"),
        (["--trainer_options", "[2]"], "trainer_options must be a JSON object"),
        (["nothing.yaml"], "nothing.yaml: no such file"),
        (["--config"], "--config must be followed by a YAML file"),
        (["--model", "x", "--target_columns", "gpu"], "lacks the columns ['gpu']"),
        (["--model", "x", "--train_data", "more.csv"], "more.csv: no such file"),
    ],
)
def test_a_mistake_is_told_before_anything_is_written(
    data: Path, tmp_path: Path, changes: list[str], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    # a file of names comes first, flags that are repeated win
    given = (
        [*changes, *flags(data, Path("run"))] if changes == ["nothing.yaml"] else [*flags(data, Path("run")), *changes]
    )
    if changes[:1] == ["--trainer_options"]:  # found out after the model is read
        training_runs.model().save_pretrained(data.parent / "start")
        given += ["--model", str(data.parent / "start")]
    with pytest.raises((ValueError, FileNotFoundError)) as caught:
        train.run(["--config"] if changes == ["--config"] else given)
    assert words in str(caught.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("learning_rat: 1", "unknown name 'learning_rat'; did you mean learning_rate?"),
        ("- a", "expected names with values, got list"),
        ("a: [", "cannot be read"),
    ],
)
def test_a_yaml_file_that_cannot_be_is_named(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "cfg.yaml").write_text(text)
    with pytest.raises(ValueError) as caught:
        train.parse([str(tmp_path / "cfg.yaml")])
    assert "cfg.yaml" in str(caught.value)
    assert words in str(caught.value)


def test_resuming_a_finished_run_changes_nothing(data: Path, config: Path, tmp_path: Path, capsys: Any) -> None:
    arguments = ["--model_config", str(config), *flags(data, tmp_path, max_steps=2)]
    train.run(arguments)
    printed = capsys.readouterr().out
    before = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in tmp_path.rglob("*") if path.is_file()}
    train.run([*arguments, "--resume"])
    assert capsys.readouterr().out == printed
    after = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in tmp_path.rglob("*") if path.is_file()}
    assert after == before
    # a run that was killed before its end was told is not finished: it is told again, from the last checkpoint
    (tmp_path / "metrics.json").unlink()
    train.run([*arguments, "--resume"])
    again = json.loads(capsys.readouterr().out)
    assert again == {**json.loads(printed), "resumed_from": "checkpoint-2"}
    assert (tmp_path / "model.safetensors").read_bytes() == before[tmp_path / "model.safetensors"][0]


def test_a_folder_that_holds_a_run_is_kept(data: Path, config: Path, tmp_path: Path, capsys: Any) -> None:
    arguments = ["--model_config", str(config), *flags(data, tmp_path, max_steps=2)]
    train.run(arguments)
    before = (tmp_path / "model.safetensors").read_bytes()
    with pytest.raises(ValueError, match="holds a run; add --resume to continue it or --overwrite to lose it"):
        train.run(arguments)
    with pytest.raises(ValueError, match=r"of another run, which differs in seed \(1, now 2\)"):
        train.run([*arguments, "--seed", "2", "--resume"])
    assert (tmp_path / "model.safetensors").read_bytes() == before
    train.run([*arguments, "--overwrite"])
    assert (tmp_path / "model.safetensors").read_bytes() == before
    capsys.readouterr()


# Files


def test_every_form_of_a_file_gives_its_series(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    series = [np.arange(12, dtype=np.float32).reshape(2, 6), np.arange(8, dtype=np.float32).reshape(2, 4)]
    rows = {"start": ["2024-01-01"] * 2, "freq": ["h"] * 2, "target": [s.tolist() for s in series]}
    datasets.Dataset.from_dict(rows).save_to_disk(tmp_path / "arrow")
    pd.DataFrame(rows).to_parquet(tmp_path / "rows.parquet")
    long = pd.concat(
        [
            pd.DataFrame({"id": i, "t": pd.date_range("2024", periods=s.shape[1], freq="h"), "x": s[0], "y": s[1]})
            for i, s in enumerate(series)
        ]
    )
    long.to_csv(tmp_path / "long.csv", index=False)
    long.to_parquet(tmp_path / "long.parquet", index=False)
    columns = SeriesColumns("id", "t", ("x", "y"))
    arrow = next((tmp_path / "arrow").glob("*.arrow"))
    for name in ("arrow", arrow.relative_to(tmp_path), "rows.parquet", "long.csv", "long.parquet"):
        read = read_series_files([tmp_path / name], columns if str(name).startswith("long") else SeriesColumns())
        assert len(read) == 2
        for entry, expected in zip(read, series, strict=True):
            np.testing.assert_array_equal(entry["target"], expected)  # type: ignore[index]


def test_one_series_a_row_may_have_one_variate(tmp_path: Path) -> None:
    pd.DataFrame({"target": [[1.0, 2.0, 3.0], [4.0, 5.0]]}).to_parquet(tmp_path / "rows.parquet")
    shapes = [entry["target"].shape for entry in read_series_files([tmp_path / "rows.parquet"], SeriesColumns())]  # type: ignore[index, union-attr]
    assert shapes == [(1, 3), (1, 2)]


def test_files_that_hold_no_series_are_named(tmp_path: Path) -> None:
    pd.DataFrame({"cpu": [1.0]}).to_parquet(tmp_path / "wide.parquet")
    with pytest.raises(ValueError, match=r"wide\.parquet has no column 'target' .* name --target_columns"):
        read_series_files([tmp_path / "wide.parquet"], SeriesColumns())
    pd.DataFrame({"target": ["high"]}).to_parquet(tmp_path / "text.parquet")
    with pytest.raises(ValueError, match=r"text\.parquet, row 0: not a series of numbers"):
        read_series_files([tmp_path / "text.parquet"], SeriesColumns())
    (tmp_path / "broken.parquet").write_bytes(b"PAR1")
    with pytest.raises(ValueError, match=r"broken\.parquet: cannot be read"):
        read_series_files([tmp_path / "broken.parquet"], SeriesColumns())
    with pytest.raises(ValueError, match="not a data set that `datasets` saved"):
        read_series_files([tmp_path], SeriesColumns())
    (tmp_path / "text.txt").write_text("1")
    with pytest.raises(ValueError, match=r"a table ends in \.csv"):
        read_series_files([tmp_path / "text.txt"], SeriesColumns())
