"""The small models that tests share: the reference ones, through the real loading path."""

from __future__ import annotations

import os
import runpy
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # before huggingface_hub is imported: no test may download


@pytest.fixture(scope="session")
def golden() -> SimpleNamespace:
    """The functions of golden_files.py."""
    return SimpleNamespace(**runpy.run_path(str(Path(__file__).parent / "golden_files.py")))


@pytest.fixture(scope="session")
def load_model(golden: SimpleNamespace, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], object]:
    """Loads a reference model by name."""
    from toto_ts import Toto

    root = tmp_path_factory.mktemp("models")

    def load(name: str) -> Toto:
        return Toto.from_pretrained(golden.model_folder(name, root / name))

    return load
