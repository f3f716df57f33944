"""Questions of a data set with the entities that they name and those that answer them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from gfm_rag.kg_index import KGIndex
from gfm_rag.linkers import Linker
from gfm_rag.phrases import normalize_phrase

log = logging.getLogger(__name__)

NamedEntities = Callable[[str], list[str]]


def prepare_questions(
    index: KGIndex, items: Iterable[Mapping[str, Any]], ner: NamedEntities, linker: Linker
) -> list[dict[str, Any]]:
    """Adds `question_entities` and `supporting_entities` to questions.

    Args:
        index: the graph.
        items: with `question` and `supporting_facts` (titles).
        ner: the names in a question.
        linker: is given the graph's entities; each name becomes its nearest one.

    Returns:
        Copies of the items. A question in which nothing is named has no question entities; titles that the index does
        not have add none; an entity of several supporting documents is listed for each of them [code].
    """
    rows = [dict(item) for item in items]
    linker.index(index.entities)
    names = [link_names(ner(row["question"]), index) for row in rows]
    wanted = list(dict.fromkeys(name for found in names for name in found))
    linked = linker(wanted, top_k=1) if wanted else {}
    for row, found in zip(rows, names, strict=True):
        row["question_entities"] = [linked[name][0]["entity"] for name in found if linked.get(name)]
        titles = dict.fromkeys(row.get("supporting_facts", ()))
        row["supporting_entities"] = [name for title in titles for name in index.document_entities.get(title, ())]
    return rows


def start_entities(question: str, index: KGIndex, ner: NamedEntities, linker: Linker) -> list[str]:
    """The graph's entities from which a question starts: the nearest of each name, or else of the whole question.

    Raises:
        TypeError: a `ner` that gives something else than a list of names.
        ValueError: the linker names an entity that the graph does not have; it was given others to index since.
    """
    names = link_names(ner(question), index)
    if not names:
        log.info("no entity named in %r; linking the whole question", question)
        names = link_names([question], index)
    linked = linker(names, top_k=1) if names else {}
    starts = list(dict.fromkeys(linked[name][0]["entity"] for name in names if linked.get(name)))
    for name in starts:
        if name not in index.entity_ids:
            raise ValueError(f"start entity {name!r} is not in the graph: the linker has the entities of another one")
    return starts


def link_names(names: Iterable[str], index: KGIndex) -> list[str]:
    """Names as the graph writes them, each once, without those that normalisation leaves nothing of.

    Raises:
        TypeError: no list of strings, but a string, say.
    """
    found = list(names) if isinstance(names, Iterable) and not isinstance(names, (str, Mapping)) else None
    if found is None or not all(isinstance(name, str) for name in found):
        raise TypeError(f"ner must give a list of the names in a question, got {names!r}; an extractor has `names`")
    # an entity of given triples need not be written as normalisation would write it
    written = (name if name in index.entity_ids else normalize_phrase(name, index.settings.phrases) for name in found)
    return list(dict.fromkeys(name for name in written if name.strip()))
