"""Pre-training against every entity that makes a triple false."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from gfm_rag import AdversarialBCELoss, GFMConfig, QueryGNN, to_tail_mode
from gfm_rag.all_negatives import all_negatives
from gfm_rag.training_data import GraphBatch, GraphPool, TripleGraph


def test_every_entity_stands_once_in_a_row_and_the_false_ones_and_the_own_count(make_graph: Any) -> None:
    graph = make_graph()
    triples = TripleGraph.of(graph).triples[:5]
    true = set(zip(*graph.edge_index.tolist(), graph.edge_type.tolist(), strict=True))
    batch, targets, counted = all_negatives(graph, triples)
    assert batch.shape == (5, 9, 3)
    for row, (triple, cells) in enumerate(zip(triples.tolist(), batch.tolist(), strict=True)):
        column = 1 if row < 2 else 0  # floor(5 / 2) rows with other tails
        assert [cell[column] for cell in cells] == list(range(9))
        assert {cell[1 - column] for cell in cells} == {triple[1 - column]}
        own = [cell == triple for cell in cells]
        assert targets[row].tolist() == own
        assert counted[row].tolist() == [mine or tuple(cell) not in true for mine, cell in zip(own, cells, strict=True)]
    assert to_tail_mode(batch, 3).shape == batch.shape


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_the_loss_is_the_mean_of_rows_of_different_length(make_graph: Any, tmp_path: Path, temperature: float) -> None:
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    from gfm_rag.trainers import PretrainTrainer

    graph = make_graph()
    data, model = TripleGraph.of(graph), QueryGNN(GFMConfig(8, (8, 8), 10)).eval()
    args = transformers.TrainingArguments(str(tmp_path), use_cpu=True, report_to="none", disable_tqdm=True)
    trainer = PretrainTrainer(model, args, GraphPool([data]), num_negatives=None, temperature=temperature)
    rows = torch.tensor([3, 7, 11])
    loss, logits = trainer.compute_loss(model, {"batch": GraphBatch(0, rows, 0)}, return_outputs=True)
    batch, targets, counted = all_negatives(graph, data.triples[rows])
    assert len(set(counted.sum(1).tolist())) > 1
    assert torch.equal(logits, model(graph, batch))
    expected = []
    for row, kept in zip(range(3), counted, strict=True):
        own = logits[row, targets[row] > 0]
        false = logits[row, kept & (targets[row] == 0)]
        ordered = torch.cat([own, false])[None]  # as in the batches of sampled negatives
        expected.append(AdversarialBCELoss(temperature)(ordered, torch.arange(ordered.shape[1])[None] == 0))
    assert loss.item() == pytest.approx(sum(value.item() for value in expected) / 3, rel=1e-5)


def test_the_number_of_negatives_is_checked(tmp_path: Path, make_graph: Any) -> None:
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    from gfm_rag.trainers import PretrainTrainer

    args = transformers.TrainingArguments(str(tmp_path), use_cpu=True, report_to="none", disable_tqdm=True)
    pool = GraphPool([TripleGraph.of(make_graph())])
    with pytest.raises(ValueError, match="at least 1, or None for all, got 0"):
        PretrainTrainer(QueryGNN(GFMConfig(8, (8,), 10)), args, pool, num_negatives=0)
