"""The table of ratios that the benchmarks print at the end."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

VOCABULARY = 50257
LINES: list[str] = []


@pytest.fixture(scope="session")
def report() -> list[str]:
    """Lines to print after the run."""
    return LINES


@pytest.fixture(scope="session")
def corpus() -> NDArray[np.int32]:
    """(sequences, 128) ids whose frequencies fall as 1 / rank, as those of words do: 4 M tokens."""
    odds = 1 / np.arange(1, VOCABULARY + 1)
    generator = np.random.default_rng(0)
    return generator.choice(VOCABULARY, size=(32000, 128), p=odds / odds.sum()).astype(np.int32)


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter: Any) -> Iterator[None] | None:
    if LINES:
        terminalreporter.section(f"bigram-subnet: float32, {torch.get_num_threads()} threads")
        for line in LINES:
            terminalreporter.write_line(line)
    return None
