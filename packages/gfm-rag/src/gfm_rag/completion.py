"""How well a network completes triples: filtered ranks of their tails and heads among all entities."""

from __future__ import annotations

import torch
from torch import Tensor

from gfm_rag.kg_completion import strict_candidates
from gfm_rag.query_gnn import QueryGNN
from gfm_rag.ranks import filtered_ranks
from gfm_rag.training_data import TripleGraph


@torch.no_grad()
def completion_ranks(model: QueryGNN, data: TripleGraph, batch_size: int = 8) -> tuple[Tensor, Tensor]:
    """Filtered ranks of the true tails and of the true heads.

    Args:
        model: the network; put into evaluation mode.
        data: graph, triples to test, and all known edges.
        batch_size: triples at a time.

    Returns:
        Two (n,) tensors, 1-based; other true answers do not compete, ties count against the true one.
    """
    model.eval()
    everyone = torch.arange(int(data.graph.num_nodes), device=data.triples.device)
    ranks: tuple[list[Tensor], list[Tensor]] = ([], [])
    for triples in data.triples.split(batch_size):
        masks = strict_candidates(data.known if data.known is not None else data.graph, triples)
        for found, column, mask in zip(ranks, (1, 0), masks, strict=True):
            batch = triples.unsqueeze(1).repeat(1, len(everyone), 1)
            batch[:, :, column] = everyone
            found.append(filtered_ranks(model(data.graph, batch), triples[:, column], mask))
    return torch.cat(ranks[0]), torch.cat(ranks[1])
