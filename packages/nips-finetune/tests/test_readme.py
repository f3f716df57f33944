"""The README's lines run as they stand."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

README = Path(__file__).parents[1] / "README.md"


def test_the_ten_lines_run_as_they_stand(
    llama_folder: Path, text_jsonl: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my-model").symlink_to(llama_folder)
    (tmp_path / "texts.jsonl").symlink_to(text_jsonl)
    (code,) = re.findall(r"```python\n(.*?)```", README.read_text("utf-8"), flags=re.DOTALL)
    assert len([line for line in code.splitlines() if line.strip()]) <= 12
    exec(compile(code, "README.md", "exec"), {})
    assert json.loads((tmp_path / "my-adapter" / "metrics.json").read_text())["steps"] == 3
    assert json.loads((tmp_path / "my-adapter" / "adapter_config.json").read_text())["r"] == 8
