"""The network of stage 1, knowledge-graph completion: a relation is the query, a head entity the start."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from gfm_rag.config import GFMConfig
from gfm_rag.gnn_retriever import GNNRetriever, check_graph
from gfm_rag.grouped_edges import grouped_edges
from gfm_rag.inference import states_by_question
from gfm_rag.kg_completion import remove_easy_edges, to_tail_mode
from gfm_rag.network import EntityNetwork, Propagation, Start
from gfm_rag.pretrained import PretrainedNetwork

if TYPE_CHECKING:
    from torch_geometric.data import Data


class QueryGNN(PretrainedNetwork):
    """The network for pre-training; its state_dict is that of `GNNRetriever` without `question_mlp`.

    Args:
        config: hyperparameters.
    """

    kind = "gfm-rag query network"

    def __init__(self, config: GFMConfig | None = None) -> None:
        super().__init__()
        self.config = config = config or GFMConfig()
        self.entity_model = EntityNetwork(config)
        self.rel_mlp = nn.Linear(config.text_dim, config.input_dim)

    def forward(
        self, graph: Data, batch: Tensor, *, remove_one_hop: bool = False, edge_chunk_size: int | None = None
    ) -> Tensor:
        """Scores triples, after their own edges have been taken out of the graph.

        Args:
            graph: all known edges, with inverse ones; it is not changed.
            batch: (B, 1 + K, 3) triples head, tail, relation; in a row either the tails or the heads differ. All N
                candidates of a triple can be given as one row.
            remove_one_hop: take out every edge between the pairs of the batch, whatever its relation.
            edge_chunk_size: messages of that many edges at a time, None = from a memory budget.

        Returns:
            (B, 1 + K) logits.

        Raises:
            ValueError: relation embeddings of another size than text_dim, or rows that are not as described.
        """
        check_graph(graph, self.config)
        if batch.dim() != 3 or batch.shape[-1] != 3:
            raise ValueError(f"batch must be (B, 1 + K, 3), got {tuple(batch.shape)}")
        asked = to_tail_mode(batch, int(graph.num_relations) // 2)
        pruned = remove_easy_edges(graph, batch, remove_one_hop)
        heads, relations, candidates = asked[:, 0, 0], asked[:, 0, 2], asked[:, :, 1]
        vectors = self.rel_mlp(graph.rel_emb)
        queries = vectors[relations]
        mask = torch.zeros(len(batch), int(graph.num_nodes), dtype=queries.dtype, device=queries.device)
        mask[torch.arange(len(batch), device=mask.device), heads] = 1
        edges = grouped_edges(pruned)
        if torch.is_grad_enabled():
            shared = Propagation(edges, Start.at(mask, queries), vectors, edge_chunk_size=edge_chunk_size)
            states = self.entity_model.states(shared, self.config.concat_hidden)
            return self._score(self.entity_model.head_input(states), candidates, queries)
        found = states_by_question(self.entity_model, edges, vectors, mask, queries, edge_chunk_size)
        return torch.cat([self._score(states, candidates[part], queries[part]) for part, states in found])

    def _score(self, states: list[Tensor], candidates: Tensor, queries: Tensor) -> Tensor:
        """(B, 1 + K) logits from the states (N, B, d) that the head reads; only candidates go through the head."""
        rows = torch.arange(len(candidates), device=candidates.device).unsqueeze(1).expand_as(candidates)
        read = [state[candidates.T, rows.T] for state in states]
        return self.entity_model.score(read, queries).T


def retriever_from(pretrained: QueryGNN) -> GNNRetriever:
    """A retriever with pre-trained weights; `question_mlp`, which stage 1 does not have, begins as `rel_mlp`.

    The paper does not say how; the official release 1.0.0 loads strictly and fails here.
    """
    model = GNNRetriever(pretrained.config)
    model.entity_model.load_state_dict(pretrained.entity_model.state_dict())
    model.rel_mlp.load_state_dict(pretrained.rel_mlp.state_dict())
    model.question_mlp.load_state_dict(pretrained.rel_mlp.state_dict())
    model.encoder = pretrained.encoder
    return model
