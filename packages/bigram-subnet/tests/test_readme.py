"""The README's lines run as they stand."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import typer.main

from bigram_subnet.cli import app

README = (Path(__file__).parents[1] / "README.md").read_text("utf-8")


def test_the_python_lines_run_as_they_stand(
    model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my-model").symlink_to(model_folder)
    first, *others = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
    assert len([line for line in first.splitlines() if line.strip()]) <= 12
    for code in (first, *others):
        exec(compile(code, "README.md", "exec"), {})
    assert "SubnetworkMask(" in capsys.readouterr().out
    assert (tmp_path / "mask.safetensors").is_file()


def test_every_command_of_the_readme_exists_with_its_options() -> None:
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    shown = README.replace("\\\n", " ")
    used = re.findall(r"^bigram-subnet (\w+)(.*)$", shown, flags=re.MULTILINE)
    assert {name for name, _ in used} == set(commands)
    for name, rest in used:
        options = {option for parameter in commands[name].params for option in parameter.opts}
        if name != "train":  # its flags are HfArgumentParser's
            assert set(re.findall(r"--[\w-]+", rest)) <= options
