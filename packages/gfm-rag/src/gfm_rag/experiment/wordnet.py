"""WordNet's noun synsets as documents and a graph: glosses are real texts, pointers are real relations.

The questions are generated from templates over two pointers; text and graph are not.
"""

from __future__ import annotations

import dataclasses
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from gfm_rag.kg_index import KGIndex

KIND, INSTANCE, PART = "is a kind of", "is an instance of", "has part"
_POINTERS = {"@": KIND, "@i": INSTANCE, "%p": PART}


@dataclasses.dataclass(frozen=True)
class Synset:
    """A noun synset.

    Args:
        key: its offset in the file.
        lemma: its first word.
        gloss: definition and examples.
        pointers: (relation, key) to other noun synsets.
    """

    key: str
    lemma: str
    gloss: str
    pointers: tuple[tuple[str, str], ...]


def read_nouns(path: Path) -> dict[str, Synset]:
    """The synsets of a data.noun file by key.

    Raises:
        ValueError: a file of another form.
    """
    synsets: dict[str, Synset] = {}
    for line in path.read_text("utf-8").splitlines():
        if line.startswith(" "):  # the licence
            continue
        fields, _, gloss = line.partition(" | ")
        parts = fields.split()
        if len(parts) < 6 or not re.fullmatch(r"\d{8}", parts[0]):
            raise ValueError(f"{path}: not a line of a WordNet data file: {line[:60]!r}")
        words = int(parts[3], 16)
        count = int(parts[4 + 2 * words])
        rest = parts[5 + 2 * words : 5 + 2 * words + 4 * count]
        pointers = tuple(
            (_POINTERS[symbol], key)
            for symbol, key, word_class in zip(rest[::4], rest[1::4], rest[2::4], strict=True)
            if symbol in _POINTERS and word_class == "n"
        )
        synsets[parts[0]] = Synset(parts[0], parts[4].replace("_", " "), gloss.strip(), pointers)
    return synsets


def below(synsets: dict[str, Synset], roots: Iterable[str], limit: int) -> list[Synset]:
    """Synsets under those whose lemma is a root, their parts included, breadth first, `limit` of them at most."""
    children: dict[str, list[str]] = defaultdict(list)
    for synset in synsets.values():
        for relation, key in synset.pointers:
            if relation == PART:
                children[synset.key].append(key)
            else:
                children[key].append(synset.key)
    wanted = list(roots)
    queue = [min(key for key, synset in synsets.items() if synset.lemma == root) for root in wanted]
    found: dict[str, None] = dict.fromkeys(queue)
    for key in queue:  # grows while it is walked
        for child in children[key]:
            if child not in found and len(found) < limit:
                found[child] = None
                queue.append(child)
    return [synsets[key] for key in found]


def index_of(synsets: Iterable[Synset]) -> tuple[KGIndex, dict[str, str]]:
    """An index with a document for each synset, and the entity name of each key; triples stay within the synsets."""
    chosen = list(synsets)
    names: dict[str, str] = {}
    taken: dict[str, int] = defaultdict(int)
    for synset in chosen:
        taken[synset.lemma] += 1
        number = taken[synset.lemma]
        names[synset.key] = synset.lemma if number == 1 else f"{synset.lemma} {number}"
    triples, entities, texts = [], {}, {}
    for synset in chosen:
        name = names[synset.key]
        own = [(name, relation, names[key]) for relation, key in synset.pointers if key in names]
        triples += own
        entities[name] = [name, *(tail for _, _, tail in own)]
        texts[name] = synset.gloss
    return KGIndex.from_triples(triples, entities, texts), names


_TEMPLATES = (
    ((f"-{KIND}", PART), "Which thing is a part of a kind of {}?"),
    ((f"-{PART}", KIND), "What is the thing that has {} as a part a kind of?"),
    ((PART, PART), "Which thing is a part of a part of {}?"),
    ((KIND, PART), "Which part does the thing that {} is a kind of have?"),
    ((f"-{PART}", f"-{PART}"), "What has a part of which {} is a part?"),
    ((KIND, KIND), "What is the thing that {} is a kind of a kind of?"),
)


def two_hop_questions(index: KGIndex, per_template: int) -> list[dict[str, Any]]:
    """Questions whose answer is the only one at the end of two pointers, with both documents on the way as support."""
    ahead: dict[tuple[str, str], list[str]] = defaultdict(list)
    for head, relation, tail in index.triples:
        relation = KIND if relation == INSTANCE else relation
        ahead[head, relation].append(tail)
        ahead[tail, f"-{relation}"].append(head)
    questions = []
    for number, (hops, text) in enumerate(_TEMPLATES):
        found = [
            {
                "id": f"{number}-{start}",
                "question": text.format(start),
                "answer": end,
                "supporting_facts": [middle, end],
            }
            for start in index.entities
            for middle, end in _only(_ways(ahead, start, hops))
        ]
        # spread over the branch, not only its top
        step = max(1, len(found) // per_template)
        questions += found[::step][:per_template]
    return questions


def _ways(ahead: dict[tuple[str, str], list[str]], start: str, hops: tuple[str, str]) -> list[tuple[str, str]]:
    return [
        (middle, end)
        for middle in ahead.get((start, hops[0]), ())
        for end in ahead.get((middle, hops[1]), ())
        if len({start, middle, end}) == 3
    ]


def _only(ways: list[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    if len(ways) == 1:
        yield ways[0]
