"""Documents through an extractor: what it must give back, the cache that makes it resumable, and what came of it."""

from __future__ import annotations

import dataclasses
import json
import logging
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol, TextIO

from nips_common.cli import progress

log = logging.getLogger(__name__)

Extraction = dict[str, Any]


class Extractor(Protocol):
    """Turns a passage into {"passage", "extracted_entities", "extracted_triples": [[head, relation, tail], ...]}.

    One that can work on several passages at a time also has `map(passages)`, which yields the extractions in any order.
    A failure that other passages need not share is reported as {"passage", "error", ...} instead of raised.
    """

    def __call__(self, passage: str) -> Extraction:
        """The extraction of a passage."""
        ...


@dataclasses.dataclass(frozen=True)
class DocumentYield:
    """What extraction gave for a document.

    Args:
        entities: entities that the extractor listed (statistics only: the graph's are those of kept triples).
        triples: kept triples.
        dropped: triples that were malformed or empty after normalisation.
        error: why there is nothing, or "".
    """

    entities: int
    triples: int
    dropped: int
    error: str = ""


def extract_all(
    passages: Iterable[str], extractor: Extractor, cache: str | os.PathLike[str] | None = None
) -> dict[str, Extraction]:
    """Extractions by passage; those that the cache holds are not made again.

    Args:
        passages: texts.
        extractor: see `Extractor`.
        cache: a JSON-lines file that grows with every extraction, so that an interrupted run resumes. Failures are not
            written, so that the next run tries them again.

    Raises:
        ValueError: a damaged cache (names file and line), or an extractor that gives something else.
    """
    wanted = list(dict.fromkeys(passages))
    known = {} if cache is None else read_cache(cache)
    done = {passage: known[passage] for passage in wanted if passage in known}
    missing = [passage for passage in wanted if passage not in done]
    if done:
        log.info("%d of %d passages come from the cache %s", len(done), len(wanted), cache)
    if not missing:
        return done
    mapped: Any = getattr(extractor, "map", None)
    results: Iterator[Extraction] = mapped(missing) if mapped else map(extractor, missing)
    file = None if cache is None else _open_cache(Path(cache))
    try:
        for extraction in progress(results, "extracting", total=len(missing)):
            passage = _checked(extraction)
            done[passage] = extraction
            if file is not None and not extraction.get("error"):
                # ASCII: a reply may hold half of a surrogate pair, and a killed run leaves no half of a character
                file.write(json.dumps(extraction) + "\n")
                file.flush()
    finally:
        if file is not None:
            file.close()
    absent = [passage for passage in missing if passage not in done]
    if absent:
        raise ValueError(f"the extractor gave nothing for {len(absent)} passages, the first begins {absent[0][:60]!r}")
    return done


def _checked(extraction: object) -> str:
    if not isinstance(extraction, Mapping) or not isinstance(extraction.get("passage"), str):
        raise ValueError(
            "an extractor must return a dictionary with passage, extracted_entities and extracted_triples, "
            f"got {type(extraction).__name__}"
        )
    passage: str = extraction["passage"]
    for key in ("extracted_entities", "extracted_triples"):
        if not isinstance(extraction.get(key, []), (list, tuple)):
            raise ValueError(f"an extractor's {key} must be a list, got {type(extraction[key]).__name__}")
    return passage


def read_cache(path: str | os.PathLike[str]) -> dict[str, Extraction]:
    """The extractions of a cache by passage; a last line that a killed run left unfinished does not count."""
    found: dict[str, Extraction] = {}
    if not Path(path).exists():
        return found
    lines = Path(path).read_text("utf-8").split("\n")
    for number, line in enumerate(lines, 1):
        if not line:
            continue
        try:
            extraction = json.loads(line)
            found[_checked(extraction)] = extraction
        except ValueError as error:
            if number == len(lines):  # no newline behind it
                break
            raise ValueError(f"{path}, line {number}: not an extraction ({error})") from error
    return found


def _open_cache(path: Path) -> TextIO:
    """Opens a cache to add to it, without the unfinished last line of a killed run."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists():
        content = path.read_bytes()
        whole = content.rfind(b"\n") + 1
        if whole < len(content):
            os.truncate(path, whole)
    return path.open("a", encoding="utf-8")
