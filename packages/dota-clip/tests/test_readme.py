"""The README's ten lines run as they stand."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

README = Path(__file__).parents[1] / "README.md"


def python_blocks() -> list[str]:
    return re.findall(r"```python\n(.*?)```", README.read_text("utf-8"), flags=re.DOTALL)


def test_the_ten_lines_run_as_they_stand(
    photo_folder: Path,
    open_clip_folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my-clip").symlink_to(open_clip_folder)
    (tmp_path / "photos").symlink_to(photo_folder)
    code = python_blocks()[0]
    assert len([line for line in code.splitlines() if line.strip()]) <= 12
    exec(compile(code, "README.md", "exec"), {})
    printed = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in printed] == ["photos/china.jpg", "photos/flower.jpg"]
    assert all(line.split()[1] in ("temple", "flower") for line in printed)


def test_the_other_python_lines_run_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for code in python_blocks()[1:]:
        exec(compile(code, "README.md", "exec"), {})
