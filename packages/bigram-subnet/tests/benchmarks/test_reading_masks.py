"""Reading a mask of a 1B model (805 MB of booleans) from both kinds of file, against reading the file's bytes."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
import torch

from bigram_subnet import SubnetworkMask

LAYERS, WIDTH = 16, 2048  # Pythia 1B: 12 d^2 a layer
MODULES = {
    "attention.query_key_value": (3 * WIDTH, WIDTH),
    "attention.dense": (WIDTH, WIDTH),
    "mlp.dense_h_to_4h": (4 * WIDTH, WIDTH),
    "mlp.dense_4h_to_h": (WIDTH, 4 * WIDTH),
}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("masks")
    generator = torch.Generator().manual_seed(0)
    masks = {
        f"gpt_neox.layers.{layer}.{module}.weight": torch.rand(shape, generator=generator) < 0.01
        for layer in range(LAYERS)
        for module, shape in MODULES.items()
    }
    mask = SubnetworkMask(masks, "EleutherAI/pythia-1b")
    assert mask.total == 805_306_368
    for ending in ("pickle", "safetensors"):
        mask.save(folder / f"mask.{ending}")
    return folder / "mask.pickle", folder / "mask.safetensors"


def test_the_published_pickle(benchmark: Any, files: tuple[Path, Path], report: list[str]) -> None:
    file = files[0]
    plain = min(_timed(file.read_bytes) for _ in range(4))
    benchmark.pedantic(lambda: SubnetworkMask.load(file), rounds=4, warmup_rounds=1)
    seconds = benchmark.stats.stats.min
    report.append(f"{'805 MB of pickle, bytes alone':34} {1e3 * plain:9.0f} ms")
    report.append(
        f"{'805 MB of pickle, as a mask':34} {1e3 * seconds:9.0f} ms {seconds / plain:9.2f} x   (at most 2 x)"
    )


def test_the_packed_file(benchmark: Any, files: tuple[Path, Path], report: list[str]) -> None:
    file = files[1]
    benchmark.pedantic(lambda: SubnetworkMask.load(file), rounds=4, warmup_rounds=1)
    rate = 0.805306368 / benchmark.stats.stats.min
    size = file.stat().st_size / 1e6
    report.append(f"{f'the same packed, {size:.0f} MB':34} {rate:9.2f} GB of booleans a second   (at least 1)")


def _timed(call: Any) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start
