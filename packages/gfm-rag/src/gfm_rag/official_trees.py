"""The data folders of the official code: v1 (kg.txt, document2entities.json) and v2 (nodes and edges as CSV)."""

from __future__ import annotations

import ast
import dataclasses
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from gfm_rag.kg_files import read_kg
from gfm_rag.kg_index import KGIndex
from gfm_rag.multihop import read_documents
from gfm_rag.text_files import csv_rows
from nips_common.artifacts import read_json

_MENTIONED = "is_mentioned_in"  # from an entity to a document, in v2


def read_official_tree(root: str | Path, strict: bool = True) -> KGIndex:
    """An index from ROOT/raw and ROOT/processed/stage1 (or from that last folder alone), of either form.

    The index has the ASCII normaliser, with which the official code writes phrases and names in questions.

    Args:
        root: the folder of a data set.
        strict: refuse malformed lines of kg.txt; otherwise they are skipped and counted.

    Raises:
        ValueError: a folder of neither form, or a malformed file; names it.
    """
    root = Path(root)
    stage1 = root / "processed" / "stage1" if (root / "processed" / "stage1").is_dir() else root
    texts: dict[str, str] = {}
    for name in ("dataset_corpus.json", "documents.json"):
        if (root / "raw" / name).is_file():
            texts = read_documents(root / "raw" / name)
    if (stage1 / "kg.txt").is_file():
        triples, entities = read_kg(stage1 / "kg.txt", strict), read_json(stage1 / "document2entities.json")
    elif (stage1 / "edges.csv").is_file():
        triples, entities = _read_v2(stage1)
    else:
        raise ValueError(f"{root}: expected processed/stage1 with kg.txt (v1), or with nodes.csv and edges.csv (v2)")
    index = KGIndex.from_triples(triples, entities, texts)
    index.settings = dataclasses.replace(index.settings, normalizer="ascii")
    return index


def _read_v2(folder: Path) -> tuple[list[tuple[str, str, str]], dict[str, list[str]]]:
    """Triples between entities, and the entities of each document."""
    nodes = _rows(folder / "nodes.csv", ("name", "type"))
    entities: dict[str, list[str]] = {row["name"]: [] for row in nodes if row["type"] == "document"}
    documents = set(entities)
    triples: list[tuple[str, str, str]] = []
    for row in _rows(folder / "edges.csv", ("source", "relation", "target")):
        if row["relation"] == _MENTIONED:
            entities.setdefault(row["target"], []).append(row["source"])
        elif not {row["source"], row["target"]} & documents:
            triples.append((row["source"], row["relation"], row["target"]))
    return triples, entities


def _rows(path: Path, columns: tuple[str, ...]) -> Iterator[dict[str, str]]:
    rows = csv_rows(path)
    _, header = next(rows, (0, []))
    missing = [name for name in columns if name not in header]
    if missing:
        raise ValueError(f"{path}: lacks the columns {', '.join(missing)}, it has {', '.join(header)}")
    for number, fields in rows:
        if len(fields) != len(header):
            raise ValueError(f"{path}, line {number}: another number of fields than the header")
        yield dict(zip(header, fields, strict=True))


def read_attributes(cell: str) -> dict[str, Any]:
    """The attributes of a v2 cell: a JSON object or a Python literal. It is parsed, never evaluated.

    Raises:
        ValueError: anything else.
    """
    if not cell.strip():
        return {}
    for parse in (json.loads, ast.literal_eval):
        try:
            found = parse(cell)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            continue
        if isinstance(found, dict):
            return found
    raise ValueError(f"attributes must be a JSON object or a dictionary of literals, got {cell[:60]!r}")


def question_of_v2(item: Mapping[str, Any]) -> dict[str, Any]:
    """A v2 question in the form of v1: supporting_facts, question_entities and supporting_entities."""
    question = {key: value for key, value in item.items() if key not in ("start_nodes", "target_nodes")}
    question["supporting_facts"] = list(item.get("supporting_documents", item.get("supporting_facts", ())))
    for key, name in (("start_nodes", "question_entities"), ("target_nodes", "supporting_entities")):
        if key in item:
            question[name] = list(item[key].get("entity", ()))
    question.pop("supporting_documents", None)
    return question
