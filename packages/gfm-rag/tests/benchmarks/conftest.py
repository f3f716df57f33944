"""The graph that the benchmarks run on, and the table of ratios they print at the end."""

from __future__ import annotations

import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch_geometric.data import Data

from gfm_rag import GFMConfig, GNNRetriever

LINES: list[str] = []
NODES, EDGES, RELATIONS = 50_000, 320_000, 1_000  # 640,000 directed edges


@pytest.fixture(scope="session")
def report() -> list[str]:
    """Lines to print after the run."""
    return LINES


@pytest.fixture(scope="session")
def plain() -> Any:
    """The network that holds all messages at once."""
    return runpy.run_path(str(Path(__file__).parents[1] / "plain_network.py"))["plain_logits"]


@pytest.fixture(scope="session")
def model() -> GNNRetriever:
    """The released size: 6 layers of 512."""
    torch.manual_seed(0)
    return GNNRetriever(GFMConfig()).eval()


def make_graph(nodes: int, edges: int, relations: int) -> Data:
    """Random ends; the frequency of relations falls as 1 / rank, as in extracted graphs."""
    generator = torch.Generator().manual_seed(0)
    head, tail = torch.randint(nodes, (2, edges), generator=generator)
    shares = 1 / torch.arange(1, relations + 1)
    relation = torch.multinomial(shares, edges, replacement=True, generator=generator)
    return Data(
        edge_index=torch.stack([torch.cat([head, tail]), torch.cat([tail, head])]),
        edge_type=torch.cat([relation, relation + relations]),
        rel_emb=torch.randn(2 * relations, 768, generator=generator),
        num_nodes=nodes,
        num_relations=2 * relations,
    )


@pytest.fixture(scope="session")
def graph() -> Data:
    """50,000 nodes and 640,000 directed edges."""
    return make_graph(NODES, EDGES, RELATIONS)


@pytest.fixture(scope="session")
def quarter_graph() -> Data:
    """A quarter of it, for backward."""
    return make_graph(NODES // 4, EDGES // 4, RELATIONS)


@pytest.hookimpl(wrapper=True)
def pytest_terminal_summary(terminalreporter: Any) -> Iterator[None]:
    """Prints the lines."""
    yield
    if LINES:
        terminalreporter.section(
            f"gfm-rag: {NODES:,} nodes, {2 * EDGES:,} directed edges, d=512, {torch.get_num_threads()} threads"
        )
        for line in LINES:
            terminalreporter.write_line(line)
