"""A command line of a method: `train` hands over all its arguments."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from nips_common import cli
from nips_finetune import options

sys.path.insert(0, str(Path(__file__).parent))
from lora_program import METHOD


def run(*args: str) -> int:
    app = cli.make_app("plain-lora", "nips-finetune", "LoRA")
    options.add_train_command(app, METHOD)

    @app.command("report")
    def report_command(targets: options.Targets = None) -> None:
        options.print_report({"targets": options.target_modules(targets)})

    with pytest.raises(SystemExit) as stopped:
        cli.run(app, args)
    return int(stopped.value.code or 0)


def test_train_trains_and_prints_json(
    llama_folder: Path, text_jsonl: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["--model", str(llama_folder), "--train_data", str(text_jsonl), "--output_dir", str(tmp_path / "out")]
    assert run("train", *given, "--max_steps", "1", "--use_cpu", "--save_strategy", "no") == 0
    report = json.loads(capsys.readouterr().out)
    assert report == json.loads((tmp_path / "out" / "metrics.json").read_text())


def test_train_has_its_own_help_and_errors(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("train", "--help") == 0
    assert "--train_data" in capsys.readouterr().out
    assert run("train", "--modle", "x") == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("plain-lora: error: ")
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize(
    ("given", "expected"), [([], None), (["all-linear"], "all-linear"), (["a, b"], ["a", "b"]), (["a"], ["a"])]
)
def test_targets_are_names_by_commas(given: list[str], expected: object, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("report", *(["--targets", *given] if given else [])) == 0
    assert json.loads(capsys.readouterr().out) == {"targets": expected}
