"""Pre-training on UMLS, and completing triples of Kinships and Nations without having seen them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from gfm_rag import stages
from gfm_rag.completion import completion_ranks
from gfm_rag.config import GFMConfig
from gfm_rag.encoders.hashing import HashingEncoder
from gfm_rag.experiment.quiet_training import train_quietly
from gfm_rag.kg_completion import strict_candidates
from gfm_rag.kg_index import KGIndex
from gfm_rag.query_gnn import QueryGNN
from gfm_rag.ranks import mrr
from gfm_rag.training_data import TripleGraph
from nips_common.runtime import seed_everything

if TYPE_CHECKING:
    from torch_geometric.data import Data

DATA_SETS = ("umls", "kinships", "nations")
HIDDEN, LAYERS, TEXT_DIM = 32, 3, 256
BATCH_SIZE, LEARNING_RATE = 8, 5e-3


@dataclasses.dataclass(frozen=True)
class DataSet:
    """A knowledge graph split as pykeen ships it.

    Args:
        train: training triples and their graph.
        test: test triples on the same graph; all triples of the three files are known.
    """

    train: TripleGraph
    test: TripleGraph


def read_data_set(asset: Path, name: str, test_triples: int) -> DataSet:
    """Reads the files from the unpacked package without importing it.

    Args:
        asset: the unpacked wheel of pykeen.
        name: umls, kinships or nations.
        test_triples: the first so many test triples.
    """
    folder = asset / "pykeen" / "datasets" / name
    rows = {
        split: [line.split("\t") for line in (folder / f"{split}.txt").read_text("utf-8").splitlines() if line]
        for split in ("train", "valid", "test")
    }
    # the training triples first, so that their entities and relations have the lowest ids
    whole = KGIndex.from_triples([row for split in rows.values() for row in split], {})
    entities, relations = whole.entity_ids, {relation: number for number, relation in enumerate(whole.relations)}
    known = whole.graph(HashingEncoder(TEXT_DIM))

    def ids(split: str) -> Tensor:
        return torch.tensor([[entities[head], entities[tail], relations[rel]] for head, rel, tail in rows[split]])

    train, test = ids("train"), ids("test")[:test_triples]
    graph: Data = known.clone("num_nodes")
    head, tail, relation = train.unbind(1)
    graph.edge_index = torch.stack([torch.cat([head, tail]), torch.cat([tail, head])])
    graph.edge_type = torch.cat([relation, relation + len(relations)])
    return DataSet(TripleGraph(graph, train), TripleGraph(graph, test, known))


def make_model(seed: int) -> QueryGNN:
    """A network with random weights."""
    seed_everything(seed)
    return QueryGNN(GFMConfig(HIDDEN, (HIDDEN,) * LAYERS, TEXT_DIM))


def pretrain(model: QueryGNN, data: TripleGraph, steps: int, seed: int) -> None:
    """Stage 1 through the Trainer, at a constant rate, with all entities that make a triple false as negatives."""
    train_quietly(
        lambda args: stages.pretrain(model, [data], args, num_negatives=None),
        batch_size=BATCH_SIZE, learning_rate=LEARNING_RATE, seed=seed, max_steps=steps,
    )  # fmt: skip


def tail_mrr(model: QueryGNN, data: DataSet) -> float:
    """Filtered mean reciprocal rank of the tails of the test triples; ties count against the true one."""
    return mrr(completion_ranks(model, data.test, 16)[0])


def frequency_mrr(data: DataSet) -> float:
    """The same for a score of a tail that counts training triples (., relation, tail), ties at their middle rank."""
    counts = torch.zeros(int(data.train.graph.num_relations), int(data.train.graph.num_nodes))
    for _, tail, relation in data.train.triples.tolist():
        counts[relation, tail] += 1
    masks = strict_candidates(data.test.known or data.test.graph, data.test.triples)[0]
    ranks = list(_middle_ranks(counts, data.test.triples, masks))
    return float((1 / torch.tensor(ranks)).mean())


def _middle_ranks(counts: Tensor, triples: Tensor, masks: Tensor) -> Iterator[float]:
    for (_, tail, relation), mask in zip(triples.tolist(), masks, strict=True):
        others = counts[relation][mask]
        own = counts[relation, tail]
        yield 1 + float((others > own).sum()) + float((others == own).sum()) / 2
