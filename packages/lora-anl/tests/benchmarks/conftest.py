"""The table of ratios that the benchmarks print at the end."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from nips_common.testing.adapter_bench import DESCRIPTION, llama

LINES: list[str] = []


@pytest.fixture(scope="session")
def report() -> list[str]:
    """Lines to print after the run."""
    return LINES


@pytest.fixture(scope="session")
def base() -> nn.Module:
    return llama()


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter: Any) -> None:
    if LINES:
        terminalreporter.section(f"lora-anl: {DESCRIPTION}, {torch.get_num_threads()} threads")
        for line in LINES:
            terminalreporter.write_line(line)
