"""Batches of knowledge-graph completion, the pre-training task (section 3.2 of the paper; steps as in ULTRA's code).

A triple tensor has the columns head, tail, relation; a batch (B, 1 + K, 3) has the true triple in column 0 and K
corrupted ones behind it, of which either all tails or all heads differ.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from torch_geometric.data import Data


def remove_easy_edges(graph: Data, batch: Tensor, remove_one_hop: bool = False) -> Data:
    """A graph without the edges that would give the answer away: (h, t, r) and (t, h, r + R) of all triples given.

    Args:
        graph: with inverse edges.
        batch: (..., 3) triples, true and corrupted ones.
        remove_one_hop: delete every edge between those pairs, whatever its relation.

    Returns:
        A new graph with the other edges in their order; the given one stays as it is.

    Raises:
        ValueError: ids too large to be told apart in 63 bits, or triples that are none of this graph.
    """
    _check_triples(graph, batch)
    head, tail, relation = batch.reshape(-1, 3).unbind(1)
    inverse = relation + int(graph.num_relations) // 2
    easy = [torch.cat([head, tail]), torch.cat([tail, head])]
    present = [graph.edge_index[0], graph.edge_index[1]]
    sizes = [int(graph.num_nodes)] * 2
    if not remove_one_hop:
        easy.append(torch.cat([relation, inverse]))
        present.append(graph.edge_type)
        sizes.append(max(int(graph.num_relations), int(inverse.max()) + 1 if len(inverse) else 0))
    keep = ~torch.isin(_key(present, sizes), _key(easy, sizes))
    pruned = graph.clone("num_nodes")  # a shallow copy
    pruned.edge_index, pruned.edge_type = graph.edge_index[:, keep], graph.edge_type[keep]
    return pruned


def _check_triples(graph: Data, triples: Tensor) -> None:
    """ValueError unless the last dimension holds ids of head, tail and relation."""
    if triples.shape[-1:] != (3,) or triples.is_floating_point():
        raise ValueError(f"triples must be whole numbers (..., 3), got {triples.dtype} {tuple(triples.shape)}")
    limits = torch.tensor([int(graph.num_nodes)] * 2 + [int(graph.num_relations)], device=triples.device)
    wrong = ((triples < 0) | (triples >= limits)).any(-1)
    if bool(wrong.any()):
        raise ValueError(
            f"triple (head, tail, relation) = {tuple(triples[wrong][0].tolist())} is none of a graph of "
            f"{int(graph.num_nodes)} entities and {int(graph.num_relations)} relations"
        )


def _key(columns: list[Tensor], sizes: list[int]) -> Tensor:
    """One number for each row of ids below `sizes`."""
    product = 1
    for size in sizes:
        product *= size
    if product >= 2**63:
        raise ValueError(f"ids below {' x '.join(map(str, sizes))} = {product} do not fit into 63 bits")
    key = torch.zeros_like(columns[0])
    for column, size in zip(columns, sizes, strict=True):
        key = key * size + column
    return key


def to_tail_mode(batch: Tensor, num_direct_relations: int) -> Tensor:
    """Turns triples with corrupted heads around, (h, t, r) into (t, h, r + R), so that all rows ask for tails.

    Args:
        batch: (B, 1 + K, 3).
        num_direct_relations: R.

    Returns:
        (B, 1 + K, 3), each row with one head and one relation.

    Raises:
        ValueError: a row in which heads and tails differ, or relations.
    """
    head, tail, relation = batch.unbind(-1)
    same_head = (head == head[:, :1]).all(1, keepdim=True)
    same_tail = (tail == tail[:, :1]).all(1, keepdim=True)
    if not bool((same_head | same_tail).all()) or not bool((relation == relation[:, :1]).all()):
        raise ValueError("the triples of a batch's row must share their relation, and their head or their tail")
    return torch.stack(
        [
            torch.where(same_head, head, tail),
            torch.where(same_head, tail, head),
            torch.where(same_head, relation, relation + num_direct_relations),
        ],
        dim=-1,
    )


def strict_candidates(graph: Data, triples: Tensor) -> tuple[Tensor, Tensor]:
    """Entities that make a triple false: those that are no known tail of (h, r), and no known head of (t, r).

    Args:
        graph: all known edges, with inverse ones.
        triples: (B, 3).

    Returns:
        Masks (B, N) of tails and of heads; the triples' own are not among them.

    Raises:
        ValueError: triples that are none of this graph.
    """
    _check_triples(graph, triples)
    if triples.dim() != 2:
        raise ValueError(f"triples must be (B, 3), got {tuple(triples.shape)}")
    senders, receivers = graph.edge_index
    tails = torch.ones(len(triples), int(graph.num_nodes), dtype=torch.bool, device=triples.device)
    heads = tails.clone()
    for row, (head, tail, relation) in enumerate(triples.tolist()):
        same = graph.edge_type == relation
        tails[row, receivers[same & (senders == head)]] = False
        heads[row, senders[same & (receivers == tail)]] = False
        tails[row, tail] = heads[row, head] = False
    return tails, heads


def sample_negatives(
    graph: Data, triples: Tensor, num_negatives: int, strict: bool = True, generator: torch.Generator | None = None
) -> Tensor:
    """Corrupts the tails of the first floor(B / 2) triples and the heads of the others, with replacement.

    Args:
        graph: all known edges, with inverse ones.
        triples: (B, 3).
        num_negatives: K.
        strict: never draw a triple that is known.
        generator: of random numbers, on the CPU.

    Returns:
        (B, 1 + K, 3), the given triples in column 0.

    Raises:
        ValueError: a triple for which every entity is a known answer, or fewer than one negative.
    """
    if num_negatives < 1:
        raise ValueError(f"num_negatives must be at least 1, got {num_negatives}")
    tails, heads = strict_candidates(graph, triples)
    batch = triples.unsqueeze(1).repeat(1, 1 + num_negatives, 1)
    for row, triple in enumerate(triples.tolist()):
        column, mask = (1, tails[row]) if row < len(triples) // 2 else (0, heads[row])
        candidates = mask.nonzero().flatten() if strict else torch.arange(len(mask), device=mask.device)
        if not len(candidates):
            what = "tail" if column else "head"
            raise ValueError(f"triple (head, tail, relation) = {tuple(triple)}: no entity is left as a false {what}")
        drawn = torch.randint(len(candidates), (num_negatives,), generator=generator)
        batch[row, 1:, column] = candidates[drawn.to(candidates.device)]
    return batch
