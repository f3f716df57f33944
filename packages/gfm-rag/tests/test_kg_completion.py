"""Batches of the pre-training task."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from gfm_rag import GFMConfig, QueryGNN, remove_easy_edges, sample_negatives, strict_candidates, to_tail_mode


def triples_of(graph: Any, count: int) -> torch.Tensor:
    return torch.stack([graph.edge_index[0, :count], graph.edge_index[1, :count], graph.edge_type[:count]], 1)


def rows(graph: Any) -> list[tuple[int, int, int]]:
    return list(zip(*graph.edge_index.tolist(), graph.edge_type.tolist(), strict=True))


@pytest.mark.parametrize("count", [1, 4, 5])
def test_strict_negatives_are_never_true(make_graph: Any, count: int) -> None:
    graph = make_graph()
    positives, true = triples_of(graph, count), set(rows(graph))
    batch = sample_negatives(graph, positives, 50, generator=torch.Generator().manual_seed(0))
    assert torch.equal(batch[:, 0], positives)
    for row, (head, tail, relation) in zip(batch[:, 1:], positives.tolist(), strict=True):
        assert not true & set(map(tuple, row.tolist()))
        assert set(row[:, 2].tolist()) == {relation}
        assert (head, tail) not in set(map(tuple, row[:, :2].tolist()))
    changed = [int((row[:, 0] != row[0, 0]).any()) for row in batch]
    assert changed == [0] * (count // 2) + [1] * (count - count // 2)  # one triple alone always has its head changed


def test_the_same_generator_draws_the_same_negatives(make_graph: Any) -> None:
    graph = make_graph()
    draw = lambda: sample_negatives(graph, triples_of(graph, 4), 5, generator=torch.Generator().manual_seed(3))
    assert torch.equal(draw(), draw())


def test_a_triple_whose_every_corruption_is_true_is_named(make_graph: Any) -> None:
    graph = make_graph(nodes=2, edges=1)
    graph.edge_index = torch.tensor([[0, 1, 1, 1], [1, 1, 0, 1]])
    graph.edge_type = torch.tensor([0, 0, 3, 3])
    triple = torch.tensor([[0, 1, 0]])
    with pytest.raises(ValueError, match=r"\(0, 1, 0\): no entity is left as a false head"):
        sample_negatives(graph, triple, 3)
    assert sample_negatives(graph, triple, 3, strict=False).shape == (1, 4, 3)


def test_candidates_are_those_that_make_no_known_triple(make_graph: Any) -> None:
    graph = make_graph()
    true, positives = set(rows(graph)), triples_of(graph, 6)
    tails, heads = strict_candidates(graph, positives)
    for row, (head, tail, relation) in enumerate(positives.tolist()):
        assert tails[row].tolist() == [(head, node, relation) not in true and node != tail for node in range(9)]
        assert heads[row].tolist() == [(node, tail, relation) not in true and node != head for node in range(9)]


def test_easy_edges_go_and_the_others_stay_in_order(make_graph: Any) -> None:
    graph = make_graph()
    batch = sample_negatives(graph, triples_of(graph, 3), 4, generator=torch.Generator().manual_seed(0))
    before, asked = rows(graph), {tuple(triple) for triple in batch.reshape(-1, 3).tolist()}
    asked |= {(tail, head, relation + 3) for head, tail, relation in asked}
    pruned = remove_easy_edges(graph, batch)
    assert rows(pruned) == [edge for edge in before if edge not in asked]
    pairs = {(head, tail) for head, tail, _ in asked}
    assert rows(remove_easy_edges(graph, batch, remove_one_hop=True)) == [e for e in before if e[:2] not in pairs]
    assert rows(graph) == before


def test_ids_that_cannot_be_told_apart_in_63_bits_are_refused(make_graph: Any) -> None:
    graph = make_graph()
    graph.num_nodes = 2**31
    with pytest.raises(ValueError, match="63 bits"):
        remove_easy_edges(graph, torch.tensor([[0, 1, 0]]))


def test_corrupted_heads_are_asked_for_as_tails_of_the_inverse() -> None:
    batch = torch.tensor([[[1, 2, 0], [1, 3, 0]], [[1, 2, 1], [4, 2, 1]]])
    assert to_tail_mode(batch, 3).tolist() == [[[1, 2, 0], [1, 3, 0]], [[2, 1, 4], [2, 4, 4]]]
    with pytest.raises(ValueError, match="their head or their tail"):
        to_tail_mode(torch.tensor([[[1, 2, 0], [3, 4, 0]]]), 3)
    with pytest.raises(ValueError, match="share their relation"):
        to_tail_mode(torch.tensor([[[1, 2, 0], [1, 4, 1]]]), 3)


def test_the_query_network_leaves_its_graph_alone_and_names_wrong_batches(make_graph: Any) -> None:
    graph, model = make_graph(), QueryGNN(GFMConfig(8, (8, 8), 10))
    before = rows(graph)
    assert model(graph, sample_negatives(graph, triples_of(graph, 3), 4)).shape == (3, 5)
    assert rows(graph) == before
    with pytest.raises(ValueError, match=r"\(B, 1 \+ K, 3\), got \(3, 3\)"):
        model(graph, triples_of(graph, 3))


def test_triples_that_are_none_of_the_graph_are_named(make_graph: Any) -> None:
    graph = make_graph()
    for triple, words in (
        ([0, 9, 0], r"\(0, 9, 0\) is none of a graph of 9 entities and 6 relations"),
        ([-1, 1, 0], r"\(-1, 1, 0\) is none"),
        ([0, 1, 6], r"\(0, 1, 6\) is none"),
        ([0.0, 1.0, 0.0], r"whole numbers \(\.\.\., 3\), got torch\.float32"),
        ([0, 1], r"whole numbers \(\.\.\., 3\)"),
    ):
        for check in (remove_easy_edges, strict_candidates):
            with pytest.raises(ValueError, match=words):
                check(graph, torch.tensor([triple]))
    with pytest.raises(ValueError, match=r"\(B, 3\), got \(3,\)"):
        strict_candidates(graph, torch.tensor([0, 1, 0]))
    with pytest.raises(ValueError, match="num_negatives must be at least 1, got 0"):
        sample_negatives(graph, triples_of(graph, 2), 0)
