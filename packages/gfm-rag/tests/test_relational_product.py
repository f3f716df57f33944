"""The relational product against the route that holds all messages at once."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from gfm_rag.grouped_edges import grouped_edges
from gfm_rag.relational_product import edges_per_block, relational_max, relational_sum

MESSAGES = ["distmult", "transe", "rotate"]


def inputs(graph: Any, batch: int = 2, size: int = 4, seed: int = 0) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    states = torch.randn(graph.num_nodes, batch, size, generator=generator, dtype=torch.float64)
    vectors = torch.randn(graph.num_relations, size, generator=generator, dtype=torch.float64)
    weight = torch.rand(graph.edge_type.numel(), generator=generator, dtype=torch.float64)
    return [tensor.requires_grad_() for tensor in (states, vectors, weight)]


@pytest.mark.parametrize("message", MESSAGES)
def test_sums_of_any_chunk_size_equal_the_plain_route(make_graph: Any, plain: Any, message: str) -> None:
    graph = make_graph()
    states, vectors, weight = inputs(graph)
    found = plain["messages"](states, vectors, graph, message) * weight[:, None, None]
    expected = torch.zeros_like(states).index_add(0, graph.edge_index[0], found)
    direction = torch.randn_like(expected)
    wanted = torch.autograd.grad((expected * direction).sum(), (states, vectors, weight))
    for chunk in [*range(1, 41), 1000, None]:
        actual = relational_sum(states, vectors, grouped_edges(graph), message, weight, chunk)
        torch.testing.assert_close(actual, expected)
        grads = torch.autograd.grad((actual * direction).sum(), (states, vectors, weight))
        for grad, reference in zip(grads, wanted, strict=True):
            torch.testing.assert_close(grad, reference)


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("message", MESSAGES)
def test_extremes_of_any_chunk_size_equal_the_plain_route(make_graph: Any, plain: Any, message: str, sign: int) -> None:
    graph = make_graph(nodes=12)
    states, vectors, weight = inputs(graph)
    found = sign * plain["messages"](states, vectors, graph, message) * weight[:, None, None]
    index = graph.edge_index[0][:, None, None].expand_as(found)
    nowhere = torch.full_like(states, float("-inf")).detach()
    expected = nowhere.scatter_reduce(0, index, found, "amax", include_self=True)
    reached = expected.isfinite()
    direction = torch.randn_like(expected)
    wanted = torch.autograd.grad((expected * direction)[reached].sum(), (states, vectors, weight))
    for chunk in (1, 2, 3, 7, 39, 40, None):
        actual = relational_max(states, vectors, grouped_edges(graph), message, weight, chunk, sign=sign)
        torch.testing.assert_close(actual, expected)
        grads = torch.autograd.grad((actual * direction)[reached].sum(), (states, vectors, weight))
        for grad, reference in zip(grads, wanted, strict=True):
            torch.testing.assert_close(grad, reference)


@pytest.mark.parametrize("message", MESSAGES)
def test_gradients_equal_finite_differences(make_graph: Any, message: str) -> None:
    graph = make_graph(nodes=6, edges=8)
    edges = grouped_edges(graph)
    states, vectors, weight = inputs(graph)
    assert torch.autograd.gradcheck(
        lambda *x: relational_sum(x[0], x[1], edges, message, x[2], 3), (states, vectors, weight)
    )
    reached = edges.in_degree > 0
    assert torch.autograd.gradcheck(
        lambda *x: relational_max(x[0], x[1], edges, message, x[2], 3)[reached], (states, vectors, weight)
    )


def test_tied_messages_share_the_gradient_of_their_maximum(make_graph: Any) -> None:
    graph = make_graph(nodes=2, edges=1)
    graph.edge_index, graph.edge_type = torch.tensor([[0, 0], [1, 1]]), torch.tensor([2, 2])
    states, vectors, weight = inputs(graph, batch=1)
    total = relational_max(states, vectors, grouped_edges(graph), "distmult", torch.ones_like(weight))[0].sum()
    grad = torch.autograd.grad(total, states)[0]
    torch.testing.assert_close(grad[1, 0], vectors[2])


def test_a_graph_without_edges_sums_to_zero(make_graph: Any) -> None:
    graph = make_graph(nodes=1, edges=0)
    states, vectors, _ = inputs(graph)
    out = relational_sum(states, vectors, grouped_edges(graph))
    assert torch.equal(out, torch.zeros_like(out))
    out.sum().backward()
    assert states.grad is not None
    assert not states.grad.any()


def test_blocks_follow_the_memory_budget_unless_a_size_is_given() -> None:
    states = torch.zeros(5, 1, 512)
    assert edges_per_block(states, None) == (4 << 20) // (2 * 512 * 4)
    assert edges_per_block(states.expand(5, 8, 512), None) == (4 << 20) // (2 * 8 * 512 * 4)
    assert edges_per_block(states, 3) == 3
    with pytest.raises(ValueError, match="at least 1 edge, got 0"):
        edges_per_block(states, 0)


def test_a_graph_is_grouped_once_and_again_when_it_changed(make_graph: Any) -> None:
    graph = make_graph()
    first = grouped_edges(graph)
    assert grouped_edges(graph) is first
    assert grouped_edges(graph.clone("rel_emb")) is first  # the same edge tensors
    graph.edge_type[0] = (graph.edge_type[0] + 1) % graph.num_relations
    assert grouped_edges(graph) is not first
    assert torch.equal(grouped_edges(graph).relations, graph.edge_type)


def test_grouped_edges_go_with_their_graph(make_graph: Any) -> None:
    import gc
    import weakref

    graph = make_graph()
    groups = weakref.ref(grouped_edges(graph))
    del graph
    gc.collect()
    assert groups() is None


def test_an_edge_of_an_unknown_node_or_relation_is_refused(make_graph: Any) -> None:
    graph = make_graph(nodes=9)
    graph.num_nodes = 5
    with pytest.raises(ValueError, match="edge_index must hold ids from 0 to 4, got 0 to 8"):
        grouped_edges(graph)
    graph = make_graph()
    graph.num_relations = 4
    with pytest.raises(ValueError, match="edge_type must hold ids from 0 to 3, got 0 to 5"):
        grouped_edges(graph)
