"""Path explanation: the walks from question entities to a target that its score owes most to (Eq. 17 to 19)."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from gfm_rag.grouped_edges import GroupedEdges


class PathStep(NamedTuple):
    """One hop along the message flow, in ids; a relation of at least R is the inverse of relation - R.

    Args:
        source: the sending node, edge_index[1].
        relation: edge_type.
        target: the receiving node, edge_index[0].
    """

    source: int
    relation: int
    target: int


class Path(NamedTuple):
    """A walk and its importance, the mean of the importances of its hops.

    Args:
        weight: the importance.
        steps: the hops in order.
    """

    weight: float
    steps: tuple[PathStep, ...]


def chained_importance(importance: Tensor) -> Tensor:
    """(L, E) sums of each layer and all later ones: the official code chains its copies of the edge weights."""
    return importance.flip(0).cumsum(0).flip(0)


def best_paths(edges: GroupedEdges, importance: Tensor, starts: list[int], target: int, k: int) -> list[Path]:
    """The k walks of highest importance, exactly.

    For a fixed number of hops the best walks are those of the largest sum, so the k best walks into each node after
    each layer are all that can become one of the k best to the target: the beam of the official code, with every node
    in it. Nodes that no walk has reached are at -infinity, so that every path is connected.

    Args:
        edges: of the graph.
        importance: (L, E) of each edge in each layer.
        starts: the nodes at which a walk may begin.
        target: where it must end; a walk never leaves it.
        k: how many.

    Returns:
        Best first.
    """
    sums = importance.new_full((edges.num_nodes, k), float("-inf"), dtype=torch.float64)
    sums[starts, 0] = 0.0
    before: list[Tensor] = []  # per layer (N, k): edge * k + rank of the walk that it continues
    found: list[tuple[float, int, int]] = []
    ahead = _reaching(edges, target, len(importance))
    for layer in range(len(importance)):
        sums[target] = float("-inf")
        active = sums[:, 0] > float("-inf")  # the best walk of a node comes first
        useful = (active[edges.senders] & ahead[-1 - layer][edges.receivers]).nonzero().flatten()
        extended = sums[edges.senders[useful]] + importance[layer, useful].double()[:, None]
        sums, position = _largest_per_receiver(extended, edges.receivers[useful], edges.num_nodes)
        row, before_rank = position.div(k, rounding_mode="floor"), position % k
        before.append(useful[row.clamp_min(0)] * k + before_rank if len(useful) else position)
        found += [(value / (layer + 1), layer, rank) for rank, value in enumerate(sums[target].tolist())]
    found = [entry for entry in found if entry[0] > float("-inf")]
    found.sort(key=lambda entry: -entry[0])
    return [Path(weight, _steps(edges, before, layer, target, rank, k)) for weight, layer, rank in found[:k]]


def _reaching(edges: GroupedEdges, target: int, hops: int) -> list[Tensor]:
    """Masks (N,) of the nodes that lie at most 0, 1, .. hops - 1 hops before the target."""
    mask = torch.zeros(edges.num_nodes, dtype=torch.bool, device=edges.senders.device)
    mask[target] = True
    masks = [mask]
    for _ in range(hops - 1):
        mask = mask.clone()
        mask[edges.senders[masks[-1][edges.receivers]]] = True
        masks.append(mask)
    return masks


def _largest_per_receiver(values: Tensor, receivers: Tensor, num_nodes: int) -> tuple[Tensor, Tensor]:
    """Of the (E, k) sums that arrive at each node the k largest, (N, k), and their positions in the flat input."""
    k = values.shape[1]
    reached = (values.flatten() > float("-inf")).nonzero().flatten()
    flat, at = values.flatten()[reached], receivers.repeat_interleave(k)[reached]
    order = torch.sort(flat, descending=True, stable=True).indices
    order = order[torch.sort(at[order], stable=True).indices]
    counts = torch.bincount(at, minlength=num_nodes)
    rank = torch.arange(len(order), device=order.device) - (counts.cumsum(0) - counts)[at[order]]
    order, rank = order[rank < k], rank[rank < k]
    sums = values.new_full((num_nodes, k), float("-inf"))
    came_from = torch.full((num_nodes, k), -1, dtype=torch.long, device=order.device)
    sums[at[order], rank] = flat[order]
    came_from[at[order], rank] = reached[order]
    return sums, came_from


def _steps(edges: GroupedEdges, before: list[Tensor], layer: int, node: int, rank: int, k: int) -> tuple[PathStep, ...]:
    """Follows a walk back from its end."""
    steps: list[PathStep] = []
    for came_from in before[layer::-1]:
        edge, rank = divmod(int(came_from[node, rank]), k)
        node = int(edges.senders[edge])
        steps.append(PathStep(node, int(edges.relations[edge]), int(edges.receivers[edge])))
    return tuple(reversed(steps))
