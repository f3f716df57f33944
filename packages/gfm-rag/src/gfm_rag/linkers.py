"""Entity linkers: names to the graph's entities, by sentence embeddings or by character trigrams."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol, TypedDict

import torch
from torch import Tensor

from gfm_rag.encoders import Encoder, encode
from gfm_rag.incidence import incidence

_CELLS = 1 << 22  # similarities of queries and entities held at a time


class Neighbour(TypedDict):
    """An entity near a query; `norm_score` is its score by the best score of that query."""

    entity: str
    score: float
    norm_score: float


class Linker(Protocol):
    """Finds the entities nearest to names: `index` the entities once, then call."""

    def index(self, names: Sequence[str]) -> None:
        """Takes the entities among which to look."""
        ...

    def __call__(self, queries: Iterable[str], top_k: int = 1) -> dict[str, list[Neighbour]]:
        """The nearest entities of each query, best first."""
        ...


def _nearest(
    names: Sequence[str] | None, queries: Iterable[str], top_k: int, score: Callable[[list[str]], Tensor]
) -> dict[str, list[Neighbour]]:
    """The `top_k` best names of each query; `score` gives (queries, names) similarities of a block of queries."""
    if names is None:
        raise ValueError("the linker has no entities yet: call index(names) first")
    if top_k < 1:
        raise ValueError(f"top_k must be at least 1 neighbour, got {top_k}")
    wanted = list(dict.fromkeys(queries))
    if not names:
        return {query: [] for query in wanted}
    found: dict[str, list[Neighbour]] = {}
    size = max(1, _CELLS // len(names))
    for start in range(0, len(wanted), size):
        block = wanted[start : start + size]
        found.update(zip(block, _neighbours(names, score(block), top_k), strict=True))
    return found


def _largest(scores: Tensor, top: int) -> tuple[Tensor, Tensor]:
    """The `top` largest of each row and their columns, in descending order; of equal ones the first comes first."""
    if top >= scores.shape[1]:
        kept, columns = scores.sort(dim=1, descending=True, stable=True)
        return kept, columns
    values, columns = scores.topk(top + 1, dim=1)
    columns = columns[:, :top].sort(dim=1).values
    for row in (values[:, -1] == values[:, -2]).nonzero().flatten().tolist():
        # a tie at the border goes to the first ones: everything above the k-th value, then the first equal ones
        above, equal = ((scores[row] > values[row, -1]).nonzero(), (scores[row] == values[row, -1]).nonzero())
        columns[row] = torch.cat([above, equal[: top - len(above)]]).flatten().sort().values
    kept, order = scores.gather(1, columns).sort(dim=1, descending=True, stable=True)
    return kept, columns.gather(1, order)


def _neighbours(names: Sequence[str], scores: Tensor, top_k: int) -> list[list[Neighbour]]:
    """The best of each row of scores (queries, entities); of equal scores the first indexed comes first."""
    kept, columns = _largest(scores, min(top_k, scores.shape[1]))
    rows = []
    for entities, values_of_row in zip(columns.tolist(), kept.tolist(), strict=True):
        best = values_of_row[0] if values_of_row else 0.0
        rows.append(
            [
                Neighbour(entity=names[entity], score=value, norm_score=value / best if best > 0 else 0.0)
                for entity, value in zip(entities, values_of_row, strict=True)
            ]
        )
    return rows


class EmbeddingLinker:
    """Cosine similarity of sentence embeddings; an exact match is always the best.

    Args:
        encoder: of the names. The vectors of names are kept, so that indexing a grown graph encodes only what is new.
    """

    def __init__(self, encoder: Encoder) -> None:
        self.encoder = encoder
        self._vectors: dict[str, Tensor] = {}
        self._names: list[str] | None = None
        self._position: dict[str, int] = {}
        self._matrix = torch.empty(0, 0)

    def index(self, names: Sequence[str]) -> None:
        """Takes the entities among which to look."""
        self._names = list(names)
        self._position = {name: row for row, name in reversed(list(enumerate(names)))}
        new = [name for name in dict.fromkeys(names) if name not in self._vectors]
        if new:
            self._vectors.update(zip(new, self._encode(new), strict=True))
        self._matrix = torch.stack([self._vectors[name] for name in names]) if names else torch.empty(0, 0)

    def __call__(self, queries: Iterable[str], top_k: int = 1) -> dict[str, list[Neighbour]]:
        """The `top_k` nearest entities of each query, best first.

        Raises:
            ValueError: no entities were indexed, or a `top_k` below 1.
        """
        return _nearest(self._names, queries, top_k, self._scores)

    def _scores(self, queries: list[str]) -> Tensor:
        known = [self._vectors.get(query) for query in queries]
        new = [query for query, vector in zip(queries, known, strict=True) if vector is None]
        fresh = iter(self._encode(new)) if new else iter(())
        vectors = torch.stack([next(fresh) if vector is None else vector for vector in known])
        scores = (vectors @ self._matrix.T).clamp(-1, 1 - 1e-6)  # below an exact match, whatever rounding makes
        for row, query in enumerate(queries):
            if query in self._position:
                scores[row, self._position[query]] = 1.0
        return scores

    def _encode(self, names: list[str]) -> Tensor:
        return torch.nn.functional.normalize(encode(self.encoder, names), dim=1)


class NgramLinker:
    """Jaccard similarity of character trigrams: needs no model, and is deterministic."""

    def __init__(self) -> None:
        self._names: list[str] | None = None
        self._columns: dict[str, int] = {}
        self._sizes = torch.empty(0)
        self._matrix = torch.empty(0, 0)

    def index(self, names: Sequence[str]) -> None:
        """Takes the entities among which to look."""
        self._names = list(names)
        grams = [_trigrams(name) for name in names]
        self._columns = {gram: i for i, gram in enumerate(dict.fromkeys(gram for row in grams for gram in sorted(row)))}
        self._sizes = torch.tensor([float(len(row)) for row in grams])
        self._matrix = self._incidence(grams).t().coalesce()

    def _incidence(self, grams: list[set[str]]) -> Tensor:
        """(trigrams, names) sparse 0/1 matrix."""
        pairs = [
            (self._columns[gram], row) for row, found in enumerate(grams) for gram in found if gram in self._columns
        ]
        return incidence(pairs, (len(self._columns), len(grams)))

    def __call__(self, queries: Iterable[str], top_k: int = 1) -> dict[str, list[Neighbour]]:
        """The `top_k` nearest entities of each query, best first.

        Raises:
            ValueError: no entities were indexed, or a `top_k` below 1.
        """
        return _nearest(self._names, queries, top_k, self._scores)

    def _scores(self, queries: list[str]) -> Tensor:
        grams = [_trigrams(query) for query in queries]
        shared = torch.sparse.mm(self._matrix, self._incidence(grams).to_dense()).T.contiguous()
        sizes = torch.tensor([float(len(row)) for row in grams])[:, None] + self._sizes
        return torch.where(sizes > shared, shared / (sizes - shared), 0.0)


def _trigrams(text: str) -> set[str]:
    padded = f"  {text} "
    return {padded[i : i + 3] for i in range(len(padded) - 2)} if text else set()
