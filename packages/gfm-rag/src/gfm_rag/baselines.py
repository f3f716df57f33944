"""What GFM-RAG is compared with on an index: BM25, dense retrieval and personalised PageRank."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from array import array
from collections import Counter

import torch
from torch import Tensor

from gfm_rag.encoders import Encoder, encode
from gfm_rag.incidence import incidence
from gfm_rag.kg_index import KGIndex
from gfm_rag.linkers import Linker
from gfm_rag.phrases import words_of
from gfm_rag.questions import NamedEntities, start_entities
from gfm_rag.ranking import Ranker, check_ranker, inverse_frequency, rank_documents
from gfm_rag.retrieved import RetrievedDocument, best_documents, check_question


def _passage(index: KGIndex, title: str) -> str:
    return f"{title}\n{index.text(title)}"


class _Baseline(ABC):
    """Ranks the documents that an index had when the retriever was made."""

    def __init__(self, index: KGIndex) -> None:
        self.index = index
        self._documents = index.document_entities  # another dictionary as soon as the index changes

    @abstractmethod
    def scores(self, question: str) -> Tensor:
        """(D,) scores."""

    def retrieve(self, question: str, top_k: int = 5) -> list[RetrievedDocument]:
        """The best documents.

        Raises:
            ValueError: an empty question, a `top_k` below 1, or an index that has changed since.
        """
        check_question(question, top_k)
        if self.index.document_entities is not self._documents:
            raise ValueError(f"the index has changed since this {type(self).__name__} was made: make it anew")
        return best_documents(self.scores(question), self.index.documents, self.index.text, top_k)


class BM25Retriever(_Baseline):
    """Okapi BM25 over title and text, words in lower case without punctuation (characters in Chinese and the like).

    Args:
        index: of the documents.
        k1: saturation of a word's count.
        b: how much long documents are held back.
    """

    def __init__(self, index: KGIndex, k1: float = 1.5, b: float = 0.75) -> None:
        super().__init__(index)
        counts = [Counter(words_of(_passage(index, title))) for title in index.documents]
        lengths = [sum(count.values()) for count in counts]
        mean = sum(lengths) / max(len(lengths), 1) or 1.0
        postings: dict[str, tuple[array[int], array[float]]] = {}  # documents of a word, and its weights in them
        for number, count in enumerate(counts):
            held = k1 * (1 - b + b * lengths[number] / mean)
            for word, times in count.items():
                numbers, weights = postings.setdefault(word, (array("q"), array("d")))
                numbers.append(number)
                weights.append(times * (k1 + 1) / (times + held))
        self._postings = postings

    def scores(self, question: str) -> Tensor:
        """(D,) scores."""
        scores = torch.zeros(len(self.index.documents), dtype=torch.float64)
        for word in words_of(question):
            if word in self._postings:
                numbers, weights = self._postings[word]
                idf = math.log(1 + (len(scores) - len(numbers) + 0.5) / (len(numbers) + 0.5))
                scores[torch.frombuffer(numbers, dtype=torch.int64)] += idf * torch.frombuffer(
                    weights, dtype=torch.float64
                )
        return scores


class DenseRetriever(_Baseline):
    """Cosine similarity of sentence embeddings of the question and of title and text.

    Args:
        index: of the documents.
        encoder: of both.
    """

    def __init__(self, index: KGIndex, encoder: Encoder) -> None:
        super().__init__(index)
        self.encoder = encoder
        self._vectors = self._encode([_passage(index, title) for title in index.documents])

    def _encode(self, texts: list[str]) -> Tensor:
        return torch.nn.functional.normalize(encode(self.encoder, texts), dim=1)

    def scores(self, question: str) -> Tensor:
        """(D,) cosines."""
        return self._vectors @ self._encode([question])[0]


class PageRankRetriever(_Baseline):
    """Personalised PageRank from the question's entities, as HippoRAG retrieves, on the same graph and ranker.

    Args:
        index: of the graph.
        linker: is given the entities.
        ner: names in a question.
        damping: probability of following an edge instead of starting anew.
        ranker: from entity to document scores.
        top_k_entities: T of the top-k rankers.
        iterations: of the power method; what is left to converge shrinks by `damping` with each.

    Raises:
        ValueError: a `damping` outside (0, 1), no iteration, or an unknown ranker.
    """

    def __init__(
        self,
        index: KGIndex,
        linker: Linker,
        ner: NamedEntities,
        damping: float = 0.5,
        ranker: Ranker = "simple",
        top_k_entities: int = 20,
        iterations: int = 50,
    ) -> None:
        if not 0 < damping < 1:
            raise ValueError(f"damping must lie strictly between 0 and 1, got {damping!r}")
        if iterations < 1:
            raise ValueError(f"iterations must be at least 1, got {iterations}")
        check_ranker(ranker, top_k_entities)
        super().__init__(index)
        self.linker, self.ner, self.damping = linker, ner, damping
        self.ranker, self.top_k_entities, self.iterations = ranker, top_k_entities, iterations
        linker.index(index.entities)
        pairs = {(index.entity_ids[head], index.entity_ids[tail]) for head, _, tail in index.triples}
        both = sorted(pairs | {(tail, head) for head, tail in pairs})
        degree = Counter(column for _, column in both)
        values = torch.tensor([1 / degree[column] for _, column in both], dtype=torch.float64)
        size = (len(index.entities), len(index.entities))
        self._transition = incidence(both, size, values)  # columns sum to 1

    def entity_scores(self, question: str) -> Tensor:
        """(N,) probabilities."""
        starts = [self.index.entity_ids[name] for name in start_entities(question, self.index, self.ner, self.linker)]
        restart = torch.zeros(len(self.index.entities), dtype=torch.float64)
        if not starts:
            return restart
        frequency = inverse_frequency(self.index.entity_to_document).double()
        restart[starts] = torch.where(frequency[starts] > 0, frequency[starts], 1.0)
        restart /= restart.sum()
        rank = restart
        for _ in range(self.iterations):
            moved = torch.sparse.mm(self._transition, rank[:, None])[:, 0]
            rank = (1 - self.damping) * restart + self.damping * (moved + (1 - moved.sum()) * restart)
        return rank

    def scores(self, question: str) -> Tensor:
        """(D,) scores."""
        entities = self.entity_scores(question)[None]
        return rank_documents(entities, self.index.entity_to_document, self.ranker, self.top_k_entities)[0]
