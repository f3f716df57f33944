"""Tiny graphs and models for all tests."""

from __future__ import annotations

import os
import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from gfm_rag import GFMConfig, GNNRetriever
from gfm_rag.graph_data import without_import_notices

with without_import_notices():
    from torch_geometric.data import Data

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # before huggingface_hub is imported: no test may download
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
# Where the tests' launcher was started by `uv run`, Ray would start its workers by that launcher's command line.
os.environ.setdefault("RAY_ENABLE_UV_RUN_RUNTIME_ENV", "0")

TEXT_DIM = 10


def random_graph(
    nodes: int = 9, edges: int = 20, relations: int = 3, seed: int = 0, dtype: torch.dtype = torch.float32
) -> Data:
    """A random graph with inverse edges."""
    generator = torch.Generator().manual_seed(seed)
    head, tail = torch.randint(nodes, (2, edges), generator=generator)
    relation = torch.randint(relations, (edges,), generator=generator)
    return Data(
        edge_index=torch.stack([torch.cat([head, tail]), torch.cat([tail, head])]),
        edge_type=torch.cat([relation, relation + relations]),
        rel_emb=torch.randn(2 * relations, TEXT_DIM, generator=generator, dtype=dtype),
        num_nodes=nodes,
        num_relations=2 * relations,
    )


def random_model(layers: int = 3, size: int = 8, seed: int = 0, **options: Any) -> GNNRetriever:
    """A model with random weights."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return GNNRetriever(GFMConfig(size, (size,) * layers, TEXT_DIM, **options)).eval()


def random_questions(
    batch: int, nodes: int, seed: int = 1, dtype: torch.dtype = torch.float32
) -> tuple[Tensor, Tensor]:
    """Question embeddings (batch, TEXT_DIM) and start masks (batch, nodes) with two entities each."""
    generator = torch.Generator().manual_seed(seed)
    mask = torch.zeros(batch, nodes, dtype=dtype)
    for row in mask:
        row[torch.randperm(nodes, generator=generator)[:2]] = 1
    return torch.randn(batch, TEXT_DIM, generator=generator, dtype=dtype), mask


@pytest.fixture(scope="session")
def make_graph() -> Callable[..., Data]:
    return random_graph


@pytest.fixture(scope="session")
def make_model() -> Callable[..., GNNRetriever]:
    return random_model


@pytest.fixture(scope="session")
def make_questions() -> Callable[..., tuple[Tensor, Tensor]]:
    return random_questions


@pytest.fixture(scope="session")
def plain() -> dict[str, Any]:
    """The network that holds all messages at once."""
    return runpy.run_path(str(Path(__file__).parent / "plain_network.py"))
