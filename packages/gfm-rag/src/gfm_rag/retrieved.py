"""What every retriever returns, the graph one and the baselines."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import torch
from torch import Tensor


class RetrievedDocument(NamedTuple):
    """A document that was found.

    Args:
        title: of the document.
        content: its text.
        score: the retriever's own score.
        norm_score: (score - smallest) / (largest - smallest) over all documents of the question, 0 if all are equal.
    """

    title: str
    content: str
    score: float
    norm_score: float


class Retriever(Protocol):
    """Anything that finds documents for a question."""

    def retrieve(self, question: str, top_k: int = 5) -> list[RetrievedDocument]:
        """The best documents, best first."""
        ...


def best_documents(
    scores: Tensor, titles: Sequence[str], text_of: Callable[[str], str], top_k: int
) -> list[RetrievedDocument]:
    """The `top_k` documents of the highest scores (D,), best first; of equal scores the lower id."""
    values = scores.double()
    spread = float(values.max() - values.min()) if len(values) else 0.0
    order = torch.argsort(values, descending=True, stable=True)[:top_k].tolist()
    smallest = float(values.min()) if len(values) else 0.0
    return [
        RetrievedDocument(
            titles[i],
            text_of(titles[i]),
            float(values[i]),
            (float(values[i]) - smallest) / spread if spread > 0 else 0.0,
        )
        for i in order
    ]


def check_question(question: str, top_k: int) -> None:
    """ValueError for an empty question or a `top_k` below 1, TypeError for one that is no whole number."""
    if not isinstance(question, str) or not question.strip():
        raise ValueError(f"question must be a non-empty string, got {question!r}")
    try:
        operator.index(top_k)
    except TypeError:
        raise TypeError(f"top_k must be a whole number of documents, got {top_k!r}") from None
    if top_k < 1:
        raise ValueError(f"top_k must be at least 1 document, got {top_k}")
