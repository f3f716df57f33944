"""The knowledge-graph index over documents (section 3.1 of the paper): built, grown, shrunk, saved, made tensors."""

from __future__ import annotations

import dataclasses
import logging
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, Self

import torch
from torch import Tensor

from gfm_rag import index_folder
from gfm_rag.encoders import Encoder, encode
from gfm_rag.entity_resolution import EQUIVALENT, equivalent_edges
from gfm_rag.extraction import DocumentYield, Extraction, Extractor, extract_all
from gfm_rag.graph_data import make_graph
from gfm_rag.incidence import incidence
from gfm_rag.index_folder import Document, IndexSettings
from gfm_rag.linkers import Linker
from gfm_rag.phrases import Triple, kept_triples

if TYPE_CHECKING:
    from torch_geometric.data import Data

log = logging.getLogger(__name__)

_SURROGATE = re.compile("[\ud800-\udfff]")


class KGIndex:
    """A graph of entities, the documents they come from, and both as tensors. Make one with a `from_...` method.

    Args:
        settings: how documents become triples.
        documents: by title, in id order.
        given: triples that belong to no document.
        equivalent: edges between entities of nearly the same name.
    """

    def __init__(
        self,
        settings: IndexSettings,
        documents: Iterable[Document],
        given: Iterable[Triple] = (),
        equivalent: Iterable[Triple] = (),
    ) -> None:
        self.settings = settings
        self._documents = {document.title: document for document in documents}
        self._given, self._equivalent = list(given), list(equivalent)
        self.encoder_name: str | None = None  # of the encoder that the index is used with, if it was bound to one

    @classmethod
    def from_documents(
        cls,
        documents: Mapping[str, str],
        extractor: Extractor,
        linker: Linker | None = None,
        *,
        compat: Literal["v1"] | None = None,
        multi_relation: bool = True,
        normalizer: Literal["unicode", "ascii"] = "unicode",
        add_title: bool = True,
        similarity_threshold: float = 0.8,
        max_sim_neighbors: int = 100,
        cache: str | os.PathLike[str] | None = None,
    ) -> Self:
        """Extracts triples from documents and joins them into a graph.

        Args:
            documents: text by title.
            extractor: passage to {"passage", "extracted_entities", "extracted_triples"}, see `Extractor`.
            linker: finds entities of nearly the same name, which edges "equivalent" join; None = no such edges.
            compat: "v1" builds the graph as the official release 1.0.0: the ASCII normaliser, one relation for each
                pair of entities (the last one, which an "equivalent" edge overwrites), and only documents with triples.
            multi_relation: keep all distinct triples instead of one for each pair.
            normalizer: of phrases, see `normalize_phrase`; the released weights saw "ascii".
            add_title: give the extractor the title and a newline before the text.
            similarity_threshold: smallest norm_score of an equivalent entity.
            max_sim_neighbors: neighbours looked at for each entity.
            cache: JSON-lines file of extractions; with it an interrupted run resumes.

        Raises:
            ValueError: an option outside its range, a document without text, or documents that gave no triple at all.
        """
        settings = IndexSettings(
            compat, multi_relation, normalizer, add_title, float(similarity_threshold), max_sim_neighbors
        )
        index = cls(settings, ())
        index.add_documents(documents, extractor, linker, cache=cache)
        return index

    @classmethod
    def from_triples(
        cls,
        triples: Iterable[Sequence[str]],
        document2entities: Mapping[str, Sequence[str]],
        texts: Mapping[str, str] | None = None,
    ) -> Self:
        """An index of a graph that exists already; all strings are taken as they are.

        Args:
            triples: (head, relation, tail).
            document2entities: entities by title. Those that no triple names become entities without edges.
            texts: document text by title, for what retrieval returns. Those of other titles become documents without
                entities.

        Raises:
            ValueError: a triple without exactly three strings, entities, a title or a text that are none, or texts of
                which none belongs to a document.
        """
        given: list[Triple] = []
        for number, triple in enumerate(triples):
            if not isinstance(triple, (list, tuple)) or len(triple) != 3 or not all(map(_is_text, triple)):
                raise ValueError(
                    f"triple {number} must be three strings head, relation, tail that UTF-8 can write, got {triple!r}"
                )
            given.append((triple[0], triple[1], triple[2]))
        if texts and not any(title in document2entities for title in texts):
            raise ValueError(
                f"none of the {len(texts)} texts has the title of a document; first: {next(iter(texts))!r}"
            )
        documents = []
        for title, entities in document2entities.items():
            text = (texts or {}).get(title, "")
            if isinstance(entities, str):
                raise ValueError(f"entities of document {title!r} must be a list of strings, got {entities[:80]!r}")
            if not all(map(_is_text, (title, text, *entities))):
                raise ValueError(
                    f"document {title!r}: title, text and each of its entities must be strings that UTF-8 can write, "
                    f"got {str(entities)[:80]!r}"
                )
            documents.append(Document(title, text, tuple(dict.fromkeys(entities))))
        without = [title for title in texts or () if title not in document2entities]
        if without:
            log.info("%d of %d documents have no entities; first: %r", len(without), len(texts or ()), without[0])
        documents += [Document(title, (texts or {})[title], ()) for title in without]
        return cls(IndexSettings(), documents, given)

    # The graph, in id order

    @cached_property
    def triples(self) -> list[Triple]:
        """(head, relation, tail) of every edge."""
        extracted = [triple for document in self._documents.values() for triple in document.triples]
        everything = [*self._given, *extracted, *self._equivalent]
        if self.settings.keeps_all_relations:
            return list(dict.fromkeys(everything))
        last = {(head, tail): relation for head, relation, tail in everything}
        return [(head, relation, tail) for (head, tail), relation in last.items()]

    @cached_property
    def entities(self) -> list[str]:
        """Names of the entities, numbered in the order in which triples (head, then tail) and documents name them."""
        of_triples = (name for head, _, tail in self.triples for name in (head, tail))
        of_documents = (name for document in self._documents.values() for name in document.entities)
        return list(dict.fromkeys([*of_triples, *of_documents]))

    @cached_property
    def relations(self) -> list[str]:
        """Names of the R direct relations."""
        return list(dict.fromkeys(relation for _, relation, _ in self.triples))

    @property
    def documents(self) -> list[str]:
        """Titles of the documents."""
        return list(self.document_entities)

    @cached_property
    def document_entities(self) -> dict[str, list[str]]:
        """Entities of each document; those without any are left out only with compat="v1"."""
        return {
            document.title: list(document.entities)
            for document in self._documents.values()
            if document.entities or self.settings.compat is None
        }

    @cached_property
    def entity_ids(self) -> dict[str, int]:
        """Id by name."""
        return {name: number for number, name in enumerate(self.entities)}

    @cached_property
    def entity_to_document(self) -> Tensor:
        """(N, D) sparse COO float32 matrix, 1 where the document names the entity."""
        pairs = [
            (self.entity_ids[name], column)
            for column, names in enumerate(self.document_entities.values())
            for name in names
        ]
        return incidence(pairs, (len(self.entities), len(self.document_entities)))

    def text(self, title: str) -> str:
        """The text of a document, "" if it was given without one; KeyError for an unknown title."""
        return self._documents[title].text

    def graph(self, encoder: Encoder) -> Data:
        """The graph as tensors, with inverse edges, and sentence embeddings of the relations.

        Args:
            encoder: embeds each relation's name, and "inverse_" + name for its inverse.

        Returns:
            `edge_index` (2, 2E) = direct edges, then the same turned around; `edge_type` (2E,) = r, then r + R;
            `rel_emb` (2R, encoder.dim); `num_nodes` N; `num_relations` 2R.

        Raises:
            ValueError: the index is bound to another encoder.
        """
        name = getattr(encoder, "name", None)
        if self.encoder_name is not None and name != self.encoder_name:
            raise ValueError(f"the index was made with the encoder {self.encoder_name!r}, got {name!r}")
        number = {relation: i for i, relation in enumerate(self.relations)}
        rows = [(self.entity_ids[head], self.entity_ids[tail], number[rel]) for head, rel, tail in self.triples]
        head, tail, relation = torch.tensor(rows, dtype=torch.long).reshape(-1, 3).unbind(1)
        names = [*self.relations, *(f"inverse_{relation_name}" for relation_name in self.relations)]
        return make_graph(
            edge_index=torch.stack([torch.cat([head, tail]), torch.cat([tail, head])]),
            edge_type=torch.cat([relation, relation + len(number)]),
            rel_emb=encode(encoder, names),
            num_nodes=len(self.entities),
            num_relations=2 * len(number),
        )

    # Changes

    def add_documents(
        self,
        documents: Mapping[str, str],
        extractor: Extractor,
        linker: Linker | None = None,
        *,
        cache: str | os.PathLike[str] | None = None,
    ) -> None:
        """Extracts further documents into the graph; the index changes only once all are extracted and linked.

        Args:
            documents: text by title. A title that the index has with the same text is left as it is, unless its
                extraction failed: that is tried again.
            extractor: as in `from_documents`.
            linker: equivalent edges are found anew among all entities; None leaves those that there are.
            cache: as in `from_documents`.

        Raises:
            ValueError: a title that the index has with another text, an empty title or text, or no triple from any of
                the new documents.
            TypeError: documents that are no mapping.
        """
        if not isinstance(documents, Mapping):
            raise TypeError(f"documents must be a mapping of title to text, got {type(documents).__name__}")
        known = {document.title: document.text for document in self._documents.values()}
        for title, text in documents.items():
            if not all(_is_text(value) and value.strip() for value in (title, text)):
                raise ValueError(f"document {title!r}: title and text must be non-empty strings that UTF-8 can write")
            if title in known and known[title] != text:
                raise ValueError(f"document {title!r} is in the index with another text: remove it first")
        failed = {d.title for d in self._documents.values() if d.extraction is not None and d.extraction.error}
        new = {title: text for title, text in documents.items() if title not in known or title in failed}
        passages = {title: f"{title}\n{text}" if self.settings.add_title else text for title, text in new.items()}
        extractions = extract_all(passages.values(), extractor, cache)
        added = [self._document(title, text, extractions[passages[title]]) for title, text in new.items()]
        _tell_yield(added, retried=known.keys() >= new.keys())
        together = self._documents | {document.title: document for document in added}
        grown = type(self)(self.settings, together.values(), self._given, self._equivalent)
        if linker is not None:
            grown._equivalent = []
            threshold, neighbors = self.settings.similarity_threshold, self.settings.max_sim_neighbors
            grown._equivalent = equivalent_edges(grown.entities, linker, threshold, neighbors)
        self._documents, self._equivalent = grown._documents, grown._equivalent
        self._forget_graph()

    def _document(self, title: str, text: str, extraction: Extraction) -> Document:
        triples = kept_triples(extraction, self.settings.phrases)
        entities = tuple(dict.fromkeys(name for head, _, tail in triples for name in (head, tail)))
        listed = extraction.get("extracted_entities") or ()
        dropped = len(extraction.get("extracted_triples") or ()) - len(triples)
        error = str(extraction.get("error") or "").encode("utf-8", "replace").decode()
        told = DocumentYield(len(listed), len(triples), dropped, error)
        return Document(title, text, entities, tuple(triples), told)

    def remove_documents(self, titles: Iterable[str]) -> None:
        """Takes documents out, with the triples and the entities that no other document has.

        Given triples go with an entity of theirs when the last document goes that `from_triples` gave it; entities that
        it gave without a document stay. Equivalent edges of the entities left stay as they are: an entity that
        had more than `max_sim_neighbors` of them gets further ones when documents are next added with a linker.

        Raises:
            ValueError: an unknown title, with nothing removed.
        """
        gone = list(dict.fromkeys([titles] if isinstance(titles, str) else titles))
        unknown = [title for title in gone if title not in self._documents]
        if unknown:
            raise ValueError(
                f"no document {unknown[0]!r} in the index (of {len(gone)} titles {len(unknown)} are unknown)"
            )
        removed = [self._documents.pop(title) for title in gone]
        left = {name for document in self._documents.values() for name in document.entities}
        # an extracted document brought its own triples; those given stand for themselves where none but it names them
        given_with = {name for document in removed if document.extraction is None for name in document.entities}
        alone = given_with - left
        self._given = [triple for triple in self._given if triple[0] not in alone and triple[2] not in alone]
        named = left.union(*((head, tail) for head, _, tail in self._given))
        self._equivalent = [triple for triple in self._equivalent if triple[0] in named and triple[2] in named]
        self._forget_graph()

    def _forget_graph(self) -> None:
        for name in ("triples", "entities", "relations", "document_entities", "entity_ids", "entity_to_document"):
            self.__dict__.pop(name, None)

    # Folders and reports

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Writes the index as a folder, atomically: index.json, documents.jsonl, graph.csv (see `index_folder`)."""
        parts = (list(self._documents.values()), self._given, self._equivalent, self.triples)
        index_folder.write(folder, self.settings, *parts, self.encoder_name)

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> Self:
        """Reads what `save` wrote; the graph is the same, ids included.

        Raises:
            ValueError: a folder that is no index, or is damaged or half-written; names the file.
        """
        settings, documents, given, equivalent, triples, encoder_name = index_folder.read(folder)
        index = cls(settings, documents, given, equivalent)
        if index.triples != triples:
            raise ValueError(f"{folder}/graph.csv: its {len(triples)} triples are not those of documents.jsonl")
        index.encoder_name = encoder_name
        return index

    def report(self) -> dict[str, Any]:
        """What the index holds, and what extraction gave for each document.

        In `per_document`, `listed` counts the entities that the extractor listed; those of the graph come from
        `triples` alone, so that a document without a kept triple has none (`documents_without_entities`).
        """
        told = {document.title: document.extraction for document in self._documents.values()}
        kinds = [relation == EQUIVALENT for _, relation, _ in self.triples]
        return {
            "documents": len(self._documents),
            "entities": len(self.entities),
            "relations": len(self.relations),
            "triples": len(self.triples) - sum(kinds),
            "equivalent": sum(kinds),
            "documents_without_entities": [d.title for d in self._documents.values() if not d.entities],
            "failed_documents": [title for title, seen in told.items() if seen is not None and seen.error],
            "per_document": {
                title: {
                    "listed" if key == "entities" else key: value for key, value in dataclasses.asdict(seen).items()
                }
                for title, seen in told.items()
                if seen is not None
            },
        }


def _is_text(value: object) -> bool:
    """Whether it is a string that files can hold: half of a surrogate pair, as broken JSON has it, is none."""
    return isinstance(value, str) and (value.isascii() or not _SURROGATE.search(value))


def _tell_yield(documents: Sequence[Document], retried: bool) -> None:
    """Says how many documents gave nothing; an error if none gave anything, unless all were tried before."""
    seen = [(document.title, document.extraction) for document in documents if document.extraction is not None]
    empty = [title for title, told in seen if not told.triples]
    errors = [f"{title!r}: {told.error}" for title, told in seen if told.error]
    if seen and len(empty) == len(seen) and not retried:
        why = f"; the first error is {errors[0]}" if errors else ""
        raise ValueError(f"not one triple was extracted from {len(seen)} documents{why}")
    if empty:
        log.warning("%d of %d documents gave no triple (see report()); first: %r", len(empty), len(seen), empty[0])
    if errors:
        log.warning("extraction failed for %d documents; first: %s", len(errors), errors[0])
