"""Readers of HotpotQA, 2WikiMultihopQA and MuSiQue, and of documents and questions in general."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

from gfm_rag.text_files import json_lines, parse_json, read_text

log = logging.getLogger(__name__)

MultihopFormat = Literal["hotpotqa", "2wiki", "musique"]


class MultihopData(NamedTuple):
    """Questions and the passages of all of them as one corpus.

    Args:
        documents: text by title. Passages of one title with another text get the title "... (2)", "... (3)".
        questions: {"id", "question", "answer", "answer_aliases", "supporting_facts": titles}.
    """

    documents: dict[str, str]
    questions: list[dict[str, Any]]


class _Corpus:
    def __init__(self) -> None:
        self.documents: dict[str, str] = {}
        self.empty = 0  # passages without text, which no index takes
        self._versions: dict[str, dict[str, str]] = {}  # title -> text -> the title it got
        self._numbers: dict[str, int] = {}  # title -> the last number that it got

    def add(self, title: str, text: str) -> str:
        if not title.strip() or not text.strip():
            self.empty += 1
            return title
        versions = self._versions.setdefault(title, {})
        if text not in versions:
            name = title
            while name in self.documents:
                self._numbers[title] = self._numbers.get(title, 1) + 1
                name = f"{title} ({self._numbers[title]})"
            versions[text] = name
            self.documents[name] = text
        return versions[text]


def read_multihop(
    path: str | Path, form: MultihopFormat, aliases: Mapping[str, Iterable[str]] | None = None
) -> MultihopData:
    """Reads a file of one of the data sets in the form in which it is published.

    Args:
        path: a JSON list (HotpotQA, 2Wiki) or JSON lines (MuSiQue).
        form: which data set.
        aliases: further answers by question id (2Wiki keeps them in a file of its own).

    Raises:
        ValueError: an unknown form, or an entry without the fields that it needs; names the file and the entry.
    """
    if form not in get_args(MultihopFormat):
        raise ValueError(f"form must be one of {', '.join(get_args(MultihopFormat))}, got {form!r}")
    corpus, questions = _Corpus(), []
    read = _musique if form == "musique" else _hotpotqa
    for number, entry in enumerate(read_records(path), 1):
        try:
            question = read(entry, corpus)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ValueError(
                f"{path}, entry {number}: not of the form {form} ({type(error).__name__}: {error})"
            ) from error
        question["answer_aliases"] += [a for a in (aliases or {}).get(question["id"], ()) if a != question["answer"]]
        questions.append(question)
    if corpus.empty:
        log.warning("%s: left out %d passages without title or text", path, corpus.empty)
    return MultihopData(corpus.documents, questions)


def _hotpotqa(entry: Mapping[str, Any], corpus: _Corpus) -> dict[str, Any]:
    names = {title: corpus.add(title, "".join(sentences).strip()) for title, sentences in entry["context"]}
    titles = dict.fromkeys(title for title, _ in entry["supporting_facts"])
    return {
        "id": entry["_id"],
        "question": entry["question"],
        "answer": entry["answer"],
        "answer_aliases": [],
        "supporting_facts": [names.get(title, title) for title in titles],
    }


def _musique(entry: Mapping[str, Any], corpus: _Corpus) -> dict[str, Any]:
    supporting = []
    for paragraph in entry["paragraphs"]:
        name = corpus.add(paragraph["title"], paragraph["paragraph_text"])
        if paragraph["is_supporting"]:
            supporting.append(name)
    return {
        "id": entry["id"],
        "question": entry["question"],
        "answer": entry["answer"],
        "answer_aliases": list(entry.get("answer_aliases") or []),
        "supporting_facts": list(dict.fromkeys(supporting)),
    }


def read_records(path: str | Path) -> Iterator[dict[str, Any]]:
    """The objects of a JSON list or of JSON lines; ValueError names the file and the line."""
    path = Path(path)
    if path.suffix == ".jsonl":
        for number, entry in json_lines(path):
            yield _object(entry, f"{path}, line {number}")
        return
    content = parse_json(read_text(path), str(path))
    if not isinstance(content, list):
        raise ValueError(f"{path}: expected a JSON list, got {type(content).__name__}")
    for number, entry in enumerate(content, 1):
        yield _object(entry, f"{path}, entry {number}")


def read_questions(path: str | Path) -> list[dict[str, Any]]:
    """The questions of a JSON list or of JSON lines.

    Raises:
        ValueError: an entry without a text under question, or titles that are no list of texts; names file and entry.
    """
    found = []
    for number, item in enumerate(read_records(path), 1):
        where = f"{path}, entry {number}"
        if not isinstance(item.get("question"), str) or not item["question"].strip():
            raise ValueError(f"{where}: expected a text under question, got the keys {', '.join(item) or 'none'}")
        for key in ("supporting_facts", "supporting_documents"):
            titles = item.get(key, [])
            if not isinstance(titles, list) or not all(isinstance(title, str) for title in titles):
                raise ValueError(f"{where}: {key} must be a list of titles, got {titles!r:.80}")
        found.append(item)
    return found


def _object(entry: Any, where: str) -> dict[str, Any]:
    if not isinstance(entry, dict):
        raise ValueError(f"{where}: expected a JSON object, got {type(entry).__name__}")
    return entry


def _texts(folder: Path) -> list[Path]:
    files = sorted(file for file in folder.rglob("*") if file.suffix.lower() in (".txt", ".md") and file.is_file())
    if not files:
        raise ValueError(f"{folder}: no .txt or .md file in this folder")
    return files


def read_documents(path: str | Path) -> dict[str, str]:
    """Documents {title: text} of a JSON object (the official dataset_corpus.json), of JSON lines, or of a folder.

    JSON lines hold title and text. Of a folder the .txt and .md files are read; their paths without the suffix are the
    titles.

    Raises:
        ValueError: a title that occurs twice, an empty title or text, no document, or another form; names the file and
            the place.
    """
    path = Path(path)
    if path.is_dir():
        pairs = [(file.relative_to(path).with_suffix("").as_posix(), file.read_text("utf-8")) for file in _texts(path)]
    elif path.suffix == ".jsonl":
        pairs = []
        for number, record in enumerate(read_records(path), 1):
            if not {"title", "text"} <= record.keys():
                raise ValueError(
                    f"{path}, document {number}: expected the keys title and text, got {', '.join(record)}"
                )
            pairs.append((record["title"], record["text"]))
    else:
        found = parse_json(read_text(path), str(path), pairs=list)
        if not isinstance(found, list) or not all(isinstance(pair, tuple) for pair in found):
            raise ValueError(f"{path}: expected a JSON object of texts by title")
        pairs = found
    if not pairs:
        raise ValueError(f"{path}: holds no document")
    documents: dict[str, str] = {}
    for number, (title, text) in enumerate(pairs, 1):
        if not isinstance(title, str) or not title.strip() or not isinstance(text, str) or not text.strip():
            raise ValueError(f"{path}, document {number} {title!r}: title and text must be non-empty strings")
        if title in documents:
            raise ValueError(f"{path}, document {number}: the title {title!r} occurs twice")
        documents[title] = text
    return documents
