"""Triples from a spaCy pipeline: subjects, verbs and objects of the dependency parse, and named entities."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from nips_common.runtime import require

_SUBJECTS = {"nsubj", "nsubjpass", "nsubj:pass"}
_OBJECTS = {"dobj", "obj", "attr", "oprd", "dative"}
_PREPOSITIONS = {"prep", "agent"}


class SpacyExtractor:
    """Subject, verb, object and subject, verb with preposition, object.

    Args:
        pipeline: name of an installed pipeline (en_core_web_sm), or its folder.
        batch_size: passages parsed at once by `map`.

    Raises:
        ImportError: spaCy is missing; names the extra.
        ValueError: no such pipeline, or one without parser.
    """

    def __init__(self, pipeline: str | os.PathLike[str] = "en_core_web_sm", batch_size: int = 64) -> None:
        spacy = require("spacy", "gfm-rag[spacy]")
        try:
            self._nlp: Any = spacy.load(_pipeline_folder(pipeline))
        except OSError as error:
            raise ValueError(f"spaCy has no pipeline {os.fspath(pipeline)!r}: {str(error).splitlines()[0]}") from error
        if "parser" not in self._nlp.pipe_names:
            raise ValueError(f"the spaCy pipeline {os.fspath(pipeline)!r} has no parser, only {self._nlp.pipe_names}")
        self.batch_size = batch_size

    def __call__(self, passage: str) -> dict[str, Any]:
        """The extraction of a passage."""
        return next(self.map([passage]))

    def map(self, passages: Iterable[str]) -> Iterator[dict[str, Any]]:
        """The extractions of several passages, in their order."""
        for document in self._nlp.pipe(passages, batch_size=self.batch_size):
            title, _, text = document.text.partition("\n")
            yield {
                "passage": document.text,
                "extracted_entities": list(dict.fromkeys(entity.text for entity in document.ents)),
                "extracted_triples": [list(t) for t in dict.fromkeys(_triples(document, title if text else ""))],
            }

    def names(self, question: str) -> list[str]:
        """The named entities of a question, for use as `ner`."""
        return list(dict.fromkeys(entity.text for entity in self._nlp(question).ents))


def _pipeline_folder(pipeline: str | os.PathLike[str]) -> str | Path:
    """The folder with config.cfg: the given one, or the versioned one inside an unpacked pipeline package."""
    folder = Path(pipeline)
    if not folder.is_dir():
        return os.fspath(pipeline)
    if (folder / "config.cfg").is_file():
        return folder
    return next((file.parent for file in sorted(folder.rglob("config.cfg"))), folder)


def _triples(document: Any, title: str) -> Iterator[tuple[str, str, str]]:
    spans = {token.i: span for span in (*document.noun_chunks, *document.ents) for token in span}
    for verb in document:
        if verb.pos_ not in ("VERB", "AUX"):
            continue
        subjects = [child for child in verb.children if child.dep_ in _SUBJECTS]
        for subject in subjects:
            head = title if subject.pos_ == "PRON" and title else _phrase(subject, spans)
            for relation, found in _objects(verb):
                for one in (found, *found.conjuncts):
                    tail = _phrase(one, spans)
                    if head and tail and head.lower() != tail.lower():
                        yield head, relation, tail


def _objects(verb: Any) -> Iterator[tuple[str, Any]]:
    """The verb's objects, each with the words that lead to it."""
    for child in verb.children:
        if child.dep_ in _OBJECTS:
            yield verb.lemma_, child
            # "the capital of France": the object's own prepositions belong to the subject, too
            for preposition in child.children:
                if preposition.dep_ == "prep":
                    yield from (
                        (f"{verb.lemma_} {child.text} {preposition.text}", below)
                        for below in preposition.children
                        if below.dep_ == "pobj"
                    )
        elif child.dep_ in _PREPOSITIONS:
            yield from ((f"{verb.text} {child.text}", below) for below in child.children if below.dep_ == "pobj")


def _phrase(token: Any, spans: dict[int, Any]) -> str:
    """The noun phrase or entity around a token, without a leading article or pronoun."""
    span = spans.get(token.i)
    words = [token] if span is None else list(span)
    while len(words) > 1 and words[0].pos_ in ("DET", "PRON"):
        words = words[1:]
    return " ".join(word.text for word in words)
