"""Entity and relation phrases as the graph writes them, and the triples of an extraction that can be kept."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from typing import Any, Literal, get_args

Normalizer = Literal["unicode", "ascii"]
Triple = tuple[str, str, str]


def check_normalizer(normalizer: str) -> None:
    """ValueError for an unknown one."""
    if normalizer not in get_args(Normalizer):
        raise ValueError(f"normalizer must be one of {', '.join(get_args(Normalizer))}, got {normalizer!r}")


def normalize_phrase(text: str | float, normalizer: Normalizer = "unicode") -> str:
    """A phrase in lower case without punctuation.

    Args:
        text: a phrase; a number becomes its decimal string.
        normalizer: "unicode" keeps letters, marks and digits of any script and collapses spaces; "ascii" is the
            official one, which the released weights saw: every other character than A-Z, a-z, 0-9 becomes one space,
            so that text in other scripts is erased, and inner runs of spaces stay.

    Returns:
        The phrase, possibly empty.

    Raises:
        ValueError: an unknown normaliser.
    """
    check_normalizer(normalizer)
    if normalizer == "ascii":
        return re.sub(r"[^A-Za-z0-9 ]", " ", str(text).lower()).strip()
    composed = unicodedata.normalize("NFC", str(text).lower())
    kept = (char if unicodedata.category(char)[0] in "LMN" else " " for char in composed)
    return " ".join("".join(kept).split())


def kept_triples(extraction: Mapping[str, Any], normalizer: Normalizer) -> list[Triple]:
    """The normalised triples of an extraction that have exactly three parts, none nested, none empty."""
    kept = []
    for triple in extraction.get("extracted_triples") or ():
        if not isinstance(triple, (list, tuple)) or len(triple) != 3:
            continue
        if not all(isinstance(part, (str, int, float)) for part in triple):
            continue
        head, relation, tail = (normalize_phrase(part, normalizer) for part in triple)
        if head and relation and tail:
            kept.append((head, relation, tail))
    return kept
