"""The stream the benchmarks run on, and the table of ratios they print at the end."""

from __future__ import annotations

import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.functional import normalize

CLASSES, DIMENSION = 1000, 512
LINES: list[str] = []


@pytest.fixture(scope="session")
def report() -> list[str]:
    """Lines to print after the run."""
    return LINES


@pytest.fixture(scope="session")
def plain_dota() -> Any:
    return runpy.run_path(str(Path(__file__).parents[1] / "plain_dota.py"))["PlainDota"]


@pytest.fixture(scope="session")
def class_weights() -> torch.Tensor:
    """(D, K) random directions."""
    return normalize(torch.randn(CLASSES, DIMENSION, generator=torch.Generator().manual_seed(0)), dim=1).T.contiguous()


@pytest.fixture(scope="session")
def stream(class_weights: torch.Tensor) -> torch.Tensor:
    """(N, 1, D) features whose largest zero-shot probability is about 0.6 at logit scale 100."""
    generator = torch.Generator().manual_seed(1)
    labels = torch.randint(CLASSES, (200,), generator=generator)
    noise = normalize(torch.randn(200, DIMENSION, generator=generator), dim=1)
    features = normalize(0.132 * class_weights.T[labels] + noise, dim=1)
    top = (100 * features @ class_weights).softmax(1).max(1).values.mean()
    assert 0.5 < top < 0.7
    return features.unsqueeze(1)


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter: Any) -> Iterator[None] | None:
    if LINES:
        terminalreporter.section(f"dota-clip: K={CLASSES}, D={DIMENSION}, float32, {torch.get_num_threads()} threads")
        for line in LINES:
            terminalreporter.write_line(line)
    return None
