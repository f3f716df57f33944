"""Time and memory of the network against the route that holds all messages at once, in one run."""

from __future__ import annotations

import ctypes
import gc
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor
from torch_geometric.data import Data

from gfm_rag import GNNRetriever


def _kibibytes(field: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1])
    raise AssertionError(f"no {field} in /proc/self/status")


class Cost(NamedTuple):
    """What one call took: seconds, seconds of processor time, and peak MiB beyond what was in use before."""

    seconds: float
    processor: float
    memory: float


def measure(call: Callable[[], Any]) -> tuple[Cost, Any]:
    """The cost of a call, and its result."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)  # freed memory that the process still holds would hide the peak
    Path("/proc/self/clear_refs").write_text("5")  # resets the high-water mark
    before, start, processor = _kibibytes("VmRSS"), time.perf_counter(), time.process_time()
    result = call()
    cost = Cost(time.perf_counter() - start, time.process_time() - processor, (_kibibytes("VmHWM") - before) / 1024)
    return cost, result


def question(graph: Data, batch: int = 1) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    mask = torch.zeros(batch, int(graph.num_nodes))
    for row in mask:
        row[torch.randint(len(row), (3,), generator=generator)] = 1
    return torch.randn(batch, 768, generator=generator), mask


def compare(what: str, ours: Callable[[], Tensor], naive: Callable[[], Tensor], report: list[str]) -> None:
    """Adds lines with both routes' costs and their ratios; the processor time says more on a busy machine."""
    ours()  # groups the edges, once per graph
    cost, result = measure(ours)
    plain, expected = measure(naive)
    bounds = {"seconds": "at most 0.50", "processor": "", "memory": "at most 0.25"}
    units = {"seconds": "s", "processor": "s of processor time", "memory": "MiB"}
    for field, bound in bounds.items():
        value, reference = getattr(cost, field), getattr(plain, field)
        label = what if field == "seconds" else ""
        told = f"{label:46} {value:8.2f} against {reference:8.2f} {units[field]:20} {value / reference:5.2f}   {bound}"
        report.append(told.rstrip())
    torch.testing.assert_close(result, expected, atol=1e-4, rtol=1e-4)


def test_forward_against_the_plain_route(model: GNNRetriever, graph: Data, plain: Any, report: list[str]) -> None:
    inputs = question(graph)
    with torch.no_grad():
        compare("six layers forward", lambda: model(graph, *inputs), lambda: plain(model, graph, *inputs), report)


def test_forward_and_backward_against_the_plain_route(
    model: GNNRetriever, quarter_graph: Data, plain: Any, report: list[str]
) -> None:
    inputs = question(quarter_graph)

    def train(forward: Callable[..., Tensor]) -> Tensor:
        model.zero_grad(set_to_none=True)
        forward().square().mean().backward()
        return torch.cat([parameter.grad.flatten() for parameter in model.parameters() if parameter.grad is not None])

    compare(
        "forward and backward, a quarter of the graph",
        lambda: train(lambda: model(quarter_graph, *inputs)),
        lambda: train(lambda: plain(model, quarter_graph, *inputs)),
        report,
    )


def test_a_batch_of_eight_against_eight_single_questions(model: GNNRetriever, graph: Data, report: list[str]) -> None:
    embeddings, masks = question(graph, 8)
    with torch.no_grad():
        model(graph, embeddings[:1], masks[:1])
        single, _ = measure(lambda: model(graph, embeddings[:1], masks[:1]))
        singles, expected = measure(
            lambda: torch.cat([model(graph, embeddings[i : i + 1], masks[i : i + 1]) for i in range(8)])
        )
        batch, found = measure(lambda: model(graph, embeddings, masks))
    for field, bound in (("seconds", "(at most 0.90)"), ("processor", "(processor time)")):
        label = "a batch of 8 against 8 single questions" if field == "seconds" else ""
        value, reference = getattr(batch, field), getattr(singles, field)
        report.append(
            f"{label:42} {value:7.2f} s   singles {reference:5.2f} s   {value / reference:5.2f} of their time {bound}"
        )
    report.append(f"{'one question':42} {singles.seconds / 8:7.2f} s   (at most 8 s)")
    # beyond one question: the background, of which the first layer is one row, all relation vectors, and the logits
    nodes, relations, d = int(graph.num_nodes), int(graph.num_relations), model.config.input_dim
    layers = len(model.config.hidden_dims)
    most = single.memory + 4 * ((layers - 1) * nodes * d + layers * relations * d + 8 * nodes) / 2**20
    report.append(
        f"{'memory of that batch':42} {batch.memory:5.0f} MiB   one question {single.memory:5.0f} MiB   "
        f"(at most {most:.0f})"
    )
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("size", [1_000, 8_000])
def test_memory_follows_the_chunk(model: GNNRetriever, quarter_graph: Data, size: int, report: list[str]) -> None:
    inputs = question(quarter_graph)
    with torch.no_grad():
        model(quarter_graph, *inputs)
        cost, _ = measure(lambda: model(quarter_graph, *inputs, edge_chunk_size=size))
    report.append(f"{f'chunks of {size:,} edges, a quarter graph':42} {cost.memory:5.0f} MiB")
