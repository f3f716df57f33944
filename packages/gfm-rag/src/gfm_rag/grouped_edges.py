"""Edges sorted by what is summed over (receiver, sender or relation), once per graph and kept while it lives."""

from __future__ import annotations

import dataclasses
import weakref
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

if TYPE_CHECKING:
    from torch_geometric.data import Data


class Grouping(NamedTuple):
    """Edges in the order of one of their ids.

    Args:
        order: (E,) positions of the sorted edges in the graph's edge list.
        keys: (E,) the sorted ids, on the CPU.
        pointers: (K + 1,) where the edges of each id begin.
        receivers: (E,) of the sorted edges.
        senders: (E,) of the sorted edges.
        relations: (E,) of the sorted edges.
    """

    order: Tensor
    keys: Tensor
    pointers: Tensor
    receivers: Tensor
    senders: Tensor
    relations: Tensor

    def between(self, first: int, last: int) -> Grouping:
        """The edges of the ids from `first` up to `last`, which are numbered from 0; views wherever it can be."""
        begin, end = int(self.pointers[first]), int(self.pointers[last])
        part = Grouping(*(field[begin:end] for field in self))
        return part._replace(keys=part.keys - first, pointers=self.pointers[first : last + 1] - begin)

    def of(self, ids: Tensor) -> Grouping:
        """The edges of some ids (n,), which are numbered as they stand there; costs what these edges do."""
        begins = self.pointers[ids]
        counts = self.pointers[ids + 1] - begins
        pointers = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
        keys = torch.arange(len(ids), device=ids.device).repeat_interleave(counts)
        at = torch.arange(len(keys), device=ids.device) + (begins - pointers[:-1])[keys]
        rest = self.receivers[at], self.senders[at], self.relations[at]
        return Grouping(self.order[at], keys.cpu(), pointers, *rest)


@dataclasses.dataclass(frozen=True)
class GroupedEdges:
    """The edges of a graph and their groupings; each grouping is made when it is first needed.

    Args:
        receivers: (E,) edge_index[0]: the node at which a message arrives. The released weights want this direction.
        senders: (E,) edge_index[1]: the node that a message comes from.
        relations: (E,) edge_type.
        num_nodes: number of nodes N.
        num_relations: number of relations, inverse ones included.
        arrivals: the grouping by receiver, where it is known already.
        whole: the edges that these are a part of, see `part`.
    """

    receivers: Tensor
    senders: Tensor
    relations: Tensor
    num_nodes: int
    num_relations: int
    arrivals: Grouping | None = None
    whole: GroupedEdges | None = None

    def __len__(self) -> int:
        return self.receivers.numel()

    @cached_property
    def by_receiver(self) -> Grouping:
        """Grouped for the sums at the nodes."""
        return self.arrivals if self.arrivals is not None else self._group(self.receivers, self.num_nodes)

    @cached_property
    def by_sender(self) -> Grouping:
        """Grouped for the gradients of the nodes' states."""
        return self._group(self.senders, self.num_nodes)

    @cached_property
    def by_relation(self) -> Grouping:
        """Grouped for the gradients of the relation vectors."""
        return self._group(self.relations, self.num_relations)

    @cached_property
    def in_degree(self) -> Tensor:
        """(N,) number of messages that arrive at each node."""
        return self.by_receiver.pointers.diff()

    @cached_property
    def mean_log_degree(self) -> float:
        """Mean of log(in-degree + 1) over all nodes of the graph, also for a part of it."""
        if self.whole is not None:
            return self.whole.mean_log_degree
        return (self.in_degree.cpu() + 1).double().log().mean().item()

    def part(self, arrivals: Grouping) -> GroupedEdges:
        """The edges that arrive at some nodes, `arrivals` being their grouping by receiver.

        As receivers these nodes are numbered from 0, and `num_nodes` is their number; senders are whatever rows
        `arrivals` names. Such edges serve passes without gradients.
        """
        receivers = arrivals.keys.to(arrivals.senders.device)
        ends = receivers, arrivals.senders, arrivals.relations
        nodes, whole = len(arrivals.pointers) - 1, self if self.whole is None else self.whole
        return GroupedEdges(*ends, nodes, self.num_relations, arrivals._replace(receivers=receivers), whole)

    def reached_from(self, nodes: Tensor) -> Tensor:
        """Some nodes (n,) and those that receive a message from one of them, in increasing order."""
        reached = torch.zeros(self.num_nodes, dtype=torch.bool, device=nodes.device)
        reached[nodes] = True
        reached[self.by_sender.of(nodes).receivers] = True
        return reached.nonzero().flatten()

    def sent_by(self, nodes: Tensor) -> tuple[GroupedEdges, Tensor]:
        """The edges that leave some nodes (n,), and their positions in the edge list."""
        chosen = torch.zeros(self.num_nodes, dtype=torch.bool, device=nodes.device)
        chosen[nodes] = True
        kept = chosen[self.senders].nonzero().flatten()
        part = (self.receivers[kept], self.senders[kept], self.relations[kept])
        return GroupedEdges(*part, self.num_nodes, self.num_relations), kept

    def _group(self, ids: Tensor, num_ids: int) -> Grouping:
        """Sorts the edges by `ids` (E,), all below `num_ids`; edges of one id keep their order."""
        keys, order = torch.sort(ids, stable=True)
        counts = torch.bincount(ids, minlength=num_ids)
        pointers = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
        return Grouping(order, keys.cpu(), pointers, self.receivers[order], self.senders[order], self.relations[order])


# edge_index -> (edge_type, what both looked like, the groups); an entry goes when its edge_index does
_CACHE: dict[int, tuple[weakref.ref[Tensor], weakref.ref[Tensor], tuple[int, ...], GroupedEdges]] = {}


def grouped_edges(graph: Data) -> GroupedEdges:
    """The grouped edges of a graph, made once for the same edge tensors.

    Args:
        graph: with `edge_index` (2, E), `edge_type` (E,), `num_nodes` and `num_relations`; it is not changed.

    Raises:
        ValueError: an edge that names a node or a relation which the graph does not have.
    """
    edge_index, edge_type = graph.edge_index, graph.edge_type
    num_nodes, num_relations = int(graph.num_nodes), int(graph.num_relations)
    if edge_index.is_inference() or edge_type.is_inference():  # changes in place could not be noticed
        return _group_edges(edge_index, edge_type, num_nodes, num_relations)
    state = (edge_index._version, edge_type._version, num_nodes, num_relations)
    found = _CACHE.get(id(edge_index))
    if found is not None and found[0]() is edge_index and found[1]() is edge_type and found[2] == state:
        return found[3]
    edges = _group_edges(edge_index, edge_type, num_nodes, num_relations)
    key = id(edge_index)
    _CACHE[key] = (weakref.ref(edge_index, lambda _: _CACHE.pop(key, None)), weakref.ref(edge_type), state, edges)
    return edges


def _group_edges(edge_index: Tensor, edge_type: Tensor, num_nodes: int, num_relations: int) -> GroupedEdges:
    if edge_index.shape != (2, edge_type.numel()):
        raise ValueError(
            f"edge_index must be (2, E) with E = {edge_type.numel()} edge types, got {tuple(edge_index.shape)}"
        )
    for name, ids, size in (("edge_index", edge_index, num_nodes), ("edge_type", edge_type, num_relations)):
        if ids.numel() and (int(ids.min()) < 0 or int(ids.max()) >= size):
            raise ValueError(f"{name} must hold ids from 0 to {size - 1}, got {int(ids.min())} to {int(ids.max())}")
    # copies: rows of edge_index would be views that keep it, and its entry in the cache, alive
    return GroupedEdges(edge_index[0].clone(), edge_index[1].clone(), edge_type.clone(), num_nodes, num_relations)
