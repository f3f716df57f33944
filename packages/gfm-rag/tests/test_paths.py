"""Path explanation against exhaustive enumeration."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
import torch
from torch_geometric.data import Data

from gfm_rag.grouped_edges import grouped_edges
from gfm_rag.path_figure import draw_paths
from gfm_rag.paths import best_paths


def enumerate_walks(
    graph: Any, importance: torch.Tensor, starts: list[int], target: int
) -> list[tuple[float, tuple[Any, ...]]]:
    """All walks of 1 to L hops from a start to the target that do not leave it."""
    edges = list(zip(graph.edge_index[1].tolist(), graph.edge_type.tolist(), graph.edge_index[0].tolist(), strict=True))
    found: list[tuple[float, tuple[Any, ...]]] = []
    walks: list[tuple[float, tuple[Any, ...], int]] = [(0.0, (), node) for node in starts]
    for layer in range(len(importance)):
        longer = []
        for total, steps, end in walks:
            if end == target:
                continue
            for number, edge in enumerate(edges):
                if edge[0] == end:
                    longer.append((total + float(importance[layer, number]), (*steps, edge), edge[2]))
        found += [(total / (layer + 1), steps) for total, steps, end in longer if end == target]
        walks = longer
    return sorted(found, key=lambda walk: -walk[0])


@pytest.mark.parametrize("compat", [None, "v1"])
@pytest.mark.parametrize("seed", range(4))
def test_the_best_paths_are_those_of_exhaustive_enumeration(
    make_graph: Any, make_model: Any, make_questions: Any, seed: int, compat: Any
) -> None:
    graph, model = make_graph(nodes=8, edges=9, seed=seed), make_model(seed=seed)
    questions, mask = make_questions(1, 8, seed)
    target = (seed * 3) % 8
    importance = model.edge_importance(graph, questions, mask, target)
    if compat == "v1":
        importance = importance.flip(0).cumsum(0).flip(0)
    starts = mask[0].nonzero().flatten().tolist()
    expected = enumerate_walks(graph, importance, starts, target)
    found = model.explain(graph, questions, mask, target, k=6, compat=compat)
    assert [path.weight for path in found] == pytest.approx([weight for weight, _ in expected[:6]], abs=1e-6)
    for path, (_, steps) in zip(found, expected, strict=False):
        assert path.steps == steps
        assert path.steps[0].source in starts
        assert path.steps[-1].target == target
        assert all(a.target == b.source for a, b in zip(path.steps, path.steps[1:], strict=False))


def test_importance_is_the_derivative_by_each_layers_own_edge(
    make_graph: Any, make_model: Any, make_questions: Any
) -> None:
    graph, model = make_graph(), make_model().double()
    graph.rel_emb = graph.rel_emb.double()
    questions, mask = make_questions(1, 9, dtype=torch.float64)
    importance = model.edge_importance(graph, questions, mask, 4)
    queries, step = model.question_mlp(questions), 1e-6
    for layer, edge in ((0, 3), (1, 17), (2, 30)):
        scores = []
        for sign in (1, -1):
            weights = [torch.ones(40, dtype=torch.float64) for _ in range(3)]
            weights[layer][edge] += sign * step
            shared = model._shared(graph, queries, mask, None, None, tuple(weights))
            with torch.no_grad():
                scores.append(float(model.entity_model.score(model.entity_model.states(shared), queries)[4, 0]))
        assert float(importance[layer, edge]) == pytest.approx((scores[0] - scores[1]) / (2 * step), abs=1e-8)


def test_a_target_that_nothing_reaches_has_no_path(make_graph: Any, make_model: Any, make_questions: Any) -> None:
    graph = make_graph()
    graph.num_nodes = 10
    questions, mask = make_questions(1, 10, seed=2)
    mask[0, 9] = 0
    assert make_model().explain(graph, questions, mask, 9) == []


def test_a_walk_does_not_begin_at_the_target(make_graph: Any) -> None:
    graph = make_graph()
    paths = best_paths(grouped_edges(graph), torch.ones(3, 40), [4], 4, 10)
    assert paths == []


def test_wrong_targets_and_counts_are_refused(make_graph: Any, make_model: Any, make_questions: Any) -> None:
    graph, model = make_graph(), make_model()
    questions, mask = make_questions(1, 9)
    for arguments, words in (((9,), "from 0 to 8, got 9"), ((1, 0), "at least 1 path, got 0")):
        with pytest.raises(ValueError, match=words):
            model.explain(graph, questions, mask, *arguments)
    with pytest.raises(ValueError, match="one question, got 2"):
        model.explain(graph, *make_questions(2, 9), 1)
    with pytest.raises(ValueError, match="None or 'v1'"):
        model.explain(graph, questions, mask, 1, compat="v2")


def test_millions_of_walks_are_searched_exactly() -> None:
    # every pair of 40 nodes, both ways: 40 ** 6 walks of 6 hops; the best ones use the one strong edge of each layer
    nodes = torch.cartesian_prod(torch.arange(40), torch.arange(40)).T.contiguous()
    graph = Data(edge_index=nodes, edge_type=torch.zeros(1600, dtype=torch.long), num_nodes=40, num_relations=2)
    importance = torch.zeros(6, 1600)
    chain = [3, 3, 8, 1, 8, 2, 5]  # over a self-loop and a cycle
    for layer, (source, receiver) in enumerate(itertools.pairwise(chain)):
        importance[layer, receiver * 40 + source] = 1 + layer
    best = best_paths(grouped_edges(graph), importance, [3, 4], 5, 3)[0]
    assert [best.steps[0].source, *(step.target for step in best.steps)] == chain
    assert best.weight == pytest.approx(21 / 6)


def test_parallel_edges_are_walks_of_their_own() -> None:
    edges = torch.tensor([[1, 1, 1], [0, 0, 0]])
    graph = Data(edge_index=edges, edge_type=torch.tensor([0, 1, 1]), num_nodes=2, num_relations=2)
    paths = best_paths(grouped_edges(graph), torch.tensor([[0.1, 0.3, 0.2]]), [0], 1, 10)
    assert [path.weight for path in paths] == pytest.approx([0.3, 0.2, 0.1])
    assert [path.steps[0].relation for path in paths] == [1, 1, 0]


def test_names_with_dollar_signs_are_drawn_as_they_are(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    draw_paths(tmp_path / "paths.svg", [(0.5, [("$a_{$", "costs $", "$b$", False)])], "why $c^{$")
    assert (tmp_path / "paths.svg").stat().st_size > 0
