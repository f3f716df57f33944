"""The README's lines run as they stand."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from nips_finetune import parse
from ridgelora.arguments import METHOD

README = Path(__file__).parents[1] / "README.md"


def python_blocks() -> list[str]:
    return re.findall(r"```python\n(.*?)```", README.read_text("utf-8"), flags=re.DOTALL)


def test_the_ten_lines_run_as_they_stand(llama_folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my-model").symlink_to(llama_folder)
    code = python_blocks()[0]
    assert len([line for line in code.splitlines() if line.strip()]) <= 12
    exec(compile(code, "README.md", "exec"), {})
    assert json.loads((tmp_path / "my-adapter" / "adapter_config.json").read_text("utf-8"))["peft_type"] == "RIDGELORA"


@pytest.mark.parametrize("code", python_blocks()[1:])
def test_the_other_python_lines_run_too(code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "README.md", "exec"), {})


def test_the_training_commands_have_flags_that_exist() -> None:
    text = README.read_text("utf-8").replace("\\\n", " ")
    commands = re.findall(r"^ridgelora train (.*)$", text, flags=re.MULTILINE)
    assert len(commands) == 3
    outputs = [parse(METHOD, shlex.split(command))[2].output_dir for command in commands]
    assert outputs == ["adapter", "adapter", "pets"]
