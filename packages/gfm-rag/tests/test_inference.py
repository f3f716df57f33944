"""Passes without gradients: they share a background between questions, and equal the passes with gradients."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch_geometric.data import Data

from gfm_rag import GFMConfig, GNNRetriever, QueryGNN, inference, relational_product
from gfm_rag.grouped_edges import grouped_edges
from gfm_rag.network import RelationalLayer

OPTIONS = [
    {"message": message, "aggregate": aggregate}
    for message, aggregate in itertools.product(["distmult", "transe", "rotate"], ["sum", "mean", "max", "pna"])
]
NODES = 40


@pytest.fixture
def one_by_one() -> Iterator[pytest.MonkeyPatch]:
    """Every batch goes question by question, in blocks of three rows."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(inference, "STATES_BUDGET_CPU", 0)
        patch.setattr(relational_product, "MESSAGE_BUDGET_CPU", 2 * 3 * 8 * 8)  # two blocks, d = 8, float64
        yield patch


def islands(make_graph: Any, dtype: torch.dtype = torch.float64) -> Data:
    """Parts that no hop connects, and nodes without an edge."""
    graph: Data = make_graph(nodes=30, edges=24, dtype=dtype)
    graph.num_nodes = NODES
    return graph


def six_questions(dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    """One start node, two, a weighted one, a node without an edge, none, all."""
    generator = torch.Generator().manual_seed(5)
    mask = torch.zeros(6, NODES, dtype=dtype)
    mask[0, 3], mask[1, 4], mask[1, 17], mask[2, 9], mask[3, NODES - 1] = 1, 1, 1, 0.3, 1
    mask[5] = torch.rand(NODES, generator=generator, dtype=dtype)
    return torch.randn(6, 10, generator=generator, dtype=dtype), mask


def without_gradients(model: GNNRetriever, *inputs: Any, **options: Any) -> Tensor:
    with torch.no_grad():
        logits = model(*inputs, **options)
    assert isinstance(logits, Tensor)
    return logits


@pytest.mark.parametrize(("short_cut", "concat_hidden"), [(True, False), (False, True)])
@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: "-".join(options.values()))
def test_every_option_equals_the_pass_with_gradients(
    options: dict[str, str],
    short_cut: bool,
    concat_hidden: bool,
    make_graph: Any,
    make_model: Any,
    one_by_one: pytest.MonkeyPatch,
) -> None:
    model = make_model(**options, short_cut=short_cut, concat_hidden=concat_hidden).double()
    graph, (questions, mask) = islands(make_graph), six_questions()
    weight = torch.linspace(0.5, 2, NODES, dtype=torch.float64)
    expected = model(graph, questions, mask, weight).detach()
    torch.testing.assert_close(without_gradients(model, graph, questions, mask, weight), expected)
    torch.testing.assert_close(without_gradients(model, graph, questions, mask, weight, edge_chunk_size=2), expected)
    alone = [without_gradients(model, graph, questions[i : i + 1], mask[i : i + 1], weight) for i in range(6)]
    torch.testing.assert_close(torch.cat(alone), expected)
    one_by_one.undo()
    torch.testing.assert_close(without_gradients(model, graph, questions, mask, weight), expected)


def test_a_batch_of_no_question_has_no_logits(make_graph: Any, make_model: Any) -> None:
    model, graph, inputs = make_model().double(), islands(make_graph), [part[:0] for part in six_questions()]
    assert model(graph, *inputs).shape == without_gradients(model, graph, *inputs).shape == (0, NODES)


@pytest.mark.usefixtures("one_by_one")
@pytest.mark.parametrize("layer_norm", [False, True])
def test_a_last_layer_of_another_size_and_other_activations_equal_the_pass_with_gradients(
    layer_norm: bool, make_graph: Any
) -> None:
    graph, (questions, mask) = islands(make_graph), six_questions()
    for activation, concat_hidden in itertools.product(["gelu", "tanh"], [False, True]):
        config = GFMConfig(8, (8, 8, 4), 10, activation=activation, layer_norm=layer_norm, concat_hidden=concat_hidden)  # type: ignore[arg-type]
        model = GNNRetriever(config).double().eval()
        expected = model(graph, questions, mask).detach()
        torch.testing.assert_close(without_gradients(model, graph, questions, mask), expected)


@settings(max_examples=60, deadline=None)
@given(
    data=st.data(),
    nodes=st.integers(1, 14),
    edges=st.integers(0, 12),
    options=st.sampled_from(OPTIONS),
    batch=st.integers(1, 4),
    budget=st.sampled_from([0, 32 << 20]),
    chunk=st.integers(1, 9),
)
def test_any_graph_and_any_start_equal_the_pass_with_gradients(
    data: st.DataObject,
    nodes: int,
    edges: int,
    options: dict[str, str],
    batch: int,
    budget: int,
    chunk: int,
    make_graph: Any,
    make_model: Any,
) -> None:
    graph = make_graph(nodes=nodes, edges=edges, seed=data.draw(st.integers(0, 99)), dtype=torch.float64)
    model = make_model(**options).double()
    rows = st.lists(st.sampled_from([0.0, 0.0, 0.0, 1.0, -0.5]), min_size=nodes, max_size=nodes)
    mask = torch.tensor(data.draw(st.lists(rows, min_size=batch, max_size=batch)), dtype=torch.float64)
    questions = torch.linspace(-1, 1, 10 * batch, dtype=torch.float64).view(batch, 10)
    expected = model(graph, questions, mask).detach()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(inference, "STATES_BUDGET_CPU", budget)
        torch.testing.assert_close(without_gradients(model, graph, questions, mask, edge_chunk_size=chunk), expected)


@pytest.mark.usefixtures("one_by_one")
def test_the_order_of_a_batch_does_not_change_its_scores(make_graph: Any, make_model: Any) -> None:
    graph, model, (questions, mask) = islands(make_graph), make_model().double(), six_questions()
    scores = without_gradients(model, graph, questions, mask)
    order = torch.tensor([5, 2, 0, 4, 1, 3])
    torch.testing.assert_close(without_gradients(model, graph, questions[order], mask[order]), scores[order])


def rows_made(patch: pytest.MonkeyPatch, call: Any) -> int:
    """How many rows of new states a call makes."""
    made: list[int] = []
    update = RelationalLayer.update

    def counted(*arguments: Any, **options: Any) -> Tensor:
        new = update(*arguments, **options)
        made.append(new.shape[0] * new.shape[1])
        return new

    with patch.context() as inner:
        inner.setattr(RelationalLayer, "update", counted)
        call()
    return sum(made)


def ring(make_graph: Any) -> Data:
    """Node i is joined with i + 1: l hops from a node reach 2 l + 1."""
    graph: Data = make_graph(nodes=NODES, edges=NODES, dtype=torch.float64)
    head = torch.arange(NODES)
    tail = (head + 1) % NODES
    graph.edge_index = torch.stack([torch.cat([head, tail]), torch.cat([tail, head])])
    return graph


def test_a_batch_makes_the_background_once_and_for_each_question_what_it_reaches(
    make_graph: Any, make_model: Any, one_by_one: pytest.MonkeyPatch
) -> None:
    graph, model = ring(make_graph), make_model(layers=4).double()
    questions, mask = torch.ones(3, 10, dtype=torch.float64), torch.zeros(3, NODES, dtype=torch.float64)
    mask[0, 0] = mask[1, 7] = mask[2, 21] = 1
    batch = rows_made(one_by_one, lambda: without_gradients(model, graph, questions, mask))
    assert batch == (1 + 3 * NODES) + 3 * (3 + 5 + 7 + 9)
    single = rows_made(one_by_one, lambda: without_gradients(model, graph, questions[:1], mask[:1]))
    assert single == 1 + 3 + 3 * NODES
    mask[1:] = 1  # two questions that reach everything at once share nothing
    mixed = rows_made(one_by_one, lambda: without_gradients(model, graph, questions, mask))
    assert mixed == (1 + 3 + 3 * NODES) + 2 * 4 * NODES


def test_a_question_leaves_the_background_when_it_reaches_more_than_half_of_the_graph(make_graph: Any) -> None:
    edges = grouped_edges(ring(make_graph))
    found = inference.reach(edges, torch.tensor([10, 11, 12]), 20)
    assert [len(nodes) for nodes in found] == [5, 7, 9, 11, 13, 15, 17, 19]
    assert found[0].tolist() == [9, 10, 11, 12, 13]
    assert inference.reach(edges, torch.arange(21), 20) == []
    assert [len(nodes) for nodes in inference.reach(edges, torch.arange(0), 3)] == [0, 0, 0]


@pytest.mark.usefixtures("one_by_one")
def test_triples_are_scored_as_with_gradients(make_graph: Any) -> None:
    graph = islands(make_graph)
    torch.manual_seed(0)
    model = QueryGNN(GFMConfig(8, (8, 8), 10)).double().eval()
    head, tail = graph.edge_index[:, :3]
    batch = torch.stack([head, tail, graph.edge_type[:3]], -1).unsqueeze(1).repeat(1, 4, 1)
    batch[:, 1:, 1] = torch.tensor([3, 8, 35])
    expected = model(graph, batch).detach()
    with torch.no_grad():
        torch.testing.assert_close(model(graph, batch), expected)


@pytest.mark.usefixtures("one_by_one")
def test_inference_mode_and_autocast_work_question_by_question(make_graph: Any, make_model: Any) -> None:
    graph, model = islands(make_graph, torch.float32), make_model()
    questions, mask = six_questions(torch.float32)
    expected = model(graph, questions, mask).detach()
    with torch.inference_mode():
        torch.testing.assert_close(model(graph, questions, mask), expected, atol=1e-5, rtol=0)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            half = model(graph, questions, mask)
    assert half.dtype == torch.bfloat16
    assert (half.float() - expected).abs().max() < 0.1


def test_edges_of_some_nodes_are_those_of_a_search_through_all(make_graph: Any) -> None:
    edges = grouped_edges(make_graph(nodes=9))
    by = edges.by_receiver
    for nodes in ([2, 3, 4], [0, 5, 8], [7], []):
        ids = torch.tensor(nodes, dtype=torch.long)
        wanted = torch.cat(
            [torch.zeros(0, dtype=torch.long), *((by.receivers == node).nonzero()[:, 0] for node in ids)]
        )
        found = by.of(ids)
        assert torch.equal(found.order, by.order[wanted])
        assert torch.equal(ids[found.keys], by.receivers[wanted])
        assert found.pointers.diff().tolist() == [int((by.receivers == node).sum()) for node in ids]
        assert edges.reached_from(ids).tolist() == sorted({*nodes, *by.receivers[torch.isin(by.senders, ids)].tolist()})
    for here, there in zip(by.between(2, 5), by.of(torch.tensor([2, 3, 4])), strict=True):
        assert torch.equal(here, there)
    part = edges.part(by.between(2, 5))
    assert part.in_degree.tolist() == edges.in_degree[2:5].tolist()
    assert part.mean_log_degree == edges.mean_log_degree
