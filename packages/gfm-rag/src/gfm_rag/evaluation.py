"""Recall of supporting documents over a file of questions, for any retriever."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any

from gfm_rag.answers import recall_at_k
from gfm_rag.retrieved import Retriever
from nips_common.cli import progress

CUTOFFS = (1, 2, 5, 10)


def retrieval_recall(
    retriever: Retriever, items: Iterable[Mapping[str, Any]], cutoffs: Sequence[int] = CUTOFFS
) -> dict[str, float]:
    """Mean recall@k of the supporting documents; questions without any are left out.

    Args:
        retriever: of documents.
        items: with `question` and `supporting_facts` (titles).
        cutoffs: the k.

    Raises:
        ValueError: no question has a supporting document.
    """
    asked = [item for item in items if item.get("supporting_facts")]
    if not asked:
        raise ValueError("no question has supporting_facts")
    found: dict[int, list[float]] = {k: [] for k in cutoffs}
    for item in progress(asked, "questions", total=len(asked)):
        titles = [document.title for document in retriever.retrieve(item["question"], top_k=max(cutoffs))]
        for k in cutoffs:
            found[k].append(recall_at_k(titles, item["supporting_facts"], k))
    return {f"recall@{k}": fmean(values) for k, values in found.items()}
