"""Triples by rules: deterministic, without a model, for tests and as a baseline. Made for English.

Names are runs of capitalised words, numbers and dates; what stands between two names of a sentence is their relation.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any, NamedTuple

_SENTENCE_END = re.compile(r"(?<=[.!?\u3002\uff01\uff1f])\s+|\n+")
_WORD = re.compile(r"\w+(?:['\u2019.-]\w+)*|[^\w\s]")


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_CONNECTORS = _words("of the de la le du des von van der den di da del al bin and for in on")
_MONTHS = _words("january february march april may june july august september october november december")
# Words that begin sentences without being names.
_OPENERS = _words(
    "the a an this that these those it he she they we i you his her its their our my your in on at by for from with to "
    "as after before during when while since until if although though because but and or so then there here what who "
    "whom whose which where why how is are was were did does do has have had many some all most both each"
)
_PRONOUNS = _words("it he she they this these its his her their")
_COPULAS = _words("is are was were")
_ARTICLES = _words("the a an")
_COMPLEMENT_ENDS = _words(
    "of in on at by for from with to that which who whose where when and or but as near between into during "
    ", ; : ( ) . ! ?"
)
_LONGEST_RELATION = 8  # words


class _Name(NamedTuple):
    """Words `start` to `stop` of a sentence."""

    start: int
    stop: int
    text: str


class RuleExtractor:
    """Subject, relation, object from capitalisation and word order.

    The first line of a passage of several lines is its title, which stands in for a leading pronoun and for a subject
    that is no name ("The town lies near Berlin.").
    """

    name = "rule"

    def __call__(self, passage: str) -> dict[str, Any]:
        """The extraction of a passage: {"passage", "extracted_entities", "extracted_triples"}."""
        title, _, text = passage.partition("\n")
        if not text:
            title, text = "", passage
        entities: dict[str, None] = {title: None} if title else {}
        triples: list[list[str]] = []
        for sentence in _SENTENCE_END.split(text):
            words = _WORD.findall(sentence)
            names = _names(words)
            entities.update((name.text, None) for name in names)
            triples += _triples(words, names, title)
        unique = dict.fromkeys(tuple(triple) for triple in triples)
        return {
            "passage": passage,
            "extracted_entities": list(entities),
            "extracted_triples": [list(triple) for triple in unique],
        }

    def names(self, question: str) -> list[str]:
        """The names in a question, for use as `ner`."""
        return list(dict.fromkeys(name.text for name in _names(_WORD.findall(question))))


def _names(words: list[str]) -> list[_Name]:
    """Runs of capitalised words and numbers; small words join two of them ("Bank of England")."""
    names: list[_Name] = []
    position = 0
    while position < len(words):
        if not _begins_name(words, position):
            position += 1
            continue
        stop = position + 1
        while stop < len(words):
            ahead = stop
            while ahead < len(words) and words[ahead] in _CONNECTORS - {"and", "in", "on"} and ahead - stop < 2:
                ahead += 1
            if ahead < len(words) and _capital(words[ahead]) and (ahead == stop or not _number(words[stop - 1])):
                stop = ahead + 1
            elif _number(words[stop]) and words[stop - 1].lower() in _MONTHS:
                stop += 1
            else:
                break
        # a day before its month: 10 December 1815
        names.append(_Name(position, stop, " ".join(words[position:stop])))
        position = stop
    return names


def _begins_name(words: list[str], position: int) -> bool:
    word = words[position]
    if _number(word):
        return True
    if not _capital(word):
        return False
    follows = position + 1 < len(words) and _capital(words[position + 1])
    return word.lower() not in _OPENERS or (position > 0 and follows and word.lower() not in _ARTICLES)


def _capital(word: str) -> bool:
    return word[0].isupper() or (word[0].isdigit() and any(char.isupper() for char in word))


def _number(word: str) -> bool:
    return word[0].isdigit()


def _triples(words: list[str], names: list[_Name], title: str) -> list[list[str]]:
    found: list[list[str]] = []
    subject = names[0].text if names else ""
    begins_late = bool(words) and (not names or names[0].start > 0)
    if title and begins_late and (words[0].lower() in _PRONOUNS | _ARTICLES or words[0].lower() in _COPULAS):
        subject = title
        if names:
            # the words before the first name, without a leading pronoun or article
            found += _relation(title, words[1 : names[0].start], names[0].text)
    found += _complement(words, subject, names, title)
    for left, right in pairwise(names):
        found += _relation(left.text, words[left.stop : right.start], right.text)
    return found


def _relation(head: str, between: list[str], tail: str) -> list[list[str]]:
    relation = [word for word in between if word[0].isalnum()]
    while relation and relation[-1].lower() in _ARTICLES:
        relation.pop()
    says_something = any(word.lower() not in _CONNECTORS | _ARTICLES for word in relation)
    if not says_something or len(relation) > _LONGEST_RELATION or head.lower() == tail.lower():
        return []
    return [[head, " ".join(relation), tail]]


def _complement(words: list[str], subject: str, names: list[_Name], title: str) -> list[list[str]]:
    """(subject, "is", what it is) from "... is/was a mathematician"; the title speaks where no name comes before."""
    for position, word in enumerate(words):
        if word.lower() not in _COPULAS:
            continue
        before = [name for name in names if name.stop <= position]
        who = before[-1].text if before and before[-1].stop == position else title or subject
        phrase = []
        for follower in words[position + 1 :]:
            if follower.lower() in _COMPLEMENT_ENDS:
                break
            phrase.append(follower)
        if phrase and phrase[0].lower() in _ARTICLES and len(phrase) > 1 and who:
            return [[who, "is", " ".join(phrase[1:])]]
        return []
    return []
