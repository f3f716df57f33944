"""An index as a folder.

index.json: kind, format version, settings, counts. documents.jsonl: a line for each document with text, entities,
triples and what extraction gave. graph.csv: all triples in id order (head, relation, tail), readable on its own.
given.csv and equivalent.csv: those that belong to no document.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gfm_rag.extraction import DocumentYield
from gfm_rag.kg_files import read_kg, write_kg
from gfm_rag.phrases import Normalizer, Triple, check_normalizer
from gfm_rag.text_files import json_lines
from nips_common.artifacts import atomic_folder, check_keys, read_json, recover, write_json

KIND, FORMAT_VERSION = "gfm-rag index", 1
_FILES = ("graph.csv", "given.csv", "equivalent.csv", "documents.jsonl")


@dataclasses.dataclass(frozen=True)
class IndexSettings:
    """How documents become triples; the arguments of `KGIndex.from_documents`.

    Raises:
        ValueError: a value outside its range; names it and what is accepted.
    """

    compat: str | None = None
    multi_relation: bool = True
    normalizer: Normalizer = "unicode"
    add_title: bool = True
    similarity_threshold: float = 0.8
    max_sim_neighbors: int = 100

    def __post_init__(self) -> None:
        if self.compat not in (None, "v1"):
            raise ValueError(f"compat must be None or 'v1', got {self.compat!r}")
        check_normalizer(self.normalizer)
        for name in ("multi_relation", "add_title"):
            if not isinstance(getattr(self, name), bool):
                raise ValueError(f"{name} must be True or False, got {getattr(self, name)!r}")
        threshold, neighbors = self.similarity_threshold, self.max_sim_neighbors
        if not isinstance(threshold, (int, float)) or not 0 <= threshold <= 1:
            raise ValueError(f"similarity_threshold must be between 0 and 1, got {threshold!r}")
        if not isinstance(neighbors, int) or neighbors < 1:
            raise ValueError(f"max_sim_neighbors must be at least 1, got {neighbors!r}")

    @property
    def keeps_all_relations(self) -> bool:
        """Whether a pair of entities may have several relations."""
        return self.multi_relation and self.compat is None

    @property
    def phrases(self) -> Normalizer:
        """The normaliser of phrases."""
        return self.normalizer if self.compat is None else "ascii"


@dataclasses.dataclass(frozen=True)
class Document:
    """A document of an index.

    Args:
        title: unique.
        text: what retrieval returns.
        entities: names, each once.
        triples: kept ones.
        extraction: what the extractor gave; None if the triples did not come from one.
    """

    title: str
    text: str
    entities: tuple[str, ...]
    triples: tuple[Triple, ...] = ()
    extraction: DocumentYield | None = None


def write(
    folder: str | os.PathLike[str],
    settings: IndexSettings,
    documents: Sequence[Document],
    given: Sequence[Triple],
    equivalent: Sequence[Triple],
    triples: Sequence[Triple],
    encoder_name: str | None,
) -> None:
    """Writes all files into a temporary folder that then takes the place of `folder`."""
    counts = {"documents": len(documents), "triples": len(triples)}
    with atomic_folder(Path(folder)) as new:
        with (new / "documents.jsonl").open("w", encoding="utf-8") as file:
            for document in documents:
                file.write(json.dumps(dataclasses.asdict(document), ensure_ascii=False) + "\n")
        for name, rows in (("graph", triples), ("given", given), ("equivalent", equivalent)):
            write_kg(new / f"{name}.csv", rows)
        write_json(
            new / "index.json",
            {
                "kind": KIND,
                "format_version": FORMAT_VERSION,
                "encoder": encoder_name,
                "settings": dataclasses.asdict(settings),
                "counts": counts,
            },
        )


def read(
    folder: str | os.PathLike[str],
) -> tuple[IndexSettings, list[Document], list[Triple], list[Triple], list[Triple], str | None]:
    """Settings, documents, given, equivalent and all triples, name of the encoder.

    Raises:
        FileNotFoundError: no such folder.
        ValueError: not an index, or a damaged or half-written one; names the file.
    """
    path = Path(folder)
    recover(path)
    if not path.is_dir():
        raise FileNotFoundError(f"{path}: {'a file, not an index folder' if path.exists() else 'no such index folder'}")
    missing = [name for name in ("index.json", *_FILES) if not (path / name).is_file()]
    if missing:
        raise ValueError(f"{path} is no index, or a half-written one: {', '.join(missing)} missing")
    head = read_json(path / "index.json")
    keys = ["kind", "format_version", "encoder", "settings", "counts"]
    if head.get("kind") != KIND or head.get("format_version") != FORMAT_VERSION:
        raise ValueError(
            f"{path}/index.json: expected kind {KIND!r} of format version {FORMAT_VERSION}, "
            f"got {head.get('kind')!r}, {head.get('format_version')!r}"
        )
    check_keys(head, keys, keys, f"{path}/index.json")
    settings = _settings(head["settings"], f"{path}/index.json: settings")
    if not isinstance(head["encoder"], str | None):
        raise ValueError(f"{path}/index.json: encoder must be a name or null, got {head['encoder']!r}")
    documents = _read_documents(path / "documents.jsonl")
    graph, given, equivalent = (read_kg(path / f"{name}.csv") for name in ("graph", "given", "equivalent"))
    found = {"documents": len(documents), "triples": len(graph)}
    if found != head["counts"]:
        raise ValueError(f"{path}: damaged or half-written: index.json counts {head['counts']}, the files hold {found}")
    return settings, documents, given, equivalent, graph, head["encoder"]


def _settings(found: Any, where: str) -> IndexSettings:
    if not isinstance(found, dict):
        raise ValueError(f"{where}: expected a JSON object, got {type(found).__name__}")
    names = [field.name for field in dataclasses.fields(IndexSettings)]
    check_keys(found, names, names, where)
    try:
        return IndexSettings(**found)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from error


def _read_documents(path: Path) -> list[Document]:
    documents: dict[str, Document] = {}
    for number, row in json_lines(path):
        try:
            document = _document(row)
        except (ValueError, TypeError, KeyError) as error:
            raise ValueError(f"{path}, line {number}: not a document of an index ({error})") from error
        if document.title in documents:
            raise ValueError(f"{path}, line {number}: second document {document.title!r}")
        documents[document.title] = document
    return list(documents.values())


def _document(row: dict[str, Any]) -> Document:
    title, text, entities, told = row["title"], row["text"], row["entities"], row["extraction"]
    triples = tuple((head, relation, tail) for head, relation, tail in row["triples"])
    strings = (title, text, *entities, *(part for triple in triples for part in triple))
    if not isinstance(entities, list) or not all(isinstance(value, str) for value in strings):
        raise ValueError("title, text, entities and the parts of triples must be strings")
    return Document(title, text, tuple(entities), triples, None if told is None else DocumentYield(**told))
