"""The network as the paper writes it, with every message of a layer in memory at once: what ours is compared with."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch_geometric.data import Data


def messages(states: Tensor, vectors: Tensor, graph: Data, name: str) -> Tensor:
    """(E, batch, d) from states (N, batch, d) and relation vectors (2R, d)."""
    x, rho = states[graph.edge_index[1]], vectors[graph.edge_type].unsqueeze(1)
    if name == "distmult":
        return x * rho
    if name == "transe":
        return x + rho
    a, b = x.chunk(2, -1)
    c, d = rho.chunk(2, -1)
    return torch.cat([a * c - b * d, a * d + b * c], -1)


def aggregate(found: Tensor, start: Tensor, graph: Data, how: str, squares: Tensor) -> Tensor:
    """Messages (E, batch, d) and H^0 (N, batch, d), joined at the receivers."""
    at = graph.edge_index[0]
    index = at[:, None, None].expand_as(found)
    count = torch.bincount(at, minlength=len(start)).to(found.dtype)[:, None, None] + 1
    total = start.index_add(0, at, found)
    largest = start.scatter_reduce(0, index, found, "amax", include_self=True)
    if how in ("sum", "mean"):
        return total if how == "sum" else total / count
    if how == "max":
        return largest
    smallest = start.scatter_reduce(0, index, found, "amin", include_self=True)
    mean = total / count
    deviation = ((start**2).index_add(0, at, squares) / count - mean**2).clamp_min(1e-6).sqrt()
    features = torch.stack([mean, largest, smallest, deviation], -1).flatten(-2)
    scale = count.log() / count.log().mean()
    scalers = torch.cat([torch.ones_like(scale), scale, 1 / scale.clamp_min(1e-2)], -1)
    return (features.unsqueeze(-1) * scalers.unsqueeze(-2)).flatten(-2)


def plain_logits(model: Any, graph: Data, questions: Tensor, mask: Tensor, weight: Tensor | None = None) -> Tensor:
    """What `GNNRetriever.forward` computes."""
    config, network = model.config, model.entity_model
    query, relations = model.question_mlp(questions), model.rel_mlp(graph.rel_emb)
    start = (mask if weight is None else mask * weight).T.unsqueeze(-1) * query
    hidden, states = start, []
    for layer in network.layers:
        vectors = layer.relation_projection(relations)
        found = messages(hidden, vectors, graph, config.message)
        squares = found**2
        if config.aggregate == "pna" and config.message == "transe":
            squares = messages(hidden**2, vectors**2, graph, "transe")
        joined = aggregate(found, start, graph, config.aggregate, squares) if config.aggregate != "sum" else (
            start.index_add(0, graph.edge_index[0], found)
        )  # fmt: skip
        update = layer.linear(torch.cat([hidden, joined], -1))
        if layer.layer_norm is not None:
            update = layer.layer_norm(update)
        update = F.relu(update)
        hidden = hidden + update if config.short_cut and update.shape == hidden.shape else update
        states.append(hidden)
    feature = torch.cat(states, -1) if config.concat_hidden else hidden
    return network.mlp(torch.cat([feature, query.expand(len(feature), -1, -1)], -1)).squeeze(-1).T  # type: ignore[no-any-return]
