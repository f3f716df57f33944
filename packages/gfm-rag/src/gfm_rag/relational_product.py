"""The relational product: messages along all edges, summed (or their extremes taken) at the receivers.

    out[v] = sum over edges e with receiver v of w_e * m(x[sender of e], rho[relation of e])

The plain way holds all messages at once, (E, batch, d), several times over. Here edges are sorted by receiver once per
graph and messages live in blocks of a few MiB, which also stay in the processor's cache; backward makes them again
(section 3.11 of the method's notes; not in the paper, whose code compiles a kernel for this).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import embedding_bag

from gfm_rag.grouped_edges import GroupedEdges, Grouping
from gfm_rag.message import MESSAGES, MessageFunction

# Bytes of the message blocks at one time. On a CPU small enough to stay in the cache, on a GPU large enough to fill it.
MESSAGE_BUDGET_CPU = 4 << 20
MESSAGE_BUDGET_GPU = 256 << 20


def edges_per_block(states: Tensor, edge_chunk_size: int | None) -> int:
    """How many edges are treated at a time: what the user wants, else what fits the memory budget.

    Args:
        states: (N, batch, d).
        edge_chunk_size: a number of edges, or None.

    Raises:
        ValueError: a chunk size below 1.
    """
    if edge_chunk_size is not None:
        if edge_chunk_size < 1:
            raise ValueError(f"edge_chunk_size must be at least 1 edge, got {edge_chunk_size}")
        return edge_chunk_size
    budget = MESSAGE_BUDGET_CPU if states.device.type == "cpu" else MESSAGE_BUDGET_GPU
    width = max(1, states[0].numel()) if len(states) else 1  # a batch may be empty
    return max(1, budget // (2 * width * states.element_size()))  # two blocks: the messages and what they come from


def relational_sum(
    states: Tensor,
    relation_vectors: Tensor,
    edges: GroupedEdges,
    message: str = "distmult",
    edge_weight: Tensor | None = None,
    edge_chunk_size: int | None = None,
) -> Tensor:
    """Sums messages at the receivers; differentiable once in states, relation vectors and edge weights.

    Args:
        states: (N, batch, d).
        relation_vectors: (2R, d), shared by the batch.
        edges: the graph's edges.
        message: distmult, transe or rotate.
        edge_weight: (E,) factors of the messages in the graph's edge order; None = all 1.
        edge_chunk_size: edges at a time; None = from a memory budget. The result does not depend on it.

    Returns:
        (N, batch, d); for a part of a graph's edges a row for each of its receivers.
    """
    block = edges_per_block(states, edge_chunk_size)
    vectors = relation_vectors.to(states.dtype)
    out: Tensor = _RelationalSum.apply(states.contiguous(), vectors.contiguous(), edge_weight, edges, message, block)
    return out


def relational_max(
    states: Tensor,
    relation_vectors: Tensor,
    edges: GroupedEdges,
    message: str = "distmult",
    edge_weight: Tensor | None = None,
    edge_chunk_size: int | None = None,
    *,
    sign: int = 1,
) -> Tensor:
    """The largest message of each receiver (`sign=1`), or the negated smallest (`sign=-1`), element by element.

    Receivers without an edge get -infinity. Messages that tie share the gradient evenly. Arguments: `relational_sum`.

    Returns:
        (N, batch, d), as `relational_sum`.
    """
    block = edges_per_block(states, edge_chunk_size)
    vectors = relation_vectors.to(states.dtype)
    out: Tensor = _RelationalMax.apply(
        states.contiguous(), vectors.contiguous(), edge_weight, edges, message, block, sign
    )
    return out


class _Gather:
    """Rows of a table for a block of edges, copied into one reused buffer.

    Args:
        table: (rows, batch, d) or (rows, d).
        ids: (E,) row of each edge, in the order of the loop.
        size: the largest block.
    """

    def __init__(self, table: Tensor, ids: Tensor, size: int) -> None:
        self.table, self.ids = table, ids
        self.buffer = table.new_empty(min(size, len(ids)), *table.shape[1:])

    def __call__(self, start: int, stop: int) -> Tensor:
        buffer = self.buffer[: stop - start]
        block = torch.index_select(self.table, 0, self.ids[start:stop], out=buffer)
        return block if block.dim() == 3 else block.unsqueeze(1)


def _sum_segments(
    out: Tensor,
    grouping: Grouping,
    weight: Tensor | None,
    size: int,
    block_of: Callable[[int, int], Tensor],
) -> Tensor:
    """Adds blocks of rows to the rows of `out` that the grouping names.

    Args:
        out: (K, width), updated.
        grouping: of the E edges by K ids.
        weight: (E,) factors, sorted as the grouping is, or None.
        size: edges a block.
        block_of: gives the rows (n, ...) of the sorted edges from start to stop.
    """
    num_edges = len(grouping.keys)
    rows = torch.arange(min(size, num_edges), device=out.device)
    for start in range(0, num_edges, size):
        stop = min(start + size, num_edges)
        first, last = int(grouping.keys[start]), int(grouping.keys[stop - 1]) + 1
        # a bag per id; an id whose edges began in the block before starts at 0 here, and one without edges is empty
        bags = grouping.pointers[first:last].clamp_min(start) - start
        block = block_of(start, stop).reshape(stop - start, -1)
        factors = None if weight is None else weight[start:stop]
        out[first:last] += embedding_bag(rows[: stop - start], block, bags, mode="sum", per_sample_weights=factors)
    return out


def _sorted_weight(weight: Tensor | None, grouping: Grouping, like: Tensor) -> Tensor | None:
    return None if weight is None else weight.to(like.dtype)[grouping.order]


class _Pass(NamedTuple):
    """What the messages of one product are made of; `weight` is in the graph's edge order."""

    states: Tensor
    vectors: Tensor
    weight: Tensor | None
    edges: GroupedEdges
    function: MessageFunction
    size: int


class _RelationalSum(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, states: Tensor, vectors: Tensor, weight: Tensor | None, edges: GroupedEdges, message: str, size: int
    ) -> Tensor:
        ctx.save_for_backward(states, vectors, *([] if weight is None else [weight]))
        ctx.edges, ctx.function, ctx.size = edges, MESSAGES[message], size
        by = edges.by_receiver
        sender, relation = _Gather(states, by.senders, size), _Gather(vectors, by.relations, size)
        out = states.new_zeros(edges.num_nodes, states[0].numel())
        _sum_segments(
            out,
            by,
            _sorted_weight(weight, by, states),
            size,
            lambda start, stop: ctx.function.combine(sender(start, stop), relation(start, stop)),
        )
        return out.view(edges.num_nodes, *states.shape[1:])

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        states, vectors, *rest = ctx.saved_tensors
        made = _Pass(states, vectors, rest[0] if rest else None, ctx.edges, ctx.function, ctx.size)
        wanted = zip(ctx.needs_input_grad, (_grad_states, _grad_vectors, _grad_weight), strict=False)
        return (*(call(grad.contiguous(), made) if needed else None for needed, call in wanted), None, None, None)


def _grad_states(grad: Tensor, made: _Pass) -> Tensor:
    """Gradient of x[u]: sum over edges from u of w_e * dm/dx^T g[receiver]."""
    by = made.edges.by_sender
    receiver, relation = _Gather(grad, by.receivers, made.size), _Gather(made.vectors, by.relations, made.size)
    out = grad.new_zeros(made.edges.num_nodes, grad[0].numel())
    _sum_segments(
        out,
        by,
        _sorted_weight(made.weight, by, grad),
        made.size,
        lambda start, stop: made.function.grad_state(receiver(start, stop), relation(start, stop)),
    )
    return out.view_as(grad)


def _grad_vectors(grad: Tensor, made: _Pass) -> Tensor:
    """Gradient of rho[r]: sum over edges of relation r, and over the batch, of w_e * dm/drho^T g[receiver]."""
    by = made.edges.by_relation
    receiver, sender = _Gather(grad, by.receivers, made.size), _Gather(made.states, by.senders, made.size)

    def block_of(start: int, stop: int) -> Tensor:
        block = made.function.grad_relation(receiver(start, stop), sender(start, stop))
        return block.sum(1) if block.shape[1] > 1 else block

    out = torch.zeros_like(made.vectors)
    return _sum_segments(out, by, _sorted_weight(made.weight, by, grad), made.size, block_of)


def _grad_weight(grad: Tensor, made: _Pass) -> Tensor | None:
    """Gradient of w_e: m_e . g[receiver]; in the graph's edge order, which needs no grouping."""
    if made.weight is None:
        return None
    edges, size = made.edges, made.size
    receiver, sender = _Gather(grad, edges.receivers, size), _Gather(made.states, edges.senders, size)
    relation = _Gather(made.vectors, edges.relations, size)
    out = torch.empty_like(made.weight)
    for start in range(0, len(edges), size):
        stop = min(start + size, len(edges))
        messages = made.function.combine(sender(start, stop), relation(start, stop))
        out[start:stop] = (messages * receiver(start, stop)).sum((1, 2))
    return out


class _RelationalMax(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        states: Tensor,
        vectors: Tensor,
        weight: Tensor | None,
        edges: GroupedEdges,
        message: str,
        size: int,
        sign: int,
    ) -> Tensor:
        ctx.edges, ctx.function, ctx.size, ctx.sign = edges, MESSAGES[message], size, sign
        out = states.new_full((edges.num_nodes, states[0].numel()), float("-inf"))
        by = edges.by_receiver
        for start, stop, block in _signed_messages(_Pass(states, vectors, weight, edges, ctx.function, size), sign):
            first, last = int(by.keys[start]), int(by.keys[stop - 1]) + 1
            bounds = by.pointers[first : last + 1].clamp(start, stop) - start
            largest = torch.segment_reduce(block, "max", offsets=bounds, axis=0, initial=float("-inf"))
            torch.maximum(out[first:last], largest, out=out[first:last])
        ctx.save_for_backward(states, vectors, out, *([] if weight is None else [weight]))
        return out.view(edges.num_nodes, *states.shape[1:])

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        states, vectors, largest, *rest = ctx.saved_tensors
        made = _Pass(states, vectors, rest[0] if rest else None, ctx.edges, ctx.function, ctx.size)
        return (*_grad_of_extremes(grad, largest, made, ctx.sign), None, None, None, None)


def _grad_of_extremes(grad: Tensor, largest: Tensor, made: _Pass, sign: int) -> tuple[Tensor, Tensor, Tensor | None]:
    """Gradients of states, vectors and weights: each extreme's, shared evenly by the messages that reach it."""
    states, vectors, weight, _, function, _ = made
    by = made.edges.by_receiver
    ties = torch.zeros_like(largest)
    for start, stop, block in _signed_messages(made, sign):
        at = by.receivers[start:stop]
        ties.index_add_(0, at, (block == largest[at]).to(ties.dtype))
    share = sign * grad.reshape(ties.shape) / ties.clamp_min(1)
    grad_states, grad_vectors = torch.zeros_like(states), torch.zeros_like(vectors)
    grad_weight = None if weight is None else torch.zeros_like(weight)
    for start, stop, block in _signed_messages(made, sign):
        at, senders, relations = (ids[start:stop] for ids in (by.receivers, by.senders, by.relations))
        part = (share[at] * (block == largest[at])).view(stop - start, *states.shape[1:])
        x, rho = states[senders], vectors[relations].unsqueeze(1)
        if weight is not None and grad_weight is not None:
            order = by.order[start:stop]
            grad_weight[order] = (part * function.combine(x.clone(), rho)).sum((1, 2))
            part = part * weight[order, None, None]
        grad_states.index_add_(0, senders, function.grad_state(part.clone(), rho))
        grad_vectors.index_add_(0, relations, function.grad_relation(part.clone(), x).sum(1))
    return grad_states, grad_vectors, grad_weight


def _signed_messages(made: _Pass, sign: int) -> Iterator[tuple[int, int, Tensor]]:
    """Yields start, stop and the messages (n, batch * d), times `sign`, of the edges sorted by receiver."""
    by, size = made.edges.by_receiver, made.size
    sender, relation = _Gather(made.states, by.senders, size), _Gather(made.vectors, by.relations, size)
    factors = _sorted_weight(made.weight, by, made.states)
    for start in range(0, len(made.edges), size):
        stop = min(start + size, len(made.edges))
        block = made.function.combine(sender(start, stop), relation(start, stop)).reshape(stop - start, -1)
        if factors is not None:
            block = block * factors[start:stop, None]
        yield start, stop, block if sign > 0 else -block
