"""The face of GFM-RAG: a question in, documents out, from an index, a network, an encoder and a linker."""

from __future__ import annotations

import difflib
import logging
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor

from gfm_rag.encoders import Encoder, encode
from gfm_rag.gnn_retriever import GNNRetriever, check_graph
from gfm_rag.ircot import ChatModel, ChatPrompt, IRCoTResult, ircot
from gfm_rag.kg_index import KGIndex
from gfm_rag.linkers import Linker
from gfm_rag.paths import Path
from gfm_rag.questions import NamedEntities, link_names, start_entities
from gfm_rag.ranking import Ranker, check_ranker, inverse_frequency, rank_documents
from gfm_rag.retrieved import RetrievedDocument, best_documents, check_question

if TYPE_CHECKING:
    from torch_geometric.data import Data

log = logging.getLogger(__name__)


class GFMRetriever:
    """Retrieves documents with one pass of the network over the whole graph (section 3.3 of the paper).

    Args:
        index: the graph and its documents.
        model: the network; it is put into evaluation mode and used on the device where it is.
        encoder: sentence embeddings of questions and relations, those that the model was trained with.
        linker: is given the graph's entities to index.
        ner: names in a question.
        ranker: from entity to document scores, see `rank_documents`.
        top_k_entities: T of the two top-k rankers.

    Raises:
        ValueError: an index without entities, an unknown ranker, or an encoder whose size is not the model's text_dim,
            or that is not the one which the model's folder names.
        TypeError: an encoder without `dim` and `encode`.
    """

    def __init__(
        self,
        index: KGIndex,
        model: GNNRetriever,
        encoder: Encoder,
        linker: Linker,
        ner: NamedEntities,
        ranker: Ranker = "idf_topk",
        top_k_entities: int = 20,
    ) -> None:
        check_ranker(ranker, top_k_entities)
        if not hasattr(encoder, "dim") or not hasattr(encoder, "encode"):
            raise TypeError(f"an encoder has `dim` and `encode(texts)`, got {type(encoder).__name__}")
        model.check_encoder(encoder)
        self.index, self.model, self.encoder, self.linker, self.ner = index, model.eval(), encoder, linker, ner
        self.ranker, self.top_k_entities = ranker, top_k_entities
        self.refresh()

    def refresh(self) -> None:
        """Takes up a changed index, or a model moved to another device or dtype: makes the tensors again.

        After `add_documents` and `remove_documents` the next question does this by itself.
        """
        if not self.index.entities:
            raise ValueError("the index has no entities: nothing can be retrieved from it")
        weight = next(self.model.parameters())
        device = weight.device
        graph = self.index.graph(self.encoder)
        check_graph(graph, self.model.config)
        graph.rel_emb = graph.rel_emb.to(weight.dtype)
        self.graph: Data = graph.to(str(device))
        self.entity_to_document = self.index.entity_to_document.to(device)
        self.entity_weight = inverse_frequency(self.entity_to_document)
        self.linker.index(self.index.entities)
        self._entities = self.index.entities  # another list as soon as the index changes
        self._last: tuple[object, list[str]] | None = None  # a question and its entities

    def question_entities(self, question: str) -> list[str]:
        """The graph's entities that the question starts from: the nearest of each name, or of the whole question."""
        self._follow_index()
        asked = (question, self.ner, self.linker)
        if self._last is None or self._last[0] != asked:  # an answer, its explanation and its report ask again
            self._last = asked, start_entities(question, self.index, self.ner, self.linker)
        return list(self._last[1])

    def _follow_index(self) -> None:
        if self.index.entities is not self._entities:
            log.info("the index has changed: taking it up")
            self.refresh()

    def names_entities(self, question: str) -> bool:
        """Whether the question names anything; if not, it starts from the entity nearest to its words."""
        return bool(link_names(self.ner(question), self.index))

    def inputs(self, question: str) -> tuple[Tensor, Tensor]:
        """Embedding (1, text_dim) and start mask (1, N) of a question.

        Raises:
            ValueError: an empty question, or a linker that names an entity which the graph does not have.
        """
        check_question(question, 1)
        self._follow_index()
        weight = next(self.model.parameters())
        mask = torch.zeros(1, len(self.index.entities), device=weight.device)
        for name in self.question_entities(question):
            mask[0, self.index.entity_ids[name]] = 1
        return encode(self.encoder, [question]).to(weight.device, weight.dtype), mask

    @torch.no_grad()
    def entity_scores(self, question: str) -> Tensor:
        """(N,) float32 logits of all entities; ValueError if the network gives NaN, as weights that diverged do."""
        embedding, mask = self.inputs(question)
        scores: Tensor = self.model(self.graph, embedding, mask, self.entity_weight)
        if not bool(scores.isfinite().all()):
            raise ValueError("the network gives NaN or infinity: its weights are damaged or have diverged")
        return scores[0].float()

    def retrieve(self, question: str, top_k: int = 5) -> list[RetrievedDocument]:
        """The best documents for a question.

        Args:
            question: in words.
            top_k: how many.

        Returns:
            Best first; of equal scores the document that was indexed first.

        Raises:
            ValueError: an empty question, or a `top_k` below 1.
        """
        check_question(question, top_k)
        scores = self.entity_scores(question)[None]
        documents = rank_documents(scores, self.entity_to_document, self.ranker, self.top_k_entities)
        return best_documents(documents[0].cpu(), self.index.documents, self.index.text, top_k)

    def explain(self, question: str, target: str, k: int = 10, compat: Literal["v1"] | None = None) -> list[Path]:
        """The walks that lead from the question's entities to an entity, see `GNNRetriever.explain`.

        Args:
            question: in words.
            target: the entity, as the graph or as a text writes it.
            k: paths at most.
            compat: see `GNNRetriever.explain`.

        Raises:
            ValueError: an entity that the graph does not have; names those that are written nearly so.
        """
        ids = self.index.entity_ids
        names = [name for name in [target, *link_names([target], self.index)] if name in ids]
        if not names:
            near = difflib.get_close_matches(target.lower(), ids, n=3)
            hint = f"; near it are {', '.join(map(repr, near))}" if near else ""
            raise ValueError(f"entity {target!r} is not in the graph{hint}")
        embedding, mask = self.inputs(question)
        return self.model.explain(self.graph, embedding, mask, ids[names[0]], k, self.entity_weight, compat)

    def path_triples(self, path: Path) -> list[tuple[str, str, str, bool]]:
        """A path in words: (head, relation, tail, inverse) of each hop, head and tail as the graph's triple has them.

        The walk goes against a triple where `inverse` is True: from its tail to its head, or, for messages, from the
        second row of edge_index to the first.
        """
        names, relations = self.index.entities, self.index.relations
        found = []
        for step in path.steps:
            # a stored direct edge is (head, tail) = (receiver, sender): the message runs from tail to head
            direct = step.relation < len(relations)
            head, tail = (step.target, step.source) if direct else (step.source, step.target)
            found.append((names[head], relations[step.relation % len(relations)], names[tail], direct))
        return found

    def ircot(
        self,
        question: str,
        llm: ChatModel,
        max_steps: int = 2,
        top_k: int = 10,
        prompt: ChatPrompt | None = None,
    ) -> IRCoTResult:
        """Several steps of retrieval and thought, see `gfm_rag.ircot`."""
        return ircot(self, question, llm, max_steps, top_k, prompt)
