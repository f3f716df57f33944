"""Properties of the network: counts and names, invariances, receptive field, odd graphs, determinism."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from torch_geometric.data import Data

from gfm_rag import GFMConfig, GNNRetriever, QueryGNN, inverse_frequency
from gfm_rag.grouped_edges import grouped_edges

OPTIONS = [
    {"message": message, "aggregate": aggregate}
    for message, aggregate in itertools.product(["distmult", "transe", "rotate"], ["sum", "mean", "max", "pna"])
]


def changed(graph: Data, **fields: Any) -> Data:
    new = graph.clone("num_nodes")
    for name, value in fields.items():
        setattr(new, name, value)
    return new


@pytest.mark.parametrize(
    ("hidden", "count"), [(32, 78_977), (64, 215_297), (128, 659_969), (256, 2_237_441), (512, 8_144_897)]
)
def test_the_number_of_parameters_is_that_of_the_paper(hidden: int, count: int) -> None:
    with torch.device("meta"):
        model = GNNRetriever(GFMConfig(hidden, (hidden,) * 6, 768))
    assert sum(parameter.numel() for parameter in model.parameters()) == count


def test_weights_have_the_official_names_shapes_and_order() -> None:
    with torch.device("meta"):
        shapes = {name: tuple(tensor.shape) for name, tensor in GNNRetriever().state_dict().items()}
    layers: dict[str, tuple[int, ...]] = {}
    for i in range(6):
        at = f"entity_model.layers.{i}"
        layers |= {f"{at}.layer_norm.weight": (512,), f"{at}.layer_norm.bias": (512,)}
        layers |= {f"{at}.linear.weight": (512, 1024), f"{at}.linear.bias": (512,)}
        for j in (0, 2):
            layers |= {f"{at}.relation_projection.{j}.weight": (512, 512), f"{at}.relation_projection.{j}.bias": (512,)}
    head = {"entity_model.mlp.0.weight": (1024, 1024), "entity_model.mlp.0.bias": (1024,)}
    head |= {"entity_model.mlp.2.weight": (1, 1024), "entity_model.mlp.2.bias": (1,)}
    text = {f"{name}.{part}": (512, 768) if part == "weight" else (512,)
            for name in ("rel_mlp", "question_mlp") for part in ("weight", "bias")}  # fmt: skip
    assert shapes == layers | head | text
    assert list(shapes) == list(layers | head | text)
    with torch.device("meta"):
        names = list(QueryGNN().state_dict())
    assert names == [name for name in shapes if not name.startswith("question_mlp")]


@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: "-".join(options.values()))
def test_every_option_equals_the_plain_route_in_values_and_gradients(
    options: dict[str, str], make_graph: Any, make_model: Any, make_questions: Any, plain: Any
) -> None:
    model = make_model(**options).double()
    graph = make_graph(dtype=torch.float64)
    questions, mask = make_questions(3, 9, dtype=torch.float64)
    expected = plain["plain_logits"](model, graph, questions, mask)
    actual = model(graph, questions, mask, edge_chunk_size=7)
    torch.testing.assert_close(actual, expected)
    with torch.no_grad():
        torch.testing.assert_close(model(graph, questions, mask), expected)
    direction = torch.randn_like(expected)
    wanted = torch.autograd.grad((expected * direction).sum(), list(model.parameters()))
    grads = torch.autograd.grad((actual * direction).sum(), list(model.parameters()))
    for grad, reference in zip(grads, wanted, strict=True):
        torch.testing.assert_close(grad, reference)


def test_gradients_of_the_whole_network_equal_finite_differences(make_graph: Any, make_model: Any) -> None:
    model, graph = make_model(layers=2, size=4).double(), make_graph(nodes=6, edges=8, dtype=torch.float64)
    questions = torch.randn(1, 10, dtype=torch.float64, requires_grad=True)
    mask = torch.rand(1, 6, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda q, s: model(graph, q, s), (questions, mask))


def test_the_direction_of_messages_matters_and_the_inverse_relations_mirror_it(
    make_graph: Any, make_model: Any, make_questions: Any
) -> None:
    graph, model = make_graph(), make_model()
    questions, mask = make_questions(2, 9)
    scores = model(graph, questions, mask)
    flipped = changed(graph, edge_index=graph.edge_index.flip(0))
    assert (model(flipped, questions, mask) - scores).abs().max() > 1e-4
    mirrored = changed(flipped, edge_type=(graph.edge_type + 3) % 6)
    torch.testing.assert_close(model(mirrored, questions, mask), scores, atol=1e-5, rtol=0)


def test_a_message_goes_from_the_second_row_to_the_first(make_graph: Any, make_model: Any) -> None:
    model, graph = make_model(layers=1), make_graph(nodes=3, edges=1)
    graph.edge_index, graph.edge_type = torch.tensor([[0], [1]]), torch.tensor([0])
    questions = torch.ones(1, 10)
    at = lambda *nodes: torch.zeros(1, 3).index_fill_(1, torch.tensor(nodes), 1.0)
    from_second = model(graph, questions, at(1))
    assert not torch.allclose(from_second[0, 0], from_second[0, 2])  # node 0 heard of node 1
    from_first = model(graph, questions, at(0))
    assert torch.equal(from_first[0, 1], from_first[0, 2])  # node 1 heard nothing of node 0


def test_renumbering_nodes_edges_and_relations_changes_nothing(
    make_graph: Any, make_model: Any, make_questions: Any
) -> None:
    graph, model = make_graph(), make_model()
    questions, mask = make_questions(2, 9)
    scores = model(graph, questions, mask)
    order = torch.randperm(9)  # node i becomes order[i]
    moved = changed(graph, edge_index=order[graph.edge_index])
    new_mask = torch.empty_like(mask)
    new_mask[:, order] = mask
    torch.testing.assert_close(model(moved, questions, new_mask)[:, order], scores, atol=1e-5, rtol=0)
    shuffle = torch.randperm(40)
    shuffled = changed(graph, edge_index=graph.edge_index[:, shuffle], edge_type=graph.edge_type[shuffle])
    torch.testing.assert_close(model(shuffled, questions, mask), scores, atol=1e-5, rtol=0)
    names = torch.randperm(6)
    embeddings = torch.empty_like(graph.rel_emb)
    embeddings[names] = graph.rel_emb
    renamed = changed(graph, edge_type=names[graph.edge_type], rel_emb=embeddings)
    torch.testing.assert_close(model(renamed, questions, mask), scores, atol=1e-5, rtol=0)


def chain(make_graph: Any, nodes: int) -> Data:
    graph: Data = make_graph(nodes=nodes)
    head, tail = torch.arange(nodes - 1), torch.arange(1, nodes)
    graph.edge_index = torch.stack([torch.cat([head, tail]), torch.cat([tail, head])])
    graph.edge_type = torch.cat([head % 3, head % 3 + 3])
    return graph


def test_a_score_depends_on_nothing_further_away_than_the_number_of_layers(make_graph: Any, make_model: Any) -> None:
    graph, model = chain(make_graph, 9), make_model(layers=3)
    questions, mask = torch.ones(1, 10), torch.zeros(1, 9).index_fill_(1, torch.tensor([0]), 1.0)
    scores = model(graph, questions, mask)[0]
    more = mask.clone()
    more[0, 8] = 1  # a start entity: reaches nodes 5 to 8
    difference = (model(graph, questions, more)[0] - scores).abs()
    assert difference[:5].max() < 1e-6 < difference[5]
    keep = (graph.edge_index != 8).all(0)  # the edges between 7 and 8: node 7 changes in layer 1, node 5 in layer 3
    cut = changed(graph, edge_index=graph.edge_index[:, keep], edge_type=graph.edge_type[keep])
    difference = (model(cut, questions, mask)[0] - scores).abs()
    assert difference[:5].max() < 1e-6 < difference[7]


def test_isolated_entities_that_are_no_start_share_one_score(make_graph: Any, make_model: Any) -> None:
    graph = make_graph(nodes=9)
    graph.num_nodes = 13
    mask = torch.zeros(1, 13)
    mask[0, [0, 12]] = 1
    scores = make_model()(graph, torch.ones(1, 10), mask)[0]
    torch.testing.assert_close(scores[9:12], scores[9].expand(3), atol=1e-6, rtol=0)
    assert (scores[12] - scores[9]).abs() > 1e-4


@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: "-".join(options.values()))
def test_odd_graphs_and_empty_starts_give_finite_scores(
    options: dict[str, str], make_graph: Any, make_model: Any
) -> None:
    model = make_model(**options)
    for nodes, edges in ((1, 0), (1, 3), (5, 0), (5, 9)):
        graph = make_graph(nodes=nodes, edges=edges)
        scores = model(graph, torch.ones(2, 10), torch.zeros(2, nodes))
        assert scores.shape == (2, nodes)
        assert scores.isfinite().all()
        scores.sum().backward()
    assert all(parameter.grad is not None and parameter.grad.isfinite().all() for parameter in model.parameters())


def test_a_duplicate_edge_counts_twice(make_graph: Any, make_model: Any, make_questions: Any, plain: Any) -> None:
    graph, model = make_graph(), make_model()
    questions, mask = make_questions(2, 9)
    doubled = changed(
        graph,
        edge_index=torch.cat([graph.edge_index, graph.edge_index[:, :5]], 1),
        edge_type=torch.cat([graph.edge_type, graph.edge_type[:5]]),
    )
    scores = model(doubled, questions, mask)
    torch.testing.assert_close(scores, plain["plain_logits"](model, doubled, questions, mask))
    assert not torch.allclose(scores, model(graph, questions, mask), atol=1e-4)


def test_weights_of_start_entities_scale_them(make_graph: Any, make_model: Any, make_questions: Any) -> None:
    graph, model = make_graph(), make_model()
    questions, mask = make_questions(2, 9)
    matrix = (torch.rand(9, 4, generator=torch.Generator().manual_seed(0)) > 0.5).float()
    weight = inverse_frequency(matrix)
    assert weight.tolist() == pytest.approx([1 / total if total else 0 for total in matrix.sum(1).tolist()])
    assert torch.equal(inverse_frequency(matrix.to_sparse_coo()), weight)
    torch.testing.assert_close(model(graph, questions, mask, weight), model(graph, questions, mask * weight))


def test_the_last_layer_may_have_another_size(make_graph: Any, make_questions: Any, plain: Any) -> None:
    model = GNNRetriever(GFMConfig(8, (8, 4), 10)).eval()
    questions, mask = make_questions(2, 9)
    _, states = model(make_graph(), questions, mask, output_hidden_states=True)
    assert [tuple(state.shape) for state in states] == [(2, 9, 8), (2, 9, 8), (2, 9, 4)]
    torch.testing.assert_close(
        model(make_graph(), questions, mask), plain["plain_logits"](model, make_graph(), questions, mask)
    )


def test_a_pass_leaves_graph_and_inputs_alone_and_repeats_itself(
    make_graph: Any, make_model: Any, make_questions: Any
) -> None:
    graph, model = make_graph(), make_model()
    questions, mask = make_questions(2, 9)
    before = [tensor.clone() for tensor in (graph.edge_index, graph.edge_type, graph.rel_emb, questions, mask)]
    keys = list(graph.keys())
    with torch.no_grad():
        first, second = model(graph, questions, mask), model(graph, questions, mask)
    with torch.inference_mode():
        third = model(graph, questions, mask)
    assert torch.equal(first, second)
    assert torch.equal(first, third)
    after = (graph.edge_index, graph.edge_type, graph.rel_emb, questions, mask)
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))
    assert list(graph.keys()) == keys


def test_half_precision_under_autocast_stays_close(make_graph: Any, make_model: Any, make_questions: Any) -> None:
    graph, model = make_graph(), make_model()
    questions, mask = make_questions(2, 9)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        scores = model(graph, questions, mask)
        scores.sum().backward()
        with torch.no_grad():
            kept, states = model(graph, questions, mask, output_hidden_states=True)
    assert len(states) == 4
    assert (scores.float() - model(graph, questions, mask)).abs().max() < 0.1
    assert (kept.float() - model(graph, questions, mask)).abs().max() < 0.1


def test_sizes_that_do_not_fit_are_named(make_graph: Any, make_model: Any, make_questions: Any) -> None:
    graph, model = make_graph(), make_model()
    questions, mask = make_questions(2, 9)
    with pytest.raises(ValueError, match=r"text_dim=10.*\(2, 7\)"):
        model(graph, questions[:, :7], mask)
    with pytest.raises(ValueError, match=r"\(6, 7\).*\(6, 10\)"):
        model(changed(graph, rel_emb=graph.rel_emb[:, :7]), questions, mask)
    with pytest.raises(ValueError, match=r"\(2, 9\), got \(2, 8\)"):
        model(graph, questions, mask[:, :8])
    with pytest.raises(ValueError, match=r"\(9,\), got \(8,\)"):
        model(graph, questions, mask, torch.ones(8))


def test_grouped_edges_survive_a_pass_in_inference_mode(make_graph: Any, make_model: Any, make_questions: Any) -> None:
    graph, model = make_graph(), make_model()
    questions, mask = make_questions(2, 9)
    with torch.inference_mode():
        model(graph, questions, mask)
    model(graph, questions, mask).sum().backward()  # groups made in inference mode would break here
    assert grouped_edges(graph) is grouped_edges(graph)
