"""The README's lines run as they stand."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

README = Path(__file__).parents[1] / "README.md"


def python_blocks() -> list[str]:
    return re.findall(r"```python\n(.*?)```", README.read_text("utf-8"), flags=re.DOTALL)


@pytest.fixture
def my_toto(make_model: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A small model in the folder that the README names."""
    make_model().save_pretrained(tmp_path / "my-toto")
    monkeypatch.chdir(tmp_path)


def test_the_ten_lines_run_as_they_stand(my_toto: None, capsys: pytest.CaptureFixture[str]) -> None:
    code = python_blocks()[0]
    assert len([line for line in code.splitlines() if line.strip()]) <= 12
    exec(compile(code, "README.md", "exec"), {})
    assert capsys.readouterr().out.splitlines() == [
        "torch.Size([1, 3, 96]) torch.Size([1, 3, 96]) torch.Size([1, 3, 96, 64])",
        "torch.Size([1, 3, 8])",
        "torch.Size([1, 3, 500])",
    ]


def test_the_data_frame_and_gluonts_lines_run_too(my_toto: None, capsys: pytest.CaptureFixture[str]) -> None:
    frame, gluonts = python_blocks()[1:]
    exec(compile(frame, "README.md", "exec"), {})
    assert "target_name" in capsys.readouterr().out
    exec(compile(gluonts, "README.md", "exec"), {})
    assert capsys.readouterr().out == "(16, 24, 2)\n"


def test_the_recipe_is_one_that_the_script_takes(my_toto: None, tmp_path: Path) -> None:
    from toto_ts import train

    (recipe,) = re.findall(r"```yaml\n(.*?)```", README.read_text("utf-8"), flags=re.DOTALL)
    (tmp_path / "recipe.yaml").write_text(recipe)
    job, config = train.parse([str(tmp_path / "recipe.yaml"), "--dry_run", "True"])
    assert job.dry_run
    assert job.columns.exogenous == ("temperature",)
    assert (config.learning_rate, config.precision, config.output_dir) == (4e-5, "bf16", "run")


def test_the_reported_numbers_are_those_of_the_committed_run() -> None:
    from nips_common.claims import Reproduction

    file = README.parent / "results" / "reproduction-quick.json"
    if not file.is_file():
        pytest.skip("outside a checkout there are no results")
    result = Reproduction.from_json(file)
    text = README.read_text("utf-8")
    for row in result.tables[0].rows:
        assert f"{row[2]:.3f}" in text
        assert f"{row[4]:.3f}" in text
