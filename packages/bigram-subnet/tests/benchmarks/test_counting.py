"""Counting bigrams against a dict of counters, the plain way: tokens a minute and the ratio."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from bigram_subnet import BigramCounts

VOCABULARY = 50257
RATES: dict[str, float] = {}


@pytest.fixture(scope="module")
def file(corpus: NDArray[np.int32], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("corpus") / "tokens.txt"
    path.write_text("".join(" ".join(map(str, row)) + "\n" for row in corpus.tolist()))
    return path


def test_a_dict_of_counters(file: Path, report: list[str]) -> None:
    lines = file.read_text().splitlines()[:2000]
    start = time.perf_counter()
    counts: defaultdict[int, Counter[int]] = defaultdict(Counter)
    tokens = 0
    for line in lines:
        previous = VOCABULARY
        for token in map(int, line.split()):
            counts[previous][token] += 1
            previous = token
            tokens += 1
    RATES["plain"] = tokens / (time.perf_counter() - start)
    report.append(f"{'bigrams in a dict of counters':34} {60e-6 * RATES['plain']:9.0f} M tokens a minute")


@pytest.mark.parametrize("order", [2, 3])
def test_counting(order: int, benchmark: Any, file: Path, report: list[str]) -> None:
    benchmark.group = "counting"
    counts = benchmark.pedantic(lambda: BigramCounts.from_files(file, VOCABULARY, order), rounds=2)
    rate = counts.tokens / benchmark.stats.stats.min
    ratio = f"{rate / RATES['plain']:7.1f} x" if "plain" in RATES else ""
    aim = "(at least 20)" if order == 2 else ""
    report.append(f"{f'{order}-grams of a token file':34} {60e-6 * rate:9.0f} M tokens a minute {ratio:>10}   {aim}")
