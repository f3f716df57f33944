"""Settings of a training run: flags, a YAML file, both; what is wrong is one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from bigram_subnet.training.arguments import TrainArguments
from bigram_subnet.training.parsing import parse

FLAGS = ["--model", "m", "--output", "o", "--text", "a.txt", "b.txt", "--counts", "c.safetensors"]


@pytest.fixture
def settings(tmp_path: Path) -> Path:
    path = tmp_path / "s.yaml"
    path.write_text(
        "model: m\noutput: o\ntext: [a.txt, b.txt]\ncounts: c.safetensors\nlearning_rate: 5e-3\nl0_lambda: [0, 1e1]\n"
        "tokenizer:\nlimit: null\nresume: true\n"
    )
    return path


def test_a_file_means_what_the_same_flags_mean(settings: Path) -> None:
    expected = parse([*FLAGS, "--learning_rate", "5e-3", "--l0_lambda", "0", "10", "--resume"])
    assert expected == TrainArguments(
        "m", "o", text=["a.txt", "b.txt"], counts="c.safetensors", learning_rate=0.005, l0_lambda=[0, 10], resume=True
    )
    for argv in (["--config", str(settings)], [f"--config={settings}"], [str(settings)]):
        assert parse(argv) == expected


def test_flags_override_the_file_wherever_they_stand(settings: Path) -> None:
    for argv in (["--max_steps", "3", "--config", str(settings)], [str(settings), "--max_steps", "3"]):
        found = parse([*argv, "--l0_lambda", "5"])
        assert (found.max_steps, found.l0_lambda, found.learning_rate) == (3, [5], 0.005)


def test_one_value_stands_for_a_list_of_one(tmp_path: Path) -> None:
    path = tmp_path / "s.yaml"
    path.write_text("model: m\noutput: o\ntext: corpus.txt\ntarget: self\nl0-lambda: 1\n")
    found = parse([str(path)])
    assert (found.text, found.l0_lambda) == (["corpus.txt"], [1.0])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("model: [", "cannot be read as YAML: while parsing a flow node"),
        ("- model", "expected lines of `name: value`"),
        ("modle: m", "unknown name 'modle'; did you mean model?"),
        ("zzz: m", r"unknown name 'zzz' \(see bigram-subnet train --help\)"),
        ("model: {a: b}", "model must be a value or a list of values"),
        ("max_steps: many", "argument --max_steps/--max-steps: invalid int value: 'many'"),
    ],
)
def test_a_file_that_is_wrong_is_one_line(text: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text(text)
    with pytest.raises(ValueError, match=words) as told:
        parse(["--config", str(tmp_path / "s.yaml"), *FLAGS])
    assert "\n" not in str(told.value)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["--max_stesp", "3"], "unknown arguments: --max_stesp 3; did you mean --max_steps?"),
        (["--max_steps", "x"], "invalid int value: 'x' .see bigram-subnet train --help"),
        (["--config"], "--config needs a file"),
        (["--limit", "2"], "--limit 2 is less than one micro-batch, --batch_size 32"),
        (["--dtype", "float16"], "--dtype must be one of auto, float32, bfloat16, got 'float16'"),
    ],
)
def test_a_flag_that_is_wrong_is_one_line(more: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ValueError, match=words):
        parse([*FLAGS, *more])
    captured = capsys.readouterr()
    assert captured.out == captured.err == ""


def test_what_is_missing_is_named() -> None:
    with pytest.raises(ValueError, match="required: --model, --output"):
        parse(["--text", "a.txt"])
    with pytest.raises(FileNotFoundError, match=r"absent\.yaml: no such file of settings"):
        parse(["--config", "absent.yaml"])


def test_help_tells_of_the_file_and_of_lines_of_one_length(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        parse(["--help"])
    told = " ".join(capsys.readouterr().out.split())
    assert end.value.code == 0
    assert "--config CONFIG YAML file that holds the same names; flags beside it override it" in told
    assert "all lines of one length" in told
