"""AuroRA against peft's LoRA with the same targets and rank, step by step in turn: time, peak memory, what is kept."""

from __future__ import annotations

import ctypes
import gc
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import pytest
import torch
from peft import PeftModel
from torch import Tensor

Make = Callable[[str, int], PeftModel]
ROUNDS = 3
each_adapter = pytest.mark.parametrize(("mode", "rank"), [("pooled", 2), ("per_channel", 16)])


def training_step(model: PeftModel, tokens: Tensor) -> None:
    model(input_ids=tokens, labels=tokens).loss.backward()
    model.zero_grad()


@torch.no_grad()
def forward(model: PeftModel, tokens: Tensor) -> None:
    model(input_ids=tokens)


@each_adapter
@pytest.mark.parametrize(("step", "target"), [(training_step, 1.20), (forward, 1.15)], ids=["train", "forward"])
def test_the_time_of_a_step(
    step: Callable[[PeftModel, Tensor], None],
    target: float,
    mode: str,
    rank: int,
    benchmark: Any,
    adapted: Make,
    tokens: Tensor,
    report: list[str],
) -> None:
    lora, aurora = adapted("lora", rank), adapted(mode, rank)
    seconds: dict[str, list[float]] = {"lora": [], "aurora": []}

    def timed(name: str, model: PeftModel) -> None:
        start = time.perf_counter()
        step(model, tokens)
        seconds[name].append(time.perf_counter() - start)

    for model in (lora, aurora):
        step(model, tokens)
    benchmark.group = step.__name__
    # LoRA's step runs in front of each of ours, so that both meet the same load
    benchmark.pedantic(lambda: timed("aurora", aurora), setup=lambda: timed("lora", lora), rounds=ROUNDS)
    ratio = median(ours / theirs for ours, theirs in zip(seconds["aurora"], seconds["lora"], strict=True))
    spent = f"{median(seconds['aurora']):6.2f} s, LoRA {median(seconds['lora']):6.2f} s  "
    report.append(f"{step.__name__:14} {mode:11} r={rank:<3} {spent}   ratio {ratio:.3f}   (at most {target:.2f})")


@pytest.mark.skipif(sys.platform != "linux", reason="the peak of the resident memory can be reset on Linux only")
@each_adapter
def test_the_peak_memory_of_a_training_step(
    mode: str, rank: int, adapted: Make, tokens: Tensor, report: list[str]
) -> None:
    peaks = {name: peak(adapted(name, rank), tokens) for name in ("lora", mode)}
    ratio = peaks[mode] / peaks["lora"]
    spent = f"{peaks[mode] / 2**20:4.0f} MiB, LoRA {peaks['lora'] / 2**20:4.0f} MiB"
    report.append(f"{'peak memory':14} {mode:11} r={rank:<3} {spent}   ratio {ratio:.3f}   (at most 1.10)")


def peak(model: PeftModel, tokens: Tensor) -> float:
    """Bytes that a training step needs beyond the model."""
    training_step(model, tokens)
    found, libc = [], ctypes.CDLL(None)
    for _ in range(2):
        gc.collect()
        libc.malloc_trim(0)  # freed memory that the process still holds would hide the peak
        Path("/proc/self/clear_refs").write_text("5")  # resets the peak
        before = _kilobytes("VmRSS")
        training_step(model, tokens)
        found.append(1024 * (_kilobytes("VmHWM") - before))
    return median(found)


@each_adapter
def test_what_is_kept_for_the_backward(mode: str, rank: int, adapted: Make, tokens: Tensor, report: list[str]) -> None:
    kept = {name: kept_bytes(adapted(name, rank), tokens) for name in ("lora", mode)}
    ratio = kept[mode] / kept["lora"]
    sizes = f"{kept[mode] / 2**20:4.0f} MiB, LoRA {kept['lora'] / 2**20:4.0f} MiB"
    report.append(f"{'kept':14} {mode:11} r={rank:<3} {sizes}   ratio {ratio:.3f}")
    assert ratio <= 1.01


def kept_bytes(model: PeftModel, tokens: Tensor) -> int:
    """Bytes of all storages that a forward pass keeps for its backward, without parameters."""
    known = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    kept: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in known:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        output = model(input_ids=tokens, labels=tokens)
    assert output.loss.requires_grad
    return sum(kept.values())


def _kilobytes(field: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1])
    raise AssertionError(f"no {field} in /proc/self/status")
