"""Graphs that wait in files for their batch are those that were made."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from gfm_rag import HashingEncoder, KGIndex
from gfm_rag.prepared_graphs import read_graph, write_graph
from gfm_rag.training_data import QuestionGraph, TripleGraph


def assert_same_graph(first: Any, second: Any) -> None:
    assert (first.num_nodes, first.num_relations) == (second.num_nodes, second.num_relations)
    for name in ("edge_index", "edge_type", "rel_emb"):
        assert torch.equal(first[name], second[name])


def test_questions_come_back_from_a_file_as_they_were(tmp_path: Path) -> None:
    index = KGIndex.from_triples(
        [("a", "r", "b"), ("b", "s", "c"), ("c", "r", "a")], {"A": ["a", "b"], "B": ["b", "c"], "C": []}
    )
    items = [
        {"question": "one", "question_entities": ["a"], "supporting_entities": ["b", "c"], "supporting_facts": ["B"]},
        {"question": "two", "question_entities": ["c", "b"], "supporting_entities": ["a"], "supporting_facts": ["A"]},
    ]
    graph = QuestionGraph.from_index(index, items, HashingEncoder(8))
    write_graph(tmp_path / "0", graph)
    found = read_graph(tmp_path / "0")
    assert isinstance(found, QuestionGraph)
    assert_same_graph(found.graph, graph.graph)
    for name in ("question_embeddings", "start_mask", "target_mask", "document_mask"):
        assert torch.equal(getattr(found, name), getattr(graph, name))
    assert found.entity_to_document.is_coalesced()
    assert torch.equal(found.entity_to_document.to_dense(), graph.entity_to_document.to_dense())
    assert torch.equal(found.entity_weight(), graph.entity_weight())


@pytest.mark.parametrize("knows_more", [False, True])
def test_triples_come_back_from_a_file_as_they_were(tmp_path: Path, make_graph: Any, knows_more: bool) -> None:
    whole = TripleGraph.of(make_graph())
    graph = TripleGraph(whole.graph, whole.triples[::2], whole.graph if knows_more else None)
    write_graph(tmp_path / "0", graph)
    found = read_graph(tmp_path / "0")
    assert isinstance(found, TripleGraph)
    assert torch.equal(found.triples, graph.triples)
    assert_same_graph(found.graph, graph.graph)
    assert (found.known is not None) == knows_more
    if found.known is not None:
        assert_same_graph(found.known, whole.graph)
