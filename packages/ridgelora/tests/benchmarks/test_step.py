"""RidgeLoRA against peft's LoRA with the same targets and rank: time, peak memory, what is kept for the backward."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest
from torch import nn

from nips_common.testing import adapter_bench
from ridgelora import RidgeLoraConfig

each_rank = pytest.mark.parametrize("rank", [8, 64])


@each_rank
@pytest.mark.parametrize("step", [adapter_bench.training_step, adapter_bench.forward])
def test_the_time_of_a_step(
    step: Callable[..., None], rank: int, base: nn.Module, benchmark: Any, report: list[str]
) -> None:
    models, ids = adapter_bench.beside_lora(base, rank, RidgeLoraConfig), adapter_bench.tokens()
    benchmark.group = step.__name__
    found = adapter_bench.in_turns(benchmark, lambda: step(models["lora"], ids), lambda: step(models["ours"], ids))
    spent = f"{found['fast']:6.2f} s, LoRA {found['slow']:6.2f} s"
    report.append(f"{step.__name__:14} r={rank:<3} {spent}   ratio {found['ratio']:.3f}   (at most 1.15)")


@pytest.mark.skipif(sys.platform != "linux", reason="the peak of the resident memory can be reset on Linux only")
@each_rank
def test_the_peak_memory_of_a_training_step(rank: int, base: nn.Module, report: list[str]) -> None:
    models, ids = adapter_bench.beside_lora(base, rank, RidgeLoraConfig), adapter_bench.tokens()
    peaks = {name: adapter_bench.peak(model, ids) for name, model in models.items()}
    spent = f"{peaks['ours'] / 2**20:4.0f} MiB, LoRA {peaks['lora'] / 2**20:4.0f} MiB"
    report.append(
        f"{'peak memory':14} r={rank:<3} {spent}   ratio {peaks['ours'] / peaks['lora']:.3f}   (at most 1.10)"
    )


@each_rank
def test_what_is_kept_for_the_backward(rank: int, base: nn.Module, report: list[str]) -> None:
    models, ids = adapter_bench.beside_lora(base, rank, RidgeLoraConfig), adapter_bench.tokens()
    kept = {name: adapter_bench.kept_bytes(model, ids) for name, model in models.items()}
    ratio = kept["ours"] / kept["lora"]
    sizes = f"{kept['ours'] / 2**20:4.0f} MiB, LoRA {kept['lora'] / 2**20:4.0f} MiB"
    report.append(f"{'kept':14} r={rank:<3} {sizes}   ratio {ratio:.3f}")
    assert ratio <= 1.01
