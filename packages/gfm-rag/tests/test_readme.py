"""The README's ten lines run as they stand."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

README = Path(__file__).parents[1] / "README.md"


def test_the_ten_lines_run_as_they_stand(capsys: pytest.CaptureFixture[str]) -> None:
    code = re.findall(r"```python\n(.*?)```", README.read_text("utf-8"), flags=re.DOTALL)[0]
    assert len([line for line in code.splitlines() if line.strip()]) <= 12
    exec(compile(code, "README.md", "exec"), {})
    lines = capsys.readouterr().out.splitlines()
    assert sorted(line.split()[0] for line in lines[:2]) == ["Ada", "Babbage"]
    assert lines[2] == "2 triples, 3 entities"
