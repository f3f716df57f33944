"""Entity and relation phrases as the graph writes them, and the triples of an extraction that can be kept."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from typing import Any, Literal, get_args

Normalizer = Literal["unicode", "ascii"]
Triple = tuple[str, str, str]

_OTHER_THAN_ASCII = re.compile(r"[^A-Za-z0-9 ]")
# Chinese characters and kana, Thai, Lao, Burmese, Khmer: their words stand without spaces between them
_UNSPACED = re.compile(
    "[\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003ffff"
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff]"
)
_ZERO_WIDTH_SPACE = 0x200B


class _Kept(dict[int, str]):
    """By code point what a phrase keeps of a character, found out once for each."""

    def __missing__(self, code: int) -> str:
        category = unicodedata.category(chr(code))
        if "VARIATION SELECTOR" in unicodedata.name(chr(code), "") or category == "Me":
            kept = ""  # says how the character before it looks, as in emoji
        elif category[0] in "LMN":
            kept = chr(code)
        else:
            # joiners, soft hyphens and marks of direction stand inside words
            kept = "" if category == "Cf" and code != _ZERO_WIDTH_SPACE else " "
        self[code] = kept
        return kept


_KEPT = _Kept()


def check_normalizer(normalizer: str) -> None:
    """ValueError for an unknown one."""
    if normalizer not in get_args(Normalizer):
        raise ValueError(f"normalizer must be one of {', '.join(get_args(Normalizer))}, got {normalizer!r}")


def normalize_phrase(text: str | float, normalizer: Normalizer = "unicode") -> str:
    """A phrase in lower case without punctuation.

    Args:
        text: a phrase; a number becomes its decimal string.
        normalizer: "unicode" keeps letters, their marks and digits of any script and collapses spaces; "ascii" is the
            official one, which the released weights saw: every other character than A-Z, a-z, 0-9 becomes one space,
            so that text in other scripts is erased, and inner runs of spaces stay.

    Returns:
        The phrase, possibly empty.

    Raises:
        ValueError: an unknown normaliser.
    """
    check_normalizer(normalizer)
    lower = str(text).lower()
    if normalizer == "ascii":
        return _OTHER_THAN_ASCII.sub(" ", lower).strip()
    if lower.isascii():
        return " ".join(_OTHER_THAN_ASCII.sub(" ", lower).split())
    words = unicodedata.normalize("NFC", lower.translate(_KEPT)).split()
    return " ".join(filter(None, map(_without_loose_marks, words)))


def _without_loose_marks(word: str) -> str:
    """A word without marks at its beginning, whose letter was no letter."""
    start = 0
    while start < len(word) and unicodedata.category(word[start])[0] == "M":
        start += 1
    return word[start:]


def words_of(text: str) -> list[str]:
    """The normalised words of a text; in scripts without spaces between words each character counts as one."""
    phrase = normalize_phrase(text)
    return (phrase if phrase.isascii() else _UNSPACED.sub(r" \g<0> ", phrase)).split()


def letters_of(word: str) -> int:
    """Letters and digits of a word; a character that counts as a word says as much as two letters."""
    return 2 if _UNSPACED.match(word) else len(word)


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
