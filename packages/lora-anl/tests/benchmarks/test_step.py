"""AuroRA against peft's LoRA with the same targets and rank: time, peak memory, what is kept for the backward."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest
from peft import PeftModel
from torch import nn

from lora_anl import AuroraConfig
from nips_common.testing import adapter_bench

each_adapter = pytest.mark.parametrize(("mode", "rank"), [("pooled", 2), ("per_channel", 16)])


def adapted(base: nn.Module, mode: str, rank: int) -> dict[str, PeftModel]:
    return adapter_bench.beside_lora(base, rank, AuroraConfig, spline_mode=mode)


@each_adapter
@pytest.mark.parametrize(
    ("step", "target"),
    [(adapter_bench.training_step, 1.20), (adapter_bench.forward, 1.15)],
    ids=["training_step", "forward"],
)
def test_the_time_of_a_step(
    step: Callable[..., None],
    target: float,
    mode: str,
    rank: int,
    base: nn.Module,
    benchmark: Any,
    report: list[str],
) -> None:
    models, ids = adapted(base, mode, rank), adapter_bench.tokens()
    benchmark.group = step.__name__
    found = adapter_bench.in_turns(benchmark, lambda: step(models["lora"], ids), lambda: step(models["ours"], ids))
    spent = f"{found['fast']:6.2f} s, LoRA {found['slow']:6.2f} s  "
    line = f"{step.__name__:14} {mode:11} r={rank:<3} {spent}   ratio {found['ratio']:.3f}   (at most {target:.2f})"
    report.append(line)


@pytest.mark.skipif(sys.platform != "linux", reason="the peak of the resident memory can be reset on Linux only")
@each_adapter
def test_the_peak_memory_of_a_training_step(mode: str, rank: int, base: nn.Module, report: list[str]) -> None:
    models, ids = adapted(base, mode, rank), adapter_bench.tokens()
    peaks = {name: adapter_bench.peak(model, ids) for name, model in models.items()}
    ratio = peaks["ours"] / peaks["lora"]
    spent = f"{peaks['ours'] / 2**20:4.0f} MiB, LoRA {peaks['lora'] / 2**20:4.0f} MiB"
    report.append(f"{'peak memory':14} {mode:11} r={rank:<3} {spent}   ratio {ratio:.3f}   (at most 1.10)")


@each_adapter
def test_what_is_kept_for_the_backward(mode: str, rank: int, base: nn.Module, report: list[str]) -> None:
    models, ids = adapted(base, mode, rank), adapter_bench.tokens()
    kept = {name: adapter_bench.kept_bytes(model, ids) for name, model in models.items()}
    ratio = kept["ours"] / kept["lora"]
    sizes = f"{kept['ours'] / 2**20:4.0f} MiB, LoRA {kept['lora'] / 2**20:4.0f} MiB"
    report.append(f"{'kept':14} {mode:11} r={rank:<3} {sizes}   ratio {ratio:.3f}")
    assert ratio <= 1.01
