"""The README's lines run as they stand."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from lora_anl.train import main

README = Path(__file__).parents[1] / "README.md"


def python_blocks() -> list[str]:
    return re.findall(r"```python\n(.*?)```", README.read_text("utf-8"), flags=re.DOTALL)


@pytest.fixture(scope="module")
def classifier(roberta_folder: Path, text_csv: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A classifier as the training script leaves it."""
    folder = tmp_path_factory.mktemp("trained") / "classifier"
    task = ["--task", "sequence_classification", "--model", str(roberta_folder), "--train_data", str(text_csv)]
    main([*task, "--output_dir", str(folder), "--max_steps", "1"])
    return folder


def test_the_ten_lines_run_as_they_stand(llama_folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my-model").symlink_to(llama_folder)
    code = python_blocks()[0]
    assert len([line for line in code.splitlines() if line.strip()]) <= 12
    exec(compile(code, "README.md", "exec"), {})
    assert json.loads((tmp_path / "my-adapter" / "adapter_config.json").read_text("utf-8"))["peft_type"] == "AURORA"


@pytest.mark.parametrize("code", python_blocks()[1:])
def test_the_other_python_lines_run_too(
    code: str, classifier: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my-classifier").symlink_to(classifier)
    found: dict[str, object] = {}
    exec(compile(code, "README.md", "exec"), found)
    if "my-classifier" in code:
        labels = json.loads((classifier / "labelled_config.json").read_text("utf-8"))["id2label"]
        assert found["model"].config.id2label == {int(key): name for key, name in labels.items()}
