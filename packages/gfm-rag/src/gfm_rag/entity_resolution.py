"""Equivalent entities (section 3.1 of the paper): near names are joined by edges of the relation "equivalent"."""

from __future__ import annotations

from collections.abc import Sequence

from gfm_rag.linkers import Linker, Neighbour
from gfm_rag.phrases import Triple

EQUIVALENT = "equivalent"
_ASKED = 1024  # names asked for at a time: only their neighbours are held
_SHORTEST = 3  # letters and digits of a phrase that is compared at all [code]


def equivalent_edges(
    names: Sequence[str], linker: Linker, similarity_threshold: float = 0.8, max_sim_neighbors: int = 100
) -> list[Triple]:
    """Edges (name, "equivalent", neighbour) for neighbours whose score is near that of the best one, the name itself.

    Args:
        names: all entities.
        linker: is given them to index.
        similarity_threshold: smallest `norm_score`, the score by the best score of that name.
        max_sim_neighbors: how many neighbours are asked for; the walk over them stops after one edge more than that
            [code].
    """
    linker.index(names)
    asked = [name for name in names if sum(char.isalnum() for char in name) >= _SHORTEST]
    edges: list[Triple] = []
    for start in range(0, len(asked), _ASKED):
        for name, neighbours in linker(asked[start : start + _ASKED], top_k=max_sim_neighbors).items():
            edges += _edges_of(name, neighbours, similarity_threshold, max_sim_neighbors)
    return edges


def _edges_of(name: str, neighbours: Sequence[Neighbour], threshold: float, most: int) -> list[Triple]:
    edges: list[Triple] = []
    for neighbour in neighbours:
        if neighbour["norm_score"] < threshold or len(edges) > most:
            break
        if neighbour["entity"] not in (name, ""):
            edges.append((name, EQUIVALENT, neighbour["entity"]))
    return edges
