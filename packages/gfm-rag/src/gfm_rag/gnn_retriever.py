"""The retriever of GFM-RAG: scores of all entities for questions, from sentence embeddings and start entities."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor, nn

from gfm_rag.config import GFMConfig
from gfm_rag.grouped_edges import grouped_edges
from gfm_rag.inference import score_all, states_by_question
from gfm_rag.network import EntityNetwork, Propagation, Start
from gfm_rag.paths import Path, best_paths, chained_importance
from gfm_rag.pretrained import PretrainedNetwork

if TYPE_CHECKING:
    from torch_geometric.data import Data


class GNNRetriever(PretrainedNetwork):
    """The network with a question encoder, for retrieval (stage 2); state_dict names are the official ones.

    Args:
        config: hyperparameters.
    """

    kind = "gfm-rag retriever"

    def __init__(self, config: GFMConfig | None = None) -> None:
        super().__init__()
        self.config = config = config or GFMConfig()
        self.entity_model = EntityNetwork(config)
        self.rel_mlp = nn.Linear(config.text_dim, config.input_dim)
        self.question_mlp = nn.Linear(config.text_dim, config.input_dim)

    def forward(
        self,
        graph: Data,
        question_embeddings: Tensor,
        start_mask: Tensor,
        entity_weight: Tensor | None = None,
        *,
        edge_chunk_size: int | None = None,
        output_hidden_states: bool = False,
    ) -> Tensor | tuple[Tensor, tuple[Tensor, ...]]:
        """Scores every entity for every question (Eq. 6 to 9).

        Args:
            graph: `edge_index` (2, 2E), `edge_type` (2E,), `rel_emb` (2R, text_dim), `num_nodes` N, `num_relations` 2R.
                Node `edge_index[0, e]` receives from `edge_index[1, e]`, as the released weights were trained.
            question_embeddings: (batch, text_dim).
            start_mask: (batch, N), 1 at the entities of the question.
            entity_weight: (N,) factors of the start states, see `inverse_frequency`; None = all 1.
            edge_chunk_size: messages of that many edges at a time, None = from a memory budget; the result does not
                depend on it.
            output_hidden_states: also return H^0 .. H^L.

        Returns:
            (batch, N) logits; with `output_hidden_states` also a tuple of (batch, N, d), short cuts included.

        Raises:
            ValueError: sizes that do not fit; the message names both.
        """
        self._check(graph, question_embeddings, start_mask, entity_weight)
        queries = self.question_mlp(question_embeddings)
        if not torch.is_grad_enabled() and not output_hidden_states:
            return self._infer(graph, queries, self._weighted(start_mask, entity_weight, queries), edge_chunk_size)
        shared = self._shared(graph, queries, start_mask, entity_weight, edge_chunk_size)
        keep = output_hidden_states or self.config.concat_hidden
        states = self.entity_model.states(shared, keep)
        logits = self.entity_model.score(self.entity_model.head_input(states), queries).T
        return (logits, tuple(state.transpose(0, 1) for state in states)) if output_hidden_states else logits

    def explain(
        self,
        graph: Data,
        question_embeddings: Tensor,
        start_mask: Tensor,
        target: int,
        k: int = 10,
        entity_weight: Tensor | None = None,
        compat: Literal["v1"] | None = None,
    ) -> list[Path]:
        """The walks from the question's entities that the score of `target` owes most to (Eq. 17 to 19).

        The importance of a hop is the derivative of the target's score by the weight of that edge in that layer, that
        of a walk the mean over its hops; a walk of n hops uses layers 1 to n and does not leave the target.

        Args:
            graph: as in `forward`.
            question_embeddings: (1, text_dim).
            start_mask: (1, N).
            target: id of an entity.
            k: number of walks at most.
            entity_weight: as in `forward`.
            compat: "v1" sums a layer's derivatives with those of all later layers, as the official code does.

        Returns:
            At most `k` paths, best first, each connected and starting at an entity of the question.

        Raises:
            ValueError: more than one question, or a target that is not in the graph.
        """
        if compat not in (None, "v1"):
            raise ValueError(f"compat must be None or 'v1', got {compat!r}")
        if len(question_embeddings) != 1:
            raise ValueError(f"explain takes one question, got {len(question_embeddings)}")
        if not 0 <= target < int(graph.num_nodes):
            raise ValueError(f"target must be an entity id from 0 to {int(graph.num_nodes) - 1}, got {target}")
        if k < 1:
            raise ValueError(f"k must be at least 1 path, got {k}")
        importance = self.edge_importance(graph, question_embeddings, start_mask, target, entity_weight)
        if compat == "v1":
            importance = chained_importance(importance)
        starts = start_mask[0].nonzero().flatten().tolist()
        return best_paths(grouped_edges(graph), importance, starts, target, k)

    def edge_importance(
        self,
        graph: Data,
        question_embeddings: Tensor,
        start_mask: Tensor,
        target: int,
        entity_weight: Tensor | None = None,
    ) -> Tensor:
        """(L, 2E) derivatives of the target's score by the weight of each edge in each layer, for one question."""
        self._check(graph, question_embeddings, start_mask, entity_weight)
        with torch.inference_mode(False), torch.enable_grad():
            embeddings, mask = question_embeddings.detach().clone(), start_mask.detach().clone()
            layers = len(self.config.hidden_dims)
            weights = tuple(
                torch.ones(graph.edge_type.numel(), device=mask.device, dtype=embeddings.dtype, requires_grad=True)
                for _ in range(layers)
            )
            queries = self.question_mlp(embeddings)
            shared = self._shared(graph, queries, mask, entity_weight, None, weights)
            states = self.entity_model.head_input(self.entity_model.states(shared, self.config.concat_hidden))
            score = self.entity_model.score([state[target : target + 1] for state in states], queries)
            # a layer's edges have no derivative at all where none of them leads to the target's score
            grads = torch.autograd.grad(score.sum(), weights, allow_unused=True)
        return torch.stack([torch.zeros_like(weights[0]) if grad is None else grad for grad in grads]).detach()

    def _infer(self, graph: Data, queries: Tensor, mask: Tensor, edge_chunk_size: int | None) -> Tensor:
        """(batch, N) logits, without gradients."""
        found = states_by_question(
            self.entity_model, grouped_edges(graph), self.rel_mlp(graph.rel_emb), mask, queries, edge_chunk_size
        )
        return torch.cat([score_all(self.entity_model, states, queries[part]).T for part, states in found])

    def _weighted(self, start_mask: Tensor, entity_weight: Tensor | None, queries: Tensor) -> Tensor:
        """(batch, N) factors of the queries in H^0."""
        mask = start_mask.to(queries.dtype)
        return mask if entity_weight is None else mask * entity_weight.to(queries.dtype)

    def _shared(
        self,
        graph: Data,
        queries: Tensor,
        start_mask: Tensor,
        entity_weight: Tensor | None,
        edge_chunk_size: int | None,
        edge_weight: tuple[Tensor, ...] | None = None,
    ) -> Propagation:
        return Propagation(
            edges=grouped_edges(graph),
            start=Start.at(self._weighted(start_mask, entity_weight, queries), queries),
            relations=self.rel_mlp(graph.rel_emb),
            edge_weight=edge_weight,
            edge_chunk_size=edge_chunk_size,
        )

    def _check(self, graph: Data, questions: Tensor, mask: Tensor, weight: Tensor | None) -> None:
        check_graph(graph, self.config)
        if questions.dim() != 2 or questions.shape[1] != self.config.text_dim:
            raise ValueError(
                f"question_embeddings must be (batch, text_dim={self.config.text_dim}), got {tuple(questions.shape)}"
            )
        wanted = (len(questions), int(graph.num_nodes))
        if tuple(mask.shape) != wanted:
            raise ValueError(f"start_mask must be (batch, num_nodes) = {wanted}, got {tuple(mask.shape)}")
        if weight is not None and tuple(weight.shape) != wanted[1:]:
            raise ValueError(f"entity_weight must be (num_nodes,) = {wanted[1:]}, got {tuple(weight.shape)}")


def check_graph(graph: Data, config: GFMConfig) -> None:
    """ValueError unless it is one graph whose relation embeddings fit the model and the number of relations."""
    if isinstance(graph.num_relations, Tensor) and graph.num_relations.numel() != 1:
        raise ValueError(f"one graph at a time, got a batch of {graph.num_relations.numel()}")
    found, wanted = tuple(graph.rel_emb.shape), (int(graph.num_relations), config.text_dim)
    if found != wanted:
        raise ValueError(
            f"the graph's rel_emb is {found}, but {wanted[0]} relations for a model with text_dim={config.text_dim} "
            f"need {wanted}: use the text encoder that the model was trained with"
        )
