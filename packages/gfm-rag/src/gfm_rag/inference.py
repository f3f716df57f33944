"""Passes without gradients: what questions change, against a background that they share (ours; exact).

A layer carries news one hop, and H^0 is 0 but at a question's start nodes. So after l layers a question has reached
only the nodes A_l within l hops of them. All others are in the state of the background, the same network with H^0 = 0,
which knows no question. A batch that is too large for one pass goes question by question; its first layers then cost
the background once, and A_l for each question, until A_l is more than half of the graph. From there on all rows
are new.

Rows are made block by block, so that a layer needs no memory but for its new states, and these alternate between two
buffers, as fresh pages of memory cost time, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, cast

import torch
from torch import Tensor

from gfm_rag.grouped_edges import GroupedEdges
from gfm_rag.network import EntityNetwork, Propagation, RelationalLayer, Start
from gfm_rag.relational_product import edges_per_block

# Bytes of a layer's states up to which the questions of a batch are treated together: on a CPU they then stay near its
# caches, and a GPU has enough to do at a time.
STATES_BUDGET_CPU = 32 << 20
STATES_BUDGET_GPU = 1 << 30


class States(NamedTuple):
    """States of all nodes, many of which may be one and the same row.

    Args:
        table: (rows, batch, d).
        row_of: (N,) each node's row of the table; None = the rows are the nodes.
    """

    table: Tensor
    row_of: Tensor | None = None

    @classmethod
    def alike(cls, row: Tensor, num_nodes: int) -> States:
        """All nodes in one state (1, batch, d)."""
        return cls(row, torch.zeros(num_nodes, dtype=torch.long, device=row.device))

    def dense(self) -> Tensor:
        """(N, batch, d)."""
        return self.table if self.row_of is None else self.table[self.row_of]


def states_by_question(
    network: EntityNetwork,
    edges: GroupedEdges,
    relations: Tensor,
    mask: Tensor,
    queries: Tensor,
    edge_chunk_size: int | None = None,
) -> Iterator[tuple[slice, list[Tensor]]]:
    """The states that the head reads, for the whole batch if it is small, else for one question after the other.

    Args:
        network: the layers.
        edges: of the graph.
        relations: (2R, d) relation vectors before the layers' MLPs.
        mask: (batch, N) factors of the queries in H^0.
        queries: (batch, d).
        edge_chunk_size: messages of that many edges at a time; None = from a memory budget.

    Yields:
        Which questions, and their states (N, questions, d): of the last layer, with `concat_hidden` of each one. They
        are good until the next ones are asked for.
    """
    budget = STATES_BUDGET_CPU if queries.device.type == "cpu" else STATES_BUDGET_GPU
    together = mask.numel() * queries.shape[1] * queries.element_size() <= budget
    size = max(1, len(queries)) if together else 1
    parts = [slice(first, first + size) for first in range(0, max(1, len(queries)), size)]
    layers = _Layers(network, edges, relations, edge_chunk_size, keep=len(parts) > 1)
    # alone, a question gains from the background only where that is a single row
    depth = len(network.layers) if len(parts) > 1 else 1
    reaches = [reach(edges, mask[part].ne(0).any(0).nonzero().flatten(), depth) for part in parts]
    background = _Background(layers, queries.new_zeros(1, 1, queries.shape[1]), [len(reached) for reached in reaches])
    for part, reached in zip(parts, reaches, strict=True):
        yield part, _run(layers, background, Start.at(mask[part], queries[part]), reached)
        background.restore()


def score_all(network: EntityNetwork, states: list[Tensor], queries: Tensor) -> Tensor:
    """Logits (N, batch) of all nodes from the states that the head reads, (N, batch, d) each, block by block."""
    number = len(states[0])
    blocks = ((at, network.score([state[at] for state in states], queries)) for at in _slices(number, states[0]))
    return _joined(blocks, number)


def _slices(number: int, table: Tensor) -> Iterator[slice]:
    """Cuts that many rows, each as wide as those of a table, into blocks; at least one, be it empty."""
    size = edges_per_block(table, None)
    return (slice(first, min(first + size, number)) for first in range(0, max(1, number), size))


def _joined(blocks: Iterator[tuple[slice, Tensor]], number: int, spare: Tensor | None = None) -> Tensor:
    """All rows from blocks of them, in `spare` if that fits; a list of blocks would scatter memory."""
    at, block = next(blocks)
    shape = (number, *block.shape[1:])
    if block.shape == shape:
        return block
    fits = spare is not None and spare.shape == shape and spare.dtype == block.dtype
    out = spare if spare is not None and fits else block.new_empty(shape)
    out[at] = block
    for at, block in blocks:
        out[at] = block
    return out


def reach(edges: GroupedEdges, nodes: Tensor, layers: int) -> list[Tensor]:
    """A_1, A_2, .. of start nodes (n,): as many as there are layers, or as are at most half of the graph."""
    found: list[Tensor] = []
    while len(found) < layers and 2 * len(nodes) <= edges.num_nodes:
        nodes = edges.reached_from(nodes)
        if 2 * len(nodes) <= edges.num_nodes:
            found.append(nodes)
    return found


class _Layers:
    """The layers of one pass, applied to any rows.

    Args:
        network: as in `states_by_question`, and so the next three.
        edges: of the graph.
        relations: (2R, d).
        edge_chunk_size: or None.
        keep: whether the relation vectors of all layers will be needed again.
    """

    def __init__(
        self, network: EntityNetwork, edges: GroupedEdges, relations: Tensor, edge_chunk_size: int | None, keep: bool
    ) -> None:
        self.network, self.edges, self.relations = network, edges, relations
        self.chunk, self.keep = edge_chunk_size, keep
        self._vectors: dict[int, Tensor] = {}
        self._buffers: dict[int, Tensor] = {}

    def all_rows(self, index: int, states: States, start: Start) -> Tensor:
        """New states (N, batch, d) of all nodes, in memory that the layer after the next one will overwrite."""
        key = index if self.network.config.concat_hidden else index % 2
        self._buffers[key] = self.rows(index, states, start, spare=self._buffers.get(key))
        return self._buffers[key]

    def rows(
        self, index: int, states: States, start: Start, nodes: Tensor | None = None, spare: Tensor | None = None
    ) -> Tensor:
        """New states (n, batch, d) of some nodes (n,), in increasing order, or of all; in `spare` if that fits."""
        number = self.edges.num_nodes if nodes is None else len(nodes)
        return _joined(self._blocks(index, states, start, nodes), number, spare)

    def _blocks(self, index: int, states: States, start: Start, nodes: Tensor | None) -> Iterator[tuple[slice, Tensor]]:
        """Which rows, and their new states, for `rows`."""
        arrivals, own = self.edges.by_receiver, nodes
        if nodes is not None:
            arrivals = arrivals.of(nodes)
        if states.row_of is not None:
            arrivals = arrivals._replace(senders=states.row_of[arrivals.senders])
            own = states.row_of if nodes is None else states.row_of[nodes]
        number = self.edges.num_nodes if nodes is None else len(nodes)
        nodes = torch.arange(number, device=arrivals.senders.device) if nodes is None else nodes
        vectors = self._relation_vectors(index)
        for at in _slices(number, states.table):
            edges = self.edges.part(arrivals.between(at.start, at.stop))
            shared = Propagation(edges, start.among(nodes[at]), self.relations, edge_chunk_size=self.chunk)
            rows = at if own is None else own[at]  # a slice copies nothing
            yield at, self._layer(index).update(states.table, vectors, shared, own=rows)

    def _layer(self, index: int) -> RelationalLayer:
        return cast(RelationalLayer, self.network.layers[index])

    def _relation_vectors(self, index: int) -> Tensor:
        if index not in self._vectors:
            if not self.keep:
                self._vectors.clear()
            self._vectors[index] = self._layer(index).relation_projection(self.relations)
        return self._vectors[index]


class _Background:
    """The states of the nodes that no question has reached, layer by layer, with H^0 = 0 first.

    Args:
        layers: of the pass.
        zero: the state (1, 1, d) before the first layer.
        small: for how many layers each question reaches at most half of the graph. A layer is worth its background if
            that is a single row or at least two questions share it.
    """

    def __init__(self, layers: _Layers, zero: Tensor, small: list[int]) -> None:
        config, num_nodes = layers.network.config, layers.edges.num_nodes
        self.states = [States.alike(zero, num_nodes)]
        self._lent: list[tuple[Tensor, Tensor, Tensor]] = []
        nothing = Start(torch.zeros(0, dtype=torch.long, device=zero.device), zero[:0], num_nodes)
        # a message from 0 is 0, and no aggregation but "pna" tells many of them from one
        if max(small) > 0 and config.message != "transe" and config.aggregate != "pna":
            row = layers.rows(0, self.states[0], nothing, nodes=nothing.nodes.new_zeros(1))
            self.states.append(States.alike(row, num_nodes))
        for index in range(len(self.states) - 1, sorted(small)[-2] if len(small) > 1 else 0):
            self.states.append(States(layers.rows(index, self.states[index], nothing)))

    def but(self, index: int, nodes: Tensor, values: Tensor) -> States:
        """H^index with other states (n, batch, d) at some nodes (n,), until `restore` is called."""
        table, row_of = self.states[index]
        if row_of is not None:
            rows = torch.arange(1, len(nodes) + 1, device=nodes.device)
            table = torch.cat([table.expand(1, *values.shape[1:]), values])
            return States(table, row_of.index_copy(0, nodes, rows))
        self._lent.append((table, nodes, table[nodes]))
        table.index_copy_(0, nodes, values)
        return self.states[index]

    def restore(self) -> None:
        """Takes the rows of a question out again."""
        for table, nodes, values in self._lent:
            table.index_copy_(0, nodes, values)
        self._lent.clear()


def _run(layers: _Layers, background: _Background, start: Start, reached: list[Tensor]) -> list[Tensor]:
    """The states that the head reads, of the questions that start there."""
    small = min(len(reached), len(background.states) - 1)
    states = background.but(0, start.nodes, start.values)
    read: list[States] = []
    for index in range(len(layers.network.layers)):
        if index < small:
            rows = layers.rows(index, states, start, reached[index])
            states = background.but(index + 1, reached[index], rows)
        else:
            states = States(layers.all_rows(index, states, start))
        read = [*read, states] if layers.network.config.concat_hidden else [states]
    return [state.dense() for state in read]
