"""A file of questions: recall of its supporting documents by any retriever, and what its answers are compared with."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any

from gfm_rag.answers import recall_at_k
from gfm_rag.retrieved import Retriever
from nips_common.cli import progress

log = logging.getLogger(__name__)

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


def coverage(items: Sequence[Mapping[str, Any]], titles: Collection[str]) -> dict[str, int]:
    """How much of a file of questions an index can answer at all.

    Args:
        items: with `question` and `supporting_facts` (titles).
        titles: of the documents of the index.

    Returns:
        questions: all; evaluated: those with supporting documents; supporting_titles: different ones;
        supporting_titles_not_in_index: those of them that no retriever can find.
    """
    asked = [item for item in items if item.get("supporting_facts")]
    wanted = dict.fromkeys(title for item in asked for title in item["supporting_facts"])
    unknown = [title for title in wanted if title not in titles]
    if unknown:
        log.warning(
            "%d of %d supporting titles are not in the index and count as not found; first: %r",
            len(unknown), len(wanted), unknown[0],
        )  # fmt: skip
    return {
        "questions": len(items),
        "evaluated": len(asked),
        "supporting_titles": len(wanted),
        "supporting_titles_not_in_index": len(unknown),
    }


def answer_rows(items: Iterable[Mapping[str, Any]], predictions: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Questions with the responses to them, for `evaluate_answers`.

    Args:
        items: with `answer`, perhaps `answer_aliases`, and `id` or `question`.
        predictions: with `response` (or `answer`, as `gfm-rag ask` prints it) and the same `id` or `question`.

    Raises:
        ValueError: a question without an answer or without a prediction; says how many.
    """
    given: dict[str, str] = {}
    for number, row in enumerate(predictions, 1):
        key, response = row.get("id", row.get("question")), row.get("response", row.get("answer"))
        if key is None or not isinstance(response, str):
            raise ValueError(f"prediction {number}: expected id or question, and a text under response")
        given[str(key)] = response
    rows, without = [], []
    for item in items:
        if not isinstance(item.get("answer"), str):
            raise ValueError(f"question {item.get('question')!r:.80} has no answer to compare with")
        keys = [
            str(item[name]) for name in ("id", "question") if item.get(name) is not None and str(item[name]) in given
        ]
        if keys:
            rows.append({**item, "response": given[keys[0]]})
        else:
            without.append(item.get("question"))
    if without:
        raise ValueError(f"{len(without)} questions have no prediction; the first is {without[0]!r:.80}")
    return rows
