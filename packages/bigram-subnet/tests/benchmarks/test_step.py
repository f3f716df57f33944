"""A step of mask training against a step of full fine-tuning, and the share of it that the target takes."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import GPT2Config, GPT2LMHeadModel

from bigram_subnet import (
    BigramCounts,
    ContinuousSparsifier,
    NgramTarget,
    SelfTarget,
    distribution_cross_entropy,
)

VOCABULARY, LENGTH, BATCH = 8000, 128, 8
MEDIANS: dict[str, float] = {}


@pytest.fixture(scope="module")
def model() -> GPT2LMHeadModel:
    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=VOCABULARY, n_positions=LENGTH, n_embd=256, n_layer=6, n_head=4, bos_token_id=0, eos_token_id=0
    )
    return GPT2LMHeadModel(config).eval()


@pytest.fixture(scope="module")
def target(corpus: NDArray[np.int32]) -> NgramTarget:
    return NgramTarget(BigramCounts.from_sequences(torch.from_numpy(corpus.astype(np.int64) % VOCABULARY), VOCABULARY))


@pytest.fixture(scope="module")
def batch(corpus: NDArray[np.int32]) -> Tensor:
    return torch.from_numpy(corpus[:BATCH].astype(np.int64) % VOCABULARY)


def measure(benchmark: Any, name: str, step: Callable[[], object], rounds: int = 10) -> float:
    step()
    benchmark.group = "step"
    benchmark.pedantic(step, rounds=rounds)
    MEDIANS[name] = benchmark.stats.stats.median
    return MEDIANS[name]


def test_a_step_of_full_fine_tuning(benchmark: Any, model: GPT2LMHeadModel, batch: Tensor, report: list[str]) -> None:
    tuned = copy.deepcopy(model)
    optimizer = torch.optim.AdamW(tuned.parameters(), lr=1e-5, fused=True)

    def step() -> None:
        logits = tuned(input_ids=batch, use_cache=False).logits[:, :-1]
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    seconds = measure(benchmark, "full", step)
    report.append(f"{'full fine-tuning':34} {1e3 * seconds:9.1f} ms a step")


@pytest.mark.parametrize("kind", ["ngram", "self"])
def test_a_step_of_mask_training(
    kind: str, benchmark: Any, model: GPT2LMHeadModel, batch: Tensor, target: NgramTarget, report: list[str]
) -> None:
    sparsifier = ContinuousSparsifier(copy.deepcopy(model))
    chosen = target if kind == "ngram" else SelfTarget(sparsifier.model)
    optimizer = torch.optim.AdamW(list(sparsifier.scores), lr=1e-3, fused=True)
    spent = []

    def step() -> None:
        start = time.perf_counter()
        probs = chosen(batch)
        spent.append(time.perf_counter() - start)
        loss = distribution_cross_entropy(sparsifier(batch).logits, probs) + 10 * sparsifier.mean_mask()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        sparsifier.mask_counts()
        sparsifier.temperature *= 1.001

    seconds = measure(benchmark, kind, step)
    ratio = f"{seconds / MEDIANS['full']:7.2f} x" if "full" in MEDIANS else ""
    aim = "(at most 1.4 x)" if kind == "ngram" else ""
    report.append(f"{f'mask training, {kind} target':34} {1e3 * seconds:9.1f} ms a step {ratio:>10}   {aim}")
    share = sorted(spent)[len(spent) // 2] / seconds
    report.append(
        f"{f'  of it the {kind} target':34} {100 * share:9.1f} %   {'(under 10 %)' if kind == 'ngram' else ''}"
    )
