"""The index: building, growing, shrinking, folders, reports, and what is refused."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gfm_rag import EmbeddingLinker, HashingEncoder, KGIndex, NgramLinker, normalize_phrase, read_kg
from gfm_rag.entity_resolution import equivalent_edges

TEXTS = {
    "Ada Lovelace": [["Ada Lovelace", "worked with", "Charles Babbage"], ["Ada Lovelace", "met", "Charles Babbage"]],
    "Charles Babbage": [
        ["Charles Babbage", "designed", "Analytical Engine"],
        ["Charles Babbage", "lived in", "London"],
    ],
    "London": [["London", "is", "capital"], ["Londons", "near", "Thames"]],
    "Empty": [],
}
DOCUMENTS = {title: f"About {title}." for title in TEXTS}


class Extractor:
    """Gives the triples of a table, and remembers what it was asked."""

    def __init__(self, table: dict[str, Any] = TEXTS) -> None:
        self.table, self.asked = table, []  # type: ignore[var-annotated]

    def __call__(self, passage: str) -> dict[str, Any]:
        self.asked.append(passage)
        title = passage.split("\n")[0]
        return {"passage": passage, "extracted_entities": [title], "extracted_triples": self.table[title]}


def build(documents: dict[str, str] = DOCUMENTS, linker: bool = True, **options: Any) -> KGIndex:
    return KGIndex.from_documents(documents, Extractor(), NgramLinker() if linker else None, **options)


def in_names(index: KGIndex) -> tuple[set[Any], dict[str, list[str]]]:
    return set(index.triples), index.document_entities


def same_graph(first: KGIndex, second: KGIndex) -> bool:
    a, b = first.graph(HashingEncoder(8)), second.graph(HashingEncoder(8))
    return all(torch.equal(a[key], b[key]) for key in ("edge_index", "edge_type", "rel_emb"))


def test_the_default_index_keeps_relations_documents_and_equivalents() -> None:
    index = build()
    assert [t for t in index.triples if t[0] == "ada lovelace"] == [
        ("ada lovelace", "worked with", "charles babbage"),
        ("ada lovelace", "met", "charles babbage"),
    ]
    assert index.documents == list(DOCUMENTS)
    assert index.document_entities["Empty"] == []
    assert {("london", "equivalent", "londons"), ("londons", "equivalent", "london")} == {
        t for t in build(similarity_threshold=0.5).triples if t[1] == "equivalent"
    }
    matrix = index.entity_to_document.to_dense()
    for column, names in enumerate(index.document_entities.values()):
        assert {index.entities[row] for row in matrix[:, column].nonzero().flatten().tolist()} == set(names)
    assert index.text("London") == "About London."


def test_the_compatible_index_keeps_one_relation_of_a_pair_and_no_empty_document() -> None:
    index = build(compat="v1", linker=False)
    assert [t for t in index.triples if t[0] == "ada lovelace"] == [("ada lovelace", "met", "charles babbage")]
    assert "Empty" not in index.documents
    assert build(multi_relation=False, linker=False).documents == list(DOCUMENTS)


def test_adding_a_document_and_taking_it_out_restores_the_graph() -> None:
    few = {title: text for title, text in DOCUMENTS.items() if title != "London"}
    index, before = build(few), in_names(build(few))
    index.add_documents({"London": DOCUMENTS["London"]}, Extractor(), NgramLinker())
    assert in_names(index)[0] == set(build().triples)
    index.remove_documents(["London"])
    assert in_names(index) == before
    assert same_graph(index, build(few))


def test_an_entity_goes_with_its_last_document() -> None:
    index = build(linker=False)
    index.remove_documents(["Charles Babbage"])
    assert "analytical engine" not in index.entities
    assert "charles babbage" in index.entities  # Ada's document names him
    index = KGIndex.from_triples([("a", "r", "b"), ("b", "r", "c"), ("d", "r", "a")], {"A": ["a"], "B": ["b", "a"]})
    index.remove_documents("B")
    assert index.triples == [("d", "r", "a")]  # c belongs to no document: it went with its last edge


def test_indexing_twice_changes_nothing_and_asks_nothing_again() -> None:
    index, extractor = build(), Extractor()
    before = index.triples
    index.add_documents(DOCUMENTS, extractor)
    assert index.triples == before
    assert extractor.asked == []
    with pytest.raises(ValueError, match="'London' is in the index with another text"):
        index.add_documents({"London": "Something else."}, extractor)


def test_a_saved_index_comes_back_with_the_same_ids(tmp_path: Path) -> None:
    index = build(similarity_threshold=0.5)
    index.save(tmp_path / "index")
    loaded = KGIndex.load(tmp_path / "index")
    assert (loaded.entities, loaded.relations, loaded.triples) == (index.entities, index.relations, index.triples)
    assert loaded.document_entities == index.document_entities
    assert torch.equal(loaded.entity_to_document.to_dense(), index.entity_to_document.to_dense())
    assert same_graph(loaded, index)
    assert loaded.report() == index.report()
    assert read_kg(tmp_path / "index" / "graph.csv") == index.triples
    loaded.remove_documents(["London"])
    loaded.save(tmp_path / "index")
    assert KGIndex.load(tmp_path / "index").documents == ["Ada Lovelace", "Charles Babbage", "Empty"]


def test_strings_of_given_triples_stay_as_they_are(tmp_path: Path) -> None:
    rows = [('a "quoted", one', "has\ttab", " spaced "), ("日本", "の首都", "東京")]
    index = KGIndex.from_triples(rows, {"T": ["日本"], "U": ["alone"]})
    assert index.triples == rows
    assert index.entities == ['a "quoted", one', " spaced ", "日本", "東京", "alone"]
    index.save(tmp_path / "index")
    assert KGIndex.load(tmp_path / "index").triples == rows


def test_an_interrupted_extraction_resumes_without_asking_again(tmp_path: Path) -> None:
    cache = tmp_path / "cache.jsonl"

    class Interrupted(Extractor):
        def __call__(self, passage: str) -> dict[str, Any]:
            if len(self.asked) == 2:
                raise KeyboardInterrupt
            return super().__call__(passage)

    with pytest.raises(KeyboardInterrupt):
        KGIndex.from_documents(DOCUMENTS, Interrupted(), cache=cache)
    assert len(cache.read_text().splitlines()) == 2
    with cache.open("a") as file:
        file.write('{"passage": "Lon')  # a line that a killed run left unfinished
    second = Extractor()
    index = KGIndex.from_documents(DOCUMENTS, second, cache=cache)
    assert [passage.split("\n")[0] for passage in second.asked] == ["London", "Empty"]
    assert index.triples == build(linker=False).triples
    third = Extractor()
    assert KGIndex.from_documents(DOCUMENTS, third, cache=cache).triples == index.triples
    assert third.asked == []


def test_the_report_tells_what_every_document_gave() -> None:
    table = {**TEXTS, "London": [["London", "is"], ["!!", "is", "x"], ["London", "has", 7], [["x"], "y", "z"]]}
    index = KGIndex.from_documents(DOCUMENTS, Extractor(table))
    report = index.report()
    assert report["per_document"]["London"] == {"listed": 1, "triples": 1, "dropped": 3, "error": ""}
    assert report["documents_without_entities"] == ["Empty"]
    assert (report["documents"], report["triples"]) == (4, 5)
    assert ("london", "has", "7") in index.triples


def test_failures_are_reported_and_tried_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def failing(passage: str) -> dict[str, Any]:
        found = Extractor()(passage)
        return {**found, "extracted_triples": [], "error": "no reply"} if passage.startswith("London") else found

    index = KGIndex.from_documents(DOCUMENTS, failing, cache=tmp_path / "cache.jsonl")
    assert index.report()["failed_documents"] == ["London"]
    assert "extraction failed for 1 documents; first: 'London': no reply" in caplog.text
    again = Extractor()
    KGIndex.from_documents(DOCUMENTS, again, cache=tmp_path / "cache.jsonl")
    assert again.asked == ["London\nAbout London."]


def test_documents_that_gave_nothing_at_all_are_an_error() -> None:
    with pytest.raises(ValueError, match="not one triple was extracted from 1 documents"):
        KGIndex.from_documents({"Empty": "x"}, Extractor())


@pytest.mark.parametrize(
    ("text", "unicode", "ascii_only"),
    [
        ("Ada  Lovelace!", "ada lovelace", "ada  lovelace"),
        ("Café du Monde", "café du monde", "caf  du monde"),
        ("Cafe\u0301", "café", "cafe"),
        ("日本", "日本", ""),
        ("हिन्दी", "हिन्दी", ""),
        ("U.S.A.", "u s a", "u s a"),
        (1837, "1837", "1837"),
    ],
)
def test_phrases_keep_every_script_unless_they_are_ascii(text: Any, unicode: str, ascii_only: str) -> None:
    assert normalize_phrase(text) == unicode
    assert normalize_phrase(text, "ascii") == ascii_only


def test_damaged_folders_are_named(tmp_path: Path) -> None:
    folder = tmp_path / "index"
    with pytest.raises(FileNotFoundError, match="index: no such index folder"):
        KGIndex.load(folder)
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match=r"is no index, or a half-written one: index\.json, graph\.csv"):
        KGIndex.load(tmp_path / "empty")
    index = build()
    index.save(folder)
    lines = (folder / "documents.jsonl").read_text().splitlines()
    (folder / "documents.jsonl").write_text("\n".join(lines[:-1]) + "\n")
    with pytest.raises(ValueError, match="damaged or half-written"):
        KGIndex.load(folder)
    (folder / "documents.jsonl").write_text("\n".join([*lines[:-1], lines[0]]))
    with pytest.raises(ValueError, match=r"documents\.jsonl, line 4: second document 'Ada Lovelace'"):
        KGIndex.load(folder)
    index.save(folder)
    head = json.loads((folder / "index.json").read_text())
    (folder / "index.json").write_text(json.dumps({**head, "format_version": 9}))
    with pytest.raises(ValueError, match=r"format version 1, got 'gfm-rag index', 9"):
        KGIndex.load(folder)


def test_an_index_bound_to_an_encoder_refuses_another(tmp_path: Path) -> None:
    index = build()
    index.encoder_name = "hashing-8"
    index.save(tmp_path / "index")
    loaded = KGIndex.load(tmp_path / "index")
    loaded.graph(HashingEncoder(8))
    with pytest.raises(ValueError, match="made with the encoder 'hashing-8', got 'hashing-16'"):
        loaded.graph(HashingEncoder(16))


@pytest.mark.parametrize(
    ("documents", "options", "words"),
    [
        ({"A": " "}, {}, "document 'A': title and text must be non-empty"),
        ({"": "x"}, {}, "document '': title and text"),
        (DOCUMENTS, {"normalizer": "latin"}, "unicode, ascii, got 'latin'"),
        (DOCUMENTS, {"compat": "v2"}, "None or 'v1', got 'v2'"),
        (DOCUMENTS, {"similarity_threshold": 80}, "between 0 and 1, got 80"),
        (DOCUMENTS, {"max_sim_neighbors": 0}, "at least 1, got 0"),
    ],
)
def test_wrong_documents_and_options_are_named(documents: Any, options: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        KGIndex.from_documents(documents, Extractor(), **options)


def test_wrong_triples_titles_and_extractions_are_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="triple 1 must be three strings"):
        KGIndex.from_triples([("a", "r", "b"), ("a", "r")], {})
    index = build()
    with pytest.raises(ValueError, match="no document 'Paris'"):
        index.remove_documents(["London", "Paris"])
    assert "London" in index.documents
    with pytest.raises(ValueError, match="an extractor must return a dictionary"):
        KGIndex.from_documents(DOCUMENTS, lambda passage: [])  # type: ignore[arg-type]
    (tmp_path / "cache.jsonl").write_text("broken\n{}\n")
    with pytest.raises(ValueError, match=r"cache\.jsonl, line 1: not an extraction"):
        KGIndex.from_documents(DOCUMENTS, Extractor(), cache=tmp_path / "cache.jsonl")


@pytest.mark.parametrize("name", ["kg.txt", "kg.csv", "kg.tsv"])
def test_lines_without_three_fields_are_named_or_skipped(
    name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    split = "\t" if name.endswith("tsv") else ","
    rows = [["a", "r", "b"], ["a", "b"], ["a", "b", "c", "d"], [" x", "r ", "y"]]
    (tmp_path / name).write_text("\n".join(split.join(row) for row in rows) + "\n")
    with pytest.raises(ValueError, match=rf"{name}, line 2: expected 3 fields head, relation, tail, got 2"):
        read_kg(tmp_path / name)
    assert read_kg(tmp_path / name, strict=False) == [("a", "r", "b"), (" x", "r ", "y")]
    assert "skipped 2 lines" in caplog.text


NAMES = st.sampled_from(["ada", "adas", "ada b", "london", "londons", "日本", "日本国", "xx"])
TRIPLES = st.lists(st.tuples(NAMES, st.sampled_from(["r", "s", "equivalent"]), NAMES), min_size=1, max_size=3)
TABLES = st.dictionaries(st.sampled_from("ABCDEF"), TRIPLES, min_size=2, max_size=6)


@given(TABLES, st.integers(1, 5), st.lists(NAMES, max_size=2), st.booleans(), st.booleans())
@settings(deadline=None)
def test_an_index_that_shrank_is_that_of_the_documents_left(
    table: Any, left: int, free: list[str], linked: bool, multi_relation: bool
) -> None:
    kept = dict(list(table.items())[:left])
    options: Any = {"similarity_threshold": 0.4, "multi_relation": multi_relation}
    linker = NgramLinker() if linked else None

    def build_of(triples: Any) -> KGIndex:
        return KGIndex.from_documents(dict.fromkeys(triples, "text"), Extractor(triples), linker, **options)

    def equal(first: KGIndex, second: KGIndex) -> bool:
        same_entities = set(first.entities) == set(second.entities)
        return same_entities and in_names(first) == in_names(second)

    gone = [title for title in table if title not in kept]
    shrunk, fresh = build_of(table), build_of(kept)
    shrunk.remove_documents(gone)
    assert equal(shrunk, fresh)
    back = build_of(kept)
    back.add_documents(dict.fromkeys(gone, "text"), Extractor(table), linker)
    back.remove_documents(gone)
    assert equal(back, fresh)
    # entities that were given without a document outlive the documents that named them for a while
    given_triples = [(name, "given", "ada") for name in free]
    before, grown = (KGIndex.from_triples(given_triples, {"Z": ["ada"]}) for _ in range(2))
    grown.add_documents(dict.fromkeys(table, "text"), Extractor(table))
    grown.remove_documents(table)
    assert grown.triples == before.triples
    assert grown.entities == before.entities


def test_a_linker_that_fails_leaves_the_index_as_it_was() -> None:
    class Failing(NgramLinker):
        def index(self, names: Any) -> None:
            raise ConnectionError("no answer")

    few = {title: text for title, text in DOCUMENTS.items() if title != "Ada Lovelace"}
    index = build(few, similarity_threshold=0.5)
    before = index.triples
    assert any(relation == "equivalent" for _, relation, _ in before)
    with pytest.raises(ConnectionError):
        index.add_documents(DOCUMENTS, Extractor(), Failing())
    assert index.documents == list(few)
    assert index.triples == before


WILD = st.text(
    alphabet=st.sampled_from([*"ab,\"'\\:\t\n\r \x00\x0b\x1c\x85\u2028\u2029\ufeff", "😀", "\u0301", "日"]), max_size=5
)


@given(st.lists(st.tuples(WILD, WILD, WILD), max_size=3), st.dictionaries(WILD, st.lists(WILD, max_size=2), max_size=3))
@settings(deadline=None)
def test_any_string_survives_a_folder(triples: Any, entities: Any) -> None:
    index = KGIndex.from_triples(triples, entities, {title: f"{title}\u2028x" for title in entities})
    with tempfile.TemporaryDirectory() as folder:
        index.save(Path(folder) / "index")
        loaded = KGIndex.load(Path(folder) / "index")
        assert read_kg(Path(folder) / "index" / "graph.csv") == index.triples
    assert (loaded.triples, loaded.document_entities) == (index.triples, index.document_entities)
    assert [loaded.text(title) for title in entities] == [index.text(title) for title in entities]


def test_fields_of_any_length_come_back(tmp_path: Path) -> None:
    index = KGIndex.from_triples([("x" * 200_000, "r", "y")], {})
    index.save(tmp_path / "index")
    assert KGIndex.load(tmp_path / "index").triples == index.triples


@pytest.mark.slow
def test_a_save_that_is_killed_leaves_a_whole_index(tmp_path: Path) -> None:
    folder = tmp_path / "index"
    build().save(folder)
    code = (
        "import sys; from gfm_rag import KGIndex; index = KGIndex.load(sys.argv[1]); print('ready', flush=True)\n"
        "while True: index.save(sys.argv[1])"
    )
    for wait in (0.003, 0.03):
        with subprocess.Popen([sys.executable, "-c", code, str(folder)], stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            process.stdout.readline()
            time.sleep(wait)
            os.kill(process.pid, signal.SIGKILL)
        assert KGIndex.load(folder).triples == build().triples
    assert [path.name for path in tmp_path.iterdir()] == ["index"]  # nothing unfinished is left behind


def test_settings_and_documents_of_other_types_are_named(tmp_path: Path) -> None:
    index = build()
    index.save(tmp_path / "index")
    head = json.loads((tmp_path / "index" / "index.json").read_text())
    row = json.loads((tmp_path / "index" / "documents.jsonl").read_text().splitlines()[0])
    for change, words in (
        ({"settings": 3}, "settings: expected a JSON object, got int"),
        ({"settings": {**head["settings"], "similarity_threshold": "x"}}, "between 0 and 1, got 'x'"),
        ({"settings": {**head["settings"], "max_sim_neighbors": "x"}}, "at least 1, got 'x'"),
        ({"settings": {**head["settings"], "add_title": "no"}}, "add_title must be True or False, got 'no'"),
        ({"encoder": 5}, "encoder must be a name or null, got 5"),
    ):
        (tmp_path / "index" / "index.json").write_text(json.dumps({**head, **change}))
        with pytest.raises(ValueError, match=rf"index\.json.*{words}"):
            KGIndex.load(tmp_path / "index")
    (tmp_path / "index" / "index.json").write_text(json.dumps(head))
    for line in (json.dumps({**row, "entities": "abc"}), json.dumps({**row, "title": 3}), "[" * 100_000, "7"):
        (tmp_path / "index" / "documents.jsonl").write_text(line)
        with pytest.raises(ValueError, match=r"documents\.jsonl, line 1: not"):
            KGIndex.load(tmp_path / "index")
    (tmp_path / "index" / "documents.jsonl").write_bytes(b"\xff")
    with pytest.raises(ValueError, match=r"documents\.jsonl: not UTF-8 text \(invalid start byte at byte 0\)"):
        KGIndex.load(tmp_path / "index")


def test_strings_that_are_none_are_refused_before_any_work() -> None:
    extractor = Extractor()
    with pytest.raises(ValueError, match=r"document 'A\\ud800': title and text must be non-empty strings that UTF-8"):
        KGIndex.from_documents({"London": "x", "A\ud800": "half of a surrogate pair"}, extractor)
    with pytest.raises(TypeError, match="documents must be a mapping of title to text, got list"):
        KGIndex.from_documents(["London"], extractor)  # type: ignore[arg-type]
    assert extractor.asked == []
    with pytest.raises(ValueError, match="entities of document 'T' must be a list of strings, got 'abc'"):
        KGIndex.from_triples([], {"T": "abc"})
    for entities in ([1], ["\ud800"]):
        with pytest.raises(ValueError, match="document 'T': title, text and each of its entities must be strings"):
            KGIndex.from_triples([], {"T": entities})  # type: ignore[dict-item]
    with pytest.raises(ValueError, match="triple 0 must be three strings"):
        KGIndex.from_triples(["abc"], {})


def test_a_reply_with_half_of_a_surrogate_pair_is_cached_and_indexed(tmp_path: Path) -> None:
    def extractor(passage: str) -> dict[str, Any]:
        return {"passage": passage, "extracted_entities": [], "extracted_triples": [["Ada \ud83d", "met", "Bab\u00e9"]]}

    cache = tmp_path / "cache.jsonl"
    index = KGIndex.from_documents({"Ada": "x"}, extractor, cache=cache)
    index.save(tmp_path / "index")
    assert index.triples == [("ada", "met", "bab\u00e9")]
    again = KGIndex.from_documents({"Ada": "x"}, Extractor(), cache=cache)  # which has no reply to this passage
    assert again.triples == KGIndex.load(tmp_path / "index").triples == index.triples


@pytest.mark.parametrize("name", ["kg.txt", "kg.csv", "KG.CSV"])
def test_triples_of_a_table_program_are_read(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(b"\xef\xbb\xbf" + "é,r,b\r\n".encode())
    assert read_kg(tmp_path / name) == [("é", "r", "b")]
    (tmp_path / name).write_bytes(b"\xe9,r,b\n")
    with pytest.raises(ValueError, match=rf"{name}: not UTF-8 text"):
        read_kg(tmp_path / name)


@pytest.mark.parametrize("linker", [NgramLinker(), EmbeddingLinker(HashingEncoder(32))], ids=["trigrams", "embeddings"])
def test_only_the_neighbours_of_a_block_of_names_are_held(linker: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"name {number % 7} of {number}" for number in range(40)]
    whole = equivalent_edges(names, linker, 0.5, 5)
    asked: list[int] = []

    class Watched:
        index = linker.index

        def __call__(self, queries: Any, top_k: int = 1) -> Any:
            asked.append(len(queries))
            return linker(queries, top_k)

    monkeypatch.setattr("gfm_rag.entity_resolution._ASKED", 16)
    assert equivalent_edges(names, Watched(), 0.5, 5) == whole
    assert whole
    assert asked == [16, 16, 8]
