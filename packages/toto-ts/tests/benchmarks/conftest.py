"""The models the benchmarks run, the machine's own rate of matrix products, and the table printed at the end."""

from __future__ import annotations

import dataclasses
import runpy
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from toto_ts import Toto, TotoConfig

LINES: list[str] = []


@dataclasses.dataclass
class Workload:
    """A random model and what it forecasts.

    Args:
        name: for the table.
        config: of the model.
        context: steps.
        horizon: steps.
        variates: of the one series.
    """

    name: str
    config: TotoConfig
    context: int
    horizon: int
    variates: int = 7

    def __post_init__(self) -> None:
        torch.manual_seed(0)
        self.model = Toto(self.config).eval()
        noise = torch.randn(self.variates, self.context, generator=torch.Generator().manual_seed(1))
        self.series: Tensor = noise.cumsum(-1)

    @property
    def tokens(self) -> int:
        """Patches of the context."""
        return self.variates * self.context // self.config.patch_size


def small() -> Workload:
    sizes = {"patch_size": 32, "stride": 32, "embed_dim": 256, "num_heads": 8, "mlp_hidden_dim": 1024}
    return Workload("small", TotoConfig(**sizes, spacewise_first=False), context=1024, horizon=168)  # type: ignore[arg-type]


def released() -> Workload:
    return Workload("released size", TotoConfig(spacewise_first=False), context=4096, horizon=336)


@pytest.fixture(
    scope="session",
    params=[pytest.param(small, id="small"), pytest.param(released, id="released", marks=pytest.mark.slow)],
)
def workload(request: Any) -> Workload:
    return request.param()


@pytest.fixture(scope="session")
def report() -> list[str]:
    """Lines to print after the run."""
    return LINES


@pytest.fixture(scope="session")
def plain_samples() -> Any:
    return runpy.run_path(str(Path(__file__).parents[1] / "plain_toto.py"))["plain_samples"]


def gemm_rate(workload: Workload, dtype: torch.dtype) -> float:
    """FLOP/s of the model's largest layer on the tokens of the context, alone: the roof for everything else."""
    layer = nn.Linear(workload.config.embed_dim, 2 * workload.config.mlp_hidden_dim).to(dtype)
    x = torch.randn(workload.tokens, workload.config.embed_dim).to(dtype)
    best = 0.0
    with torch.no_grad():
        for _ in range(30):
            start = time.perf_counter()
            layer(x)
            best = max(best, 2 * x.numel() * layer.out_features / (time.perf_counter() - start))
    return best


@pytest.fixture(scope="session")
def roof(workload: Workload) -> float:
    return gemm_rate(workload, torch.float32)


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter: Any) -> Iterator[None] | None:
    if LINES:
        terminalreporter.section(f"toto-ts: {torch.get_num_threads()} threads")
        for line in LINES:
            terminalreporter.write_line(line)
    return None
