"""Answers against gold ones, as the three multi-hop data sets score them, and recall of supporting documents."""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any, Literal, NamedTuple, get_args

Style = Literal["hotpotqa", "2wiki", "musique"]
_PUNCTUATION = str.maketrans("", "", string.punctuation)
_CLOSED = {"yes", "no", "noanswer"}


class _Overlap(NamedTuple):
    f1: float
    precision: float
    recall: float


def _normalize(text: str) -> str:
    """Lower case, without ASCII punctuation and the words a, an, the; single spaces."""
    bare = text.lower().translate(_PUNCTUATION)
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", bare).split())


def _answer_list(answers: str | Sequence[str]) -> list[str]:
    found = [answers] if isinstance(answers, str) else list(answers)
    if not found:
        raise ValueError("answers must hold at least one answer")
    return found


def _check_style(style: str) -> None:
    if style not in get_args(Style):
        raise ValueError(f"style must be one of {', '.join(get_args(Style))}, got {style!r}")


def exact_match(prediction: str, answers: str | Sequence[str]) -> float:
    """1.0 if the normalised prediction is one of the normalised answers, else 0.0."""
    return float(any(_normalize(prediction) == _normalize(answer) for answer in _answer_list(answers)))


def f1_score(prediction: str, answers: str | Sequence[str], style: Style = "hotpotqa") -> float:
    """F1 of the words that prediction and answer share, the largest over the answers.

    Args:
        prediction: an answer.
        answers: one gold answer, or several.
        style: "hotpotqa" and "2wiki" give 0 where one side is yes, no or noanswer and the other differs; "musique" has
            no such rule, and 1 where both sides are empty.

    Raises:
        ValueError: an unknown style, or no answer.
    """
    _check_style(style)
    return max(_overlap(prediction, answer, style).f1 for answer in _answer_list(answers))


def _overlap(prediction: str, answer: str, style: Style) -> _Overlap:
    found, gold = _normalize(prediction), _normalize(answer)
    if style != "musique" and found != gold and {found, gold} & _CLOSED:
        return _Overlap(0.0, 0.0, 0.0)
    words, gold_words = found.split(), gold.split()
    if style == "musique" and not (words and gold_words):
        same = float(words == gold_words)
        return _Overlap(same, same, same)
    shared = sum((Counter(words) & Counter(gold_words)).values())
    if shared == 0:
        return _Overlap(0.0, 0.0, 0.0)
    precision, recall = shared / len(words), shared / len(gold_words)
    return _Overlap(2 * precision * recall / (precision + recall), precision, recall)


def answer_text(response: str) -> str:
    """The answer in a response: behind the first "Answer:" if there is one, up to the next."""
    if "Answer: " not in response:
        return response
    return response.split("Answer:")[1].strip()


def evaluate_answers(rows: Iterable[Mapping[str, Any]], style: Style) -> dict[str, float]:
    """Mean exact match, F1, precision and recall over questions.

    Args:
        rows: with `response`, `answer` and, but for "hotpotqa", `answer_aliases`; each number is the largest over them.
        style: as in `f1_score`. The official MuSiQue script exchanges precision and recall; here they are not.

    Raises:
        ValueError: no rows, a row without a response or an answer, or an unknown style.
    """
    _check_style(style)
    metrics: list[tuple[float, float, float, float]] = []
    for number, row in enumerate(rows):
        if not all(isinstance(row.get(name), str) for name in ("response", "answer")):
            raise ValueError(f"row {number} must have the strings response and answer, got {dict(row)!r:.120}")
        prediction = answer_text(row["response"])
        aliases = [] if style == "hotpotqa" else list(row.get("answer_aliases") or [])
        gold = [row["answer"], *aliases]
        parts = [_overlap(prediction, answer, style) for answer in gold]
        best = [max(getattr(part, name) for part in parts) for name in _Overlap._fields]
        metrics.append((exact_match(prediction, gold), best[0], best[1], best[2]))
    if not metrics:
        raise ValueError("there are no rows to evaluate")
    return {
        name: fmean(column) for name, column in zip(("em", *_Overlap._fields), zip(*metrics, strict=True), strict=True)
    }


def recall_at_k(retrieved_titles: Sequence[str], gold_titles: Sequence[str], k: int) -> float:
    """Share of the distinct gold titles among the first `k` distinct retrieved titles.

    Raises:
        ValueError: no gold title, or `k` below 1.
    """
    gold = set(gold_titles)
    if not gold:
        raise ValueError("gold_titles must hold at least one title")
    if k < 1:
        raise ValueError(f"k must be at least 1, got {k}")
    top = list(dict.fromkeys(retrieved_titles))[:k]
    return len(gold.intersection(top)) / len(gold)
