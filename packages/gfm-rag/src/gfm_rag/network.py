"""The query-dependent graph network (GFM-RAG, Eq. 6 to 9): H^0 from the question, then L layers of relational products.

States are (N, batch, d) inside: a node's states of all questions lie together, so that an edge copies one piece of
memory, and relation vectors are shared by the batch.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from gfm_rag.config import GFMConfig
from gfm_rag.grouped_edges import GroupedEdges
from gfm_rag.message import MESSAGES
from gfm_rag.relational_product import relational_max, relational_sum

_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": functional.relu,
    "gelu": functional.gelu,
    "silu": functional.silu,
    "elu": functional.elu,
    "leaky_relu": functional.leaky_relu,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
}
_VARIANCE_FLOOR = 1e-6  # of the standard deviation in "pna"


class Start(NamedTuple):
    """H^0, which is 0 but at the start nodes: H^0_v = S_v * q.

    Args:
        nodes: (n,) the nodes at which any question starts.
        values: (n, batch, d) their states.
        num_nodes: number of nodes N.
    """

    nodes: Tensor
    values: Tensor
    num_nodes: int

    @classmethod
    def at(cls, mask: Tensor, queries: Tensor) -> Start:
        """From a mask or weights (batch, N) and query vectors (batch, d)."""
        # a mask under differentiation has a gradient at its zeros, too
        everywhere = torch.arange(mask.shape[1], device=mask.device)
        nodes = everywhere if mask.requires_grad else mask.ne(0).any(0).nonzero().flatten()
        return cls(nodes, mask.T[nodes].unsqueeze(-1) * queries, mask.shape[1])

    def dense(self) -> Tensor:
        """(N, batch, d)."""
        zeros = self.values.new_zeros(self.num_nodes, *self.values.shape[1:])
        return zeros.index_copy(0, self.nodes, self.values)

    def among(self, nodes: Tensor) -> Start:
        """H^0 of some nodes (n,) in increasing order, which are numbered as they stand there."""
        at, after = (torch.searchsorted(self.nodes, nodes, right=right) for right in (False, True))
        here = (at < after).nonzero().flatten()
        return Start(here, self.values[at[here]], len(nodes))


@dataclasses.dataclass(frozen=True)
class Propagation:
    """What the layers of one pass share.

    Args:
        edges: the graph's edges.
        start: H^0, which every layer adds to its messages.
        relations: (2R, d) relation vectors z before the layers' own MLPs.
        edge_weight: None, or for each layer (E,) factors of the messages (for path explanation).
        edge_chunk_size: messages of that many edges at a time; None = from a memory budget.
    """

    edges: GroupedEdges
    start: Start
    relations: Tensor
    edge_weight: tuple[Tensor, ...] | None = None
    edge_chunk_size: int | None = None


class RelationalLayer(nn.Module):
    """One layer: U_v = act(LayerNorm(Linear([H_v ; M_v]))), M_v the aggregated messages of v and H^0_v.

    Args:
        config: hyperparameters.
        output_dim: size of the new states.
    """

    def __init__(self, config: GFMConfig, output_dim: int) -> None:
        super().__init__()
        d = config.input_dim
        self.config = config
        self.layer_norm = nn.LayerNorm(output_dim) if config.layer_norm else None
        self.linear = nn.Linear(13 * d if config.aggregate == "pna" else 2 * d, output_dim)
        self.relation_projection = nn.Sequential(nn.Linear(d, d), nn.ReLU(), nn.Linear(d, d))

    def forward(self, hidden: Tensor, shared: Propagation, layer: int = 0) -> Tensor:
        """New states (N, batch, output_dim), short cut included, from `hidden` (N, batch, d)."""
        weight = None if shared.edge_weight is None else shared.edge_weight[layer]
        return self.update(hidden, self.relation_projection(shared.relations), shared, weight)

    def update(
        self,
        hidden: Tensor,
        vectors: Tensor,
        shared: Propagation,
        weight: Tensor | None = None,
        own: Tensor | slice = slice(None),
    ) -> Tensor:
        """The layer with relation vectors (2R, d) of its own, also for some nodes only.

        Args:
            hidden: (rows, batch, d) states that the senders of `shared.edges` name.
            vectors: (2R, d) relation vectors after this layer's MLP.
            shared: edges and H^0, of a part of the nodes if it is for them.
            weight: None, or factors (E,) of the messages.
            own: the rows of `hidden` with the states of the n nodes which receive; by default all.

        Returns:
            (n, batch, output_dim), short cut included.
        """
        messages = self._aggregate(hidden, vectors, shared, weight)
        # Linear([H ; M]) as two products, without ever holding [H ; M]
        d = self.config.input_dim
        update = _product_of_rows(hidden, own, self.linear.weight[:, :d], self.linear.bias)
        update = _add_product(update, messages, self.linear.weight[:, d:])
        if self.layer_norm is not None:
            update = self.layer_norm(update)
        update = _ACTIVATIONS[self.config.activation](update)
        if self.config.short_cut and update.shape[-1] == d:
            update = update + hidden[own] if torch.is_grad_enabled() else update.add_(hidden[own])
        return update

    def _aggregate(self, hidden: Tensor, vectors: Tensor, shared: Propagation, weight: Tensor | None) -> Tensor:
        edges, start, chunk = shared.edges, shared.start, shared.edge_chunk_size
        name, aggregate = self.config.message, self.config.aggregate
        if aggregate == "max":
            largest = relational_max(hidden, vectors, edges, name, weight, chunk)
            return torch.maximum(largest, start.dense())  # H^0 counts as one message
        total = relational_sum(hidden, vectors, edges, name, weight, chunk)
        total = total.index_add(0, start.nodes, start.values.to(total.dtype))
        if aggregate == "sum":
            return total
        count = (edges.in_degree + 1).to(total.dtype)[:, None, None]
        if aggregate == "mean":
            return total / count
        return _principal(total / count, count, hidden, vectors, shared, name, weight)


def _product_of_rows(hidden: Tensor, rows: Tensor | slice, weight: Tensor, bias: Tensor) -> Tensor:
    """Linear(`hidden`[`rows`]); where many rows are one and the same, that one is multiplied once."""
    if isinstance(rows, Tensor) and len(rows) > len(hidden):
        return functional.linear(hidden, weight, bias)[rows]
    return functional.linear(hidden[rows], weight, bias)


def _add_product(update: Tensor, messages: Tensor, weight: Tensor) -> Tensor:
    """`update` + `messages` @ `weight`^T, into `update` itself where no gradient needs it."""
    rows = messages.reshape(-1, messages.shape[-1])
    if torch.is_grad_enabled() or not update.dtype == rows.dtype == weight.dtype:  # autocast: addmm joins the types
        return torch.addmm(update.flatten(0, 1), rows, weight.T).view_as(update)
    update.view(-1, update.shape[-1]).addmm_(rows, weight.T)
    return update


def _principal(
    mean: Tensor,
    count: Tensor,
    hidden: Tensor,
    vectors: Tensor,
    shared: Propagation,
    message: str,
    weight: Tensor | None,
) -> Tensor:
    """Principal neighbourhood aggregation: for each feature mean, max, min, std, each times the scalers 1, s, 1/s.

    s = log(deg + 1) / mean log(deg + 1). Returns (N, batch, 12 d), the scaler's index running fastest.
    """
    edges, chunk = shared.edges, shared.edge_chunk_size
    start = shared.start.dense()
    if MESSAGES[message].square:
        squared = None if weight is None else weight.square()
        moment = relational_sum(hidden.square(), vectors.square(), edges, message, squared, chunk)
    else:
        moment = _rotated_moment(hidden, vectors, edges, weight, chunk)
    variance = (moment + start.square()) / count - mean.square()
    largest = torch.maximum(relational_max(hidden, vectors, edges, message, weight, chunk), start)
    smallest = torch.minimum(-relational_max(hidden, vectors, edges, message, weight, chunk, sign=-1), start)
    deviation = variance.clamp_min(_VARIANCE_FLOOR).sqrt()
    features = torch.stack([mean, largest, smallest, deviation], dim=-1).flatten(-2)
    average = edges.mean_log_degree
    scale = count.log() / (average if average > 0 else 1)  # a graph without edges has no average
    scalers = torch.cat([torch.ones_like(scale), scale, 1 / scale.clamp_min(1e-2)], dim=-1)
    return (features.unsqueeze(-1) * scalers.unsqueeze(-2)).flatten(-2)


def _rotated_moment(
    hidden: Tensor, vectors: Tensor, edges: GroupedEdges, weight: Tensor | None, chunk: int | None
) -> Tensor:
    """Sum of squared rotate messages: (ac - bd)^2 and (ad + bc)^2, written as sums of three distmult products."""
    a, b = hidden.chunk(2, dim=-1)
    c, d = vectors.chunk(2, dim=-1)
    squared = None if weight is None else weight.square()
    states = torch.cat([a * a, a * a], -1), torch.cat([b * b, b * b], -1), torch.cat([a * b, a * b], -1)
    rhos = torch.cat([c * c, d * d], -1), torch.cat([d * d, c * c], -1), torch.cat([-2 * c * d, 2 * c * d], -1)
    parts = [relational_sum(x, rho, edges, "distmult", squared, chunk) for x, rho in zip(states, rhos, strict=True)]
    return parts[0] + parts[1] + parts[2]


class EntityNetwork(nn.Module):
    """The layers and the head that scores every node (the official `entity_model`).

    Args:
        config: hyperparameters.
    """

    def __init__(self, config: GFMConfig) -> None:
        super().__init__()
        self.config = config
        self.layers = nn.ModuleList(RelationalLayer(config, size) for size in config.hidden_dims)
        size = config.feature_dim
        head: list[nn.Module] = []
        for _ in range(config.num_mlp_layer - 1):
            head += [nn.Linear(size, size), nn.ReLU()]
        self.mlp = nn.Sequential(*head, nn.Linear(size, 1))

    def states(self, shared: Propagation, keep: bool = False) -> list[Tensor]:
        """H^0 .. H^L, each (N, batch, d); only the last one unless `keep`."""
        hidden = shared.start.dense()
        kept = [hidden]
        for index, layer in enumerate(self.layers):
            hidden = layer(hidden, self._first_layer(shared) if index == 0 else shared, index)
            kept = [*kept, hidden] if keep else [hidden]
        return kept

    def _first_layer(self, shared: Propagation) -> Propagation:
        """With only the edges that carry a message: H^0 is 0 but at the start, and so is every product with it."""
        start, weight = shared.start, shared.edge_weight
        zero_elsewhere = self.config.aggregate == "sum" and self.config.message != "transe"
        if not zero_elsewhere or len(start.nodes) == start.num_nodes:
            return shared
        edges, kept = shared.edges.sent_by(start.nodes)
        return dataclasses.replace(shared, edges=edges, edge_weight=None if weight is None else (weight[0][kept],))

    def score(self, states: list[Tensor], queries: Tensor) -> Tensor:
        """Logits (n, batch) of n nodes (Eq. 9) from their states, of all layers for `concat_hidden`, and queries."""
        features = torch.cat(states, -1) if len(states) > 1 else states[0]
        first, size = cast(nn.Linear, self.mlp[0]), features.shape[-1]
        # the part of the first linear layer that reads the query is the same for all nodes
        value = functional.linear(features, first.weight[:, :size]) + functional.linear(
            queries, first.weight[:, size:], first.bias
        )
        for module in self.mlp[1:]:
            value = module(value)
        return value.squeeze(-1)

    def head_input(self, states: list[Tensor]) -> list[Tensor]:
        """Of H^0 .. H^L, the states that the head reads."""
        return states[1:] if self.config.concat_hidden else states[-1:]
