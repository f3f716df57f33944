"""One step of each covariance against the plain dense update, in one run: time, agreement, memory, shares."""

from __future__ import annotations

import ctypes
import gc
import sys
from itertools import cycle, islice
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from torch import Tensor

from dota_clip import DotaAdapter, DotaConfig, TDAAdapter

MEDIANS: dict[str, float] = {}
WARM = 5


def measure(benchmark: Any, name: str, step: Any, stream: Tensor, rounds: int) -> float:
    images = cycle(stream)
    for image in islice(images, WARM if rounds > WARM else 1):
        step(image)
    benchmark.group = "step"
    benchmark.pedantic(step, setup=lambda: ((next(images),), {}), rounds=rounds)
    MEDIANS[name] = benchmark.stats.stats.median
    return MEDIANS[name]


def test_the_plain_dense_step(
    benchmark: Any, plain_dota: Any, class_weights: Tensor, stream: Tensor, report: list[str]
) -> None:
    plain = plain_dota(class_weights, epsilon=1e-4, sigma2=0.002, eta=0.3, rho=0.02, logit_scale=100.0)
    seconds = measure(benchmark, "plain", plain.step, stream, rounds=5)
    report.append(f"{'plain dense update':34} {1e3 * seconds:9.2f} ms a step")


@pytest.mark.parametrize(
    ("covariance", "threshold", "target"),
    [
        ("full", 1e-4, "at least 30 x"),
        ("full", 0.0, "at least 6 x"),
        ("pooled", 0.0, "at most 12 ms"),
        ("pooled", 1e-4, "at most 8 ms"),
        ("diagonal", 0.0, ""),
        ("fixed", 0.0, ""),
    ],
)
def test_a_step(
    covariance: Any,
    threshold: float,
    target: str,
    benchmark: Any,
    class_weights: Tensor,
    stream: Tensor,
    report: list[str],
) -> None:
    adapter = DotaAdapter(class_weights, DotaConfig(covariance=covariance, prob_threshold=threshold))
    name = f"{covariance}, threshold {threshold:g}"
    seconds = measure(benchmark, name, adapter.step, stream, rounds=60 if covariance != "full" or threshold else 15)
    ratio = f"{MEDIANS['plain'] / seconds:7.1f} x" if "plain" in MEDIANS else ""
    report.append(f"{name:34} {1e3 * seconds:9.2f} ms a step {ratio:>10}   {target and f'({target})'}")


def test_a_tda_step(benchmark: Any, class_weights: Tensor, stream: Tensor, report: list[str]) -> None:
    seconds = measure(benchmark, "tda", TDAAdapter(class_weights).step, stream, rounds=60)
    report.append(f"{'TDA':34} {1e3 * seconds:9.2f} ms a step")


def test_the_logits_equal_those_of_the_plain_update(
    plain_dota: Any, class_weights: Tensor, stream: Tensor, report: list[str]
) -> None:
    plain = plain_dota(class_weights, epsilon=1e-4, sigma2=0.002, eta=0.3, rho=0.02, logit_scale=100.0)
    exact = DotaAdapter(class_weights)
    sparse = DotaAdapter(class_weights, DotaConfig(prob_threshold=1e-4))
    worst = {"threshold 0": 0.0, "threshold 1e-4": 0.0}
    for image in stream[:12]:
        expected = plain.step(image)
        for name, adapter in zip(worst, (exact, sparse), strict=True):
            worst[name] = max(worst[name], float((adapter.step(image).logits - expected).abs().max()))
    report.append("largest difference of logits in 12 steps: " + ", ".join(f"{k}: {v:.1e}" for k, v in worst.items()))
    assert worst["threshold 0"] <= 1e-5
    assert worst["threshold 1e-4"] <= 1e-4


@pytest.mark.skipif(sys.platform != "linux", reason="the peak of the resident memory can be reset on Linux only")
@pytest.mark.parametrize("covariance", ["full", "pooled"])
@pytest.mark.parametrize("threshold", [0.0, 1e-4])
def test_a_step_needs_little_memory_beyond_the_state(
    covariance: Any, threshold: float, class_weights: Tensor, stream: Tensor, report: list[str]
) -> None:
    adapter = DotaAdapter(class_weights, DotaConfig(covariance=covariance, prob_threshold=threshold))
    for image in stream[:WARM]:
        adapter.step(image)
    gc.collect()
    peaks = []
    libc = ctypes.CDLL(None)
    for image in stream[WARM : WARM + 8]:
        libc.malloc_trim(0)  # freed memory that the process still holds would hide the peak
        Path("/proc/self/clear_refs").write_text("5")  # resets the peak
        before = _kilobytes("VmRSS")
        adapter.step(image)
        peaks.append(1024 * (_kilobytes("VmHWM") - before))
    dimension, classes = class_weights.shape
    allowed = 3 * dimension * dimension * 4 + classes * 4
    name = f"{covariance}, threshold {threshold:g}"
    report.append(
        f"{name:34} {median(peaks) / 2**20:9.2f} MiB beyond the state, worst {max(peaks) / 2**20:.2f}"
        f"   (under {allowed / 2**20:.2f})"
    )
    assert max(peaks) < allowed


def _kilobytes(field: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1])
    raise AssertionError(f"no {field} in /proc/self/status")


@pytest.mark.parametrize(
    ("covariance", "threshold"), [("full", 0.0), ("full", 1e-4), ("pooled", 0.0), ("pooled", 1e-4)]
)
def test_the_share_of_each_part(
    covariance: Any, threshold: float, class_weights: Tensor, stream: Tensor, report: list[str]
) -> None:
    from torch.autograd.profiler import record_function
    from torch.profiler import ProfilerActivity, profile

    adapter = DotaAdapter(class_weights, DotaConfig(covariance=covariance, prob_threshold=threshold))
    parts = {"zero-shot logits": "_zero_shot", "factorisation": "_whitening", "score": "_score", "fit": "_fit"}
    for label, method in parts.items():
        setattr(adapter, method, _recorded(getattr(adapter, method), label, record_function))
    for image in stream[:WARM]:
        adapter.step(image)
    with profile(activities=[ProfilerActivity.CPU]) as profiled:
        for image in stream[WARM : WARM + 20]:
            with record_function("whole step"):
                adapter.step(image)
    times = {event.key: event.cpu_time_total for event in profiled.key_averages()}
    # the factorisation happens inside the making of the score, the rest of which is the triangular solve
    times["triangular solve"] = times.pop("score") - times["factorisation"]
    shares = {part: times[part] / times["whole step"] for part in ("factorisation", "triangular solve", "fit")}
    shares["the rest"] = 1 - sum(shares.values())
    told = ", ".join(f"{part} {share:.0%}" for part, share in shares.items())
    report.append(f"{f'{covariance}, threshold {threshold:g}':34} {told}")
    assert sum(shares.values()) == pytest.approx(1)


def _recorded(method: Any, label: str, record_function: Any) -> Any:
    def call(*args: Any) -> Any:
        with record_function(label):
            return method(*args)

    return call
