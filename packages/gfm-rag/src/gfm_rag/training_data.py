"""What the two stages train on: triples of graphs, and questions on graphs; loaded on demand, one graph a batch."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

import torch
from torch import Tensor
from torch.utils.data import Dataset

from gfm_rag.encoders import Encoder, encode
from gfm_rag.kg_index import KGIndex
from gfm_rag.ranking import inverse_frequency

if TYPE_CHECKING:
    from torch_geometric.data import Data

log = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class QuestionGraph:
    """Questions on one graph, as tensors.

    Args:
        graph: see `KGIndex.graph`.
        entity_to_document: (N, D) sparse COO.
        question_embeddings: (Q, text_dim).
        start_mask: (Q, N) bool, the entities of the questions.
        target_mask: (Q, N) bool, the entities of the supporting documents.
        document_mask: (Q, D) bool, the supporting documents.
    """

    graph: Data
    entity_to_document: Tensor
    question_embeddings: Tensor
    start_mask: Tensor
    target_mask: Tensor
    document_mask: Tensor

    @classmethod
    def from_index(cls, index: KGIndex, items: Iterable[Mapping[str, Any]], encoder: Encoder) -> Self:
        """From what `prepare_questions` gives; questions without start, target or document are skipped and counted.

        Raises:
            ValueError: no question is left.
        """
        documents = {title: number for number, title in enumerate(index.documents)}
        texts, starts, targets, golds, skipped = [], [], [], [], 0
        for item in items:
            start = [index.entity_ids[name] for name in item["question_entities"] if name in index.entity_ids]
            target = [index.entity_ids[name] for name in item["supporting_entities"] if name in index.entity_ids]
            gold = [documents[title] for title in item["supporting_facts"] if title in documents]
            if start and target and gold:
                texts.append(str(item["question"]))
                starts.append(start)
                targets.append(target)
                golds.append(gold)
            else:
                skipped += 1
        if skipped:
            log.warning("skipped %d questions without a start entity, a supporting entity or a document", skipped)
        if not texts:
            raise ValueError(f"none of {skipped} questions has a start entity, a supporting entity and a document")
        entities = len(index.entities)
        return cls(
            index.graph(encoder),
            index.entity_to_document,
            encode(encoder, texts),
            _mask(starts, entities),
            _mask(targets, entities),
            _mask(golds, len(documents)),
        )

    def __len__(self) -> int:
        return len(self.question_embeddings)

    def entity_weight(self) -> Tensor:
        """(N,) inverse document frequencies."""
        return inverse_frequency(self.entity_to_document)

    def to(self, device: torch.device) -> QuestionGraph:
        """The graph and its matrix on a device; questions stay where they are until they are batched."""
        return dataclasses.replace(
            self,
            graph=self.graph.clone("num_nodes").to(str(device)),
            entity_to_document=self.entity_to_document.to(device),
        )


def _mask(rows: Sequence[Sequence[int]], size: int) -> Tensor:
    mask = torch.zeros(len(rows), size, dtype=torch.bool)
    for row, columns in zip(mask, rows, strict=True):
        row[list(columns)] = True
    return mask


@dataclasses.dataclass(frozen=True)
class TripleGraph:
    """A graph with inverse edges, and the triples (n, 3) of it to train or to test on.

    Args:
        graph: the edges that the network sees.
        triples: head, tail, relation.
        known: all true edges, for filtering; None = those of `graph`.
    """

    graph: Data
    triples: Tensor
    known: Data | None = None

    @classmethod
    def of(cls, graph: Data) -> Self:
        """All direct edges of a graph as its triples."""
        direct = graph.edge_type < int(graph.num_relations) // 2
        return cls(graph, torch.stack([*graph.edge_index[:, direct], graph.edge_type[direct]], dim=1))

    def __len__(self) -> int:
        return len(self.triples)

    def to(self, device: torch.device) -> TripleGraph:
        """On a device."""
        move = lambda graph: None if graph is None else graph.clone("num_nodes").to(str(device))
        return TripleGraph(move(self.graph), self.triples.to(device), move(self.known))


TrainingGraph = QuestionGraph | TripleGraph


class GraphPool:
    """Graphs by number, loaded when they are asked for; those asked for last are kept.

    Args:
        sources: graphs, or functions that load one.
        sizes: number of rows of each, known without loading; None asks each graph once.
        in_memory: graphs kept at a time, on the device.
    """

    def __init__(
        self,
        sources: Sequence[TrainingGraph | Callable[[], TrainingGraph]],
        sizes: Sequence[int] | None = None,
        in_memory: int = 1,
    ) -> None:
        if not sources:
            raise ValueError("there is no graph to train on")
        if in_memory < 1:
            raise ValueError(f"at least 1 graph must be in memory at a time, got {in_memory}")
        self._sources, self._device, self._in_memory = list(sources), torch.device("cpu"), in_memory
        self._held: dict[int, TrainingGraph] = {}  # the one asked for last comes last
        self.sizes = [len(self.get(number)) for number in range(len(sources))] if sizes is None else list(sizes)

    def to(self, device: torch.device) -> GraphPool:
        """Gives graphs on that device from now on."""
        if device != self._device:
            self._device, self._held = device, {}
        return self

    def get(self, number: int) -> Any:
        """A graph."""
        found = self._held.pop(number, None)
        if found is None:
            while len(self._held) >= self._in_memory:  # before the next one is loaded
                del self._held[next(iter(self._held))]
            source = self._sources[number]
            graph = source() if callable(source) else source
            found = graph if self._device.type == "cpu" else graph.to(self._device)
        self._held[number] = found
        return found


@dataclasses.dataclass(frozen=True)
class GraphBatch:
    """Rows of one graph.

    Args:
        graph: its number.
        rows: (n,) of its questions or triples.
        seed: of what is drawn for this batch.
    """

    graph: int
    rows: Tensor
    seed: int


class GraphBatches(Dataset[GraphBatch]):
    """All batches of an epoch, each of one graph: graphs are shuffled, and the rows of each.

    Args:
        sizes: rows of each graph.
        batch_size: rows of a batch at most.
        seed: of the shuffles, with the epoch.
    """

    def __init__(self, sizes: Sequence[int], batch_size: int, seed: int = 0) -> None:
        self.sizes, self.batch_size, self.seed = list(sizes), batch_size, seed
        self.set_epoch(0)

    def set_epoch(self, epoch: int) -> None:
        """Shuffles anew; the same epoch gives the same batches."""
        generator = torch.Generator().manual_seed(self.seed * 1_000_003 + epoch)
        self._batches: list[GraphBatch] = []
        for graph in torch.randperm(len(self.sizes), generator=generator).tolist():
            order = torch.randperm(self.sizes[graph], generator=generator)
            for rows in order.split(self.batch_size):
                seed = int(torch.randint(2**31, (), generator=generator))
                self._batches.append(GraphBatch(graph, rows, seed))

    def __len__(self) -> int:
        return len(self._batches)

    def __getitem__(self, number: int) -> GraphBatch:
        return self._batches[number]
