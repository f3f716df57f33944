"""The table that the benchmarks print at the end."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

LINES: list[str] = []


@pytest.fixture(scope="session")
def report() -> list[str]:
    """Lines to print after the run."""
    return LINES


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter: Any) -> Iterator[None] | None:
    if LINES:
        terminalreporter.section("boom-bench: one core")
        for line in LINES:
            terminalreporter.write_line(line)
    return None
