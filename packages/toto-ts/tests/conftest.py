"""The small models that tests share: the reference ones, through the real loading path."""

from __future__ import annotations

import os
import runpy
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    import torch

    from toto_ts import Toto

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # before huggingface_hub is imported: no test may download


@pytest.fixture(scope="session")
def golden() -> SimpleNamespace:
    """The functions of golden_files.py."""
    return SimpleNamespace(**runpy.run_path(str(Path(__file__).parent / "golden_files.py")))


@pytest.fixture(scope="session")
def load_model(golden: SimpleNamespace, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Toto]:
    """Loads a reference model by name."""
    from toto_ts import Toto

    root = tmp_path_factory.mktemp("models")

    def load(name: str) -> Toto:
        return Toto.from_pretrained(golden.model_folder(name, root / name))

    return load


SIZES = {"patch_size": 8, "stride": 8, "embed_dim": 32, "num_layers": 4, "num_heads": 4, "mlp_hidden_dim": 48}


@pytest.fixture(scope="session")
def make_model() -> Callable[..., Toto]:
    """Makes a small random model in evaluation mode: P = 8, D = 32, four blocks, every second one over variates."""
    import torch

    from toto_ts import Toto, TotoConfig

    def make(labels: bool = False, **changes: Any) -> Toto:
        options = {"spacewise_every_n_layers": 2, "output_distribution_kwargs": {"k_components": 3}}
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            model = Toto(TotoConfig(**{**SIZES, **options, **changes}))
            if labels:
                model.enable_variate_labels()
        return model.eval()

    return make


@pytest.fixture
def series() -> torch.Tensor:
    """Two series of three related variates over 40 steps, float32, levels 5, 50 and 500."""
    import torch

    time = torch.arange(40.0)
    waves = torch.stack([torch.sin(time / 3 + phase) for phase in (0.0, 0.7, 1.9)])
    level = torch.tensor([5.0, 50.0, 500.0]).unsqueeze(1)
    noise = torch.randn(2, 3, 40, generator=torch.Generator().manual_seed(1))
    return level * (1 + 0.2 * waves + 0.05 * noise)
