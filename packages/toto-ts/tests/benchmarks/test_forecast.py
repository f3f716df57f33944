"""Sampling against the plain route, prefill against the rate of matrix products, memory against its formula."""

from __future__ import annotations

import ctypes
import gc
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from toto_ts import TotoForecaster
from toto_ts.context import SeriesBatch, make_context
from toto_ts.decoding import CachedDecoder

SAMPLES, PLAIN_SAMPLES = 256, 32
SECONDS: dict[tuple[str, str], float] = {}


def measure(benchmark: Any, workload: Any, name: str, run: Callable[[], Any], rounds: int) -> float:
    benchmark.group = workload.name
    benchmark.pedantic(run, rounds=rounds, warmup_rounds=1 if rounds > 1 else 0)
    SECONDS[workload.name, name] = benchmark.stats.stats.min
    return benchmark.stats.stats.min


def operations(run: Callable[[], Any]) -> int:
    """Floating-point operations of the matrix products of a call."""
    counter = FlopCounterMode(display=False)
    with counter:
        run()
    return counter.get_total_flops()


def test_the_plain_route(benchmark: Any, workload: Any, plain_samples: Any, report: list[str]) -> None:
    def run() -> None:
        with torch.no_grad():
            plain_samples(workload.model, workload.series, workload.horizon, PLAIN_SAMPLES)

    seconds = measure(benchmark, workload, "plain", run, rounds=1)
    report.append(f"{workload.name}: plain route, {PLAIN_SAMPLES} samples {seconds:8.2f} s")


def test_sampling(benchmark: Any, workload: Any, roof: float, report: list[str]) -> None:
    forecaster = TotoForecaster(workload.model)

    def run() -> None:
        forecaster.forecast(workload.series, workload.horizon, num_samples=SAMPLES, seed=0)

    seconds = measure(benchmark, workload, "ours", run, rounds=1)
    rate = operations(run) / seconds if workload.name == "small" else float("nan")
    steps = -(-workload.horizon // workload.config.patch_size)
    tokens = workload.tokens + (steps - 1) * SAMPLES * workload.variates
    share = f"{rate / roof:.0%} of the GEMM rate" if rate == rate else ""
    report.append(f"{workload.name}: ours, {SAMPLES} samples {seconds:8.2f} s {tokens / seconds:8.0f} tokens/s {share}")
    if (workload.name, "plain") in SECONDS:
        plain = SECONDS[workload.name, "plain"] * SAMPLES / PLAIN_SAMPLES
        report.append(
            f"{workload.name}: ratio to the plain route, per sample {plain / seconds:6.1f} x   (at least 8 x)"
        )


def test_prefill(benchmark: Any, workload: Any, roof: float, report: list[str]) -> None:
    forecaster = TotoForecaster(workload.model)

    def run() -> None:
        forecaster.forecast(workload.series, workload.config.patch_size, num_samples=None)

    seconds = measure(benchmark, workload, "prefill", run, rounds=5)
    rate = operations(run) / seconds
    report.append(
        f"{workload.name}: prefill of {workload.tokens} tokens {seconds:8.3f} s "
        f"{workload.tokens / seconds:8.0f} tokens/s "
        f"{rate / 1e9:6.1f} of {roof / 1e9:.1f} GFLOP/s = {rate / roof:.0%}   (at least 60 %)"
    )


def test_bfloat16(benchmark: Any, workload: Any, report: list[str]) -> None:
    from copy import deepcopy

    forecaster = TotoForecaster(deepcopy(workload.model).to(torch.bfloat16))

    def run() -> None:
        forecaster.forecast(workload.series, workload.horizon, num_samples=SAMPLES, seed=0)

    seconds = measure(benchmark, workload, "bfloat16", run, rounds=1)
    ratio = f"{SECONDS[workload.name, 'ours'] / seconds:6.1f} x float32" if (workload.name, "ours") in SECONDS else ""
    report.append(f"{workload.name}: ours in bfloat16, {SAMPLES} samples {seconds:8.2f} s {ratio}")


def test_prefill_does_not_unembed_the_context(workload: Any, report: list[str]) -> None:
    config, backbone = workload.config, workload.model.model
    whole = operations(lambda: workload.model(workload.series.unsqueeze(0)))
    needed = operations(
        lambda: TotoForecaster(workload.model).forecast(workload.series, config.patch_size, num_samples=None)
    )
    unembedding = 2 * workload.tokens * backbone.unembed.weight.numel()
    report.append(
        f"{workload.name}: prefill takes {needed / 1e9:.1f} GFLOP, a forward pass {whole / 1e9:.1f}, "
        f"of which unembedding {unembedding / 1e9:.1f}"
    )
    assert needed < whole - unembedding


def test_the_cache_has_the_size_of_its_formula(workload: Any, report: list[str]) -> None:
    series = workload.series.unsqueeze(0)
    batch = SeriesBatch(series, ~series.isnan(), torch.zeros(series.shape, dtype=torch.long))
    context = make_context(batch, workload.config.patch_size, workload.horizon, "mean")
    decoder = CachedDecoder(workload.model.model, context, None, "fixed")
    with torch.no_grad():
        decoder.start()
    token = 11 * 2 * workload.config.embed_dim * 4
    report.append(f"{workload.name}: cache {decoder.cache.nbytes / 2**20:.1f} MiB, {token / 1e3:.1f} kB a patch token")
    assert decoder.cache.nbytes == workload.tokens * token


@pytest.mark.skipif(sys.platform != "linux", reason="the peak of the resident memory can be reset on Linux only")
def test_memory_does_not_grow_with_the_samples(workload: Any, report: list[str]) -> None:
    forecaster, variates = TotoForecaster(workload.model), workload.variates
    peaks = {}
    for samples in (64, 64, 256):  # the first run warms up
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)  # freed memory that the process still holds would hide the peak
        Path("/proc/self/clear_refs").write_text("5")  # resets the peak
        before = _bytes("VmRSS")
        forecaster.forecast(workload.series, workload.horizon, num_samples=samples, seed=0)
        results = 4 * samples * variates * workload.horizon
        peaks[samples] = _bytes("VmHWM") - before - results
    told = ", ".join(f"{samples} samples {peak / 2**20:.0f} MiB" for samples, peak in peaks.items())
    report.append(f"{workload.name}: peak memory beyond the results: {told}")
    assert peaks[256] < 1.2 * peaks[64] + 8 * 2**20


def _bytes(field: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return 1024 * int(line.split()[1])
    raise AssertionError(f"no {field} in /proc/self/status")
