"""Readers of the multi-hop data sets, of documents and of answers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gfm_rag import evaluate_answers, exact_match, f1_score, recall_at_k
from gfm_rag.multihop import read_documents, read_multihop

HOTPOT = [
    {
        "_id": "1",
        "question": "Where?",
        "answer": "London",
        "supporting_facts": [["A", 0], ["A", 1], ["B", 0]],
        "context": [["A", ["One. ", "Two."]], ["B", ["Three."]]],
        "type": "bridge",
    },
    {"_id": "2", "question": "Who?", "answer": "Ada", "supporting_facts": [["B", 0]], "context": [["B", ["Three."]]]},
]
MUSIQUE = {
    "id": "m",
    "question": "Which?",
    "answer": "X",
    "answer_aliases": ["x1"],
    "paragraphs": [
        {"idx": 0, "title": "T", "paragraph_text": "first", "is_supporting": False},
        {"idx": 1, "title": "T", "paragraph_text": "second", "is_supporting": True},
        {"idx": 2, "title": "U", "paragraph_text": "third", "is_supporting": True},
    ],
    "question_decomposition": [],
}


def test_hotpotqa_and_2wiki_become_one_corpus_and_questions(tmp_path: Path) -> None:
    (tmp_path / "dev.json").write_text(json.dumps(HOTPOT))
    found = read_multihop(tmp_path / "dev.json", "hotpotqa")
    assert found.documents == {"A": "One. Two.", "B": "Three."}
    assert found.questions[0] == {
        "id": "1", "question": "Where?", "answer": "London", "answer_aliases": [], "supporting_facts": ["A", "B"]
    }  # fmt: skip
    wiki = read_multihop(tmp_path / "dev.json", "2wiki", {"2": ["Ada", "Ada Lovelace"]})
    assert wiki.questions[1]["answer_aliases"] == ["Ada Lovelace"]


def test_musique_passages_of_one_title_are_kept_apart(tmp_path: Path) -> None:
    (tmp_path / "dev.jsonl").write_text(json.dumps(MUSIQUE) + "\n" + json.dumps({**MUSIQUE, "id": "n"}) + "\n")
    found = read_multihop(tmp_path / "dev.jsonl", "musique")
    assert found.documents == {"T": "first", "T (2)": "second", "U": "third"}
    assert [row["supporting_facts"] for row in found.questions] == [["T (2)", "U"]] * 2
    assert found.questions[0]["answer_aliases"] == ["x1"]


def test_entries_of_another_form_are_named(tmp_path: Path) -> None:
    (tmp_path / "dev.json").write_text(json.dumps([HOTPOT[0], {"_id": "2"}]))
    with pytest.raises(ValueError, match=r"dev\.json, entry 2: not of the form hotpotqa \(KeyError: 'context'\)"):
        read_multihop(tmp_path / "dev.json", "hotpotqa")
    (tmp_path / "x.jsonl").write_text("{}\n{\n")
    with pytest.raises(ValueError, match=r"x\.jsonl, entry 1: not of the form musique"):
        read_multihop(tmp_path / "x.jsonl", "musique")
    with pytest.raises(ValueError, match="hotpotqa, 2wiki, musique, got 'squad'"):
        read_multihop(tmp_path / "dev.json", "squad")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("d.json", '{"A": "x", "B": "y", "A": "z"}', "document 3: the title 'A' occurs twice"),
        ("d.json", '{"A": ""}', "document 1 'A': title and text must be non-empty"),
        ("d.json", '["A"]', "expected a JSON object of texts by title"),
        ("d.json", '{"A": ', "not valid JSON"),
        (
            "d.jsonl",
            '{"title": "A", "text": "x"}\n{"title": "A", "text": "x"}',
            "document 2: the title 'A' occurs twice",
        ),
        ("d.jsonl", '{"title": "A"}', "expected the keys title and text, got title"),
        ("d.jsonl", "[1]", "line 1: expected a JSON object, got list"),
    ],
)
def test_documents_that_cannot_be_used_are_named(name: str, content: str, words: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(ValueError, match=words):
        read_documents(tmp_path / name)


def test_documents_are_read_in_both_forms(tmp_path: Path) -> None:
    (tmp_path / "d.json").write_text('{"A": "x", "B": "y"}')
    (tmp_path / "d.jsonl").write_text('{"title": "A", "text": "x"}\n\n{"title": "B", "text": "y", "more": 1}\n')
    assert read_documents(tmp_path / "d.json") == read_documents(tmp_path / "d.jsonl") == {"A": "x", "B": "y"}


@pytest.mark.parametrize(
    ("prediction", "answers", "style", "f1"),
    [
        ("the Eiffel Tower!", "eiffel tower", "hotpotqa", 1.0),
        ("eiffel", "eiffel tower", "hotpotqa", 2 / 3),
        ("yes it is", "yes", "hotpotqa", 0.0),
        ("yes it is", "yes", "musique", 0.5),
        ("", "", "musique", 1.0),
        ("", "", "hotpotqa", 0.0),
        ("nyc", ["New York City", "NYC"], "2wiki", 1.0),
    ],
)
def test_f1_is_that_of_the_shared_words(prediction: str, answers: Any, style: Any, f1: float) -> None:
    assert f1_score(prediction, answers, style) == pytest.approx(f1)


def test_exact_match_and_recall() -> None:
    assert exact_match("The Eiffel-Tower", ["x", "eiffeltower"]) == 1.0
    assert exact_match("Eiffel", "Eiffel Tower") == 0.0
    assert recall_at_k(["a", "a", "b", "c"], ["b", "c", "b"], 2) == 0.5
    with pytest.raises(ValueError, match="at least one title"):
        recall_at_k(["a"], [], 1)
    with pytest.raises(ValueError, match="hotpotqa, 2wiki, musique, got 'squad'"):
        f1_score("a", "b", "squad")  # type: ignore[arg-type]


def test_lines_end_at_line_feeds_only(tmp_path: Path) -> None:
    texts = {"a\u2028b": "c\x85d", "e": "f\u2029"}
    lines = [json.dumps({"title": title, "text": text}, ensure_ascii=False) for title, text in texts.items()]
    (tmp_path / "d.jsonl").write_bytes(b"\xef\xbb\xbf" + "\r\n".join(lines).encode())
    assert read_documents(tmp_path / "d.jsonl") == texts


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"{}", r"d\.json: holds no document"),
        (b"[]", r"d\.json: holds no document"),
        (b'{"a": "\xe9"}', r"d\.json: not UTF-8 text"),
        (b"[" * 100_000, r"d\.json: not valid JSON"),
    ],
)
def test_files_without_documents_or_damaged_ones_are_named(content: bytes, words: str, tmp_path: Path) -> None:
    (tmp_path / "d.json").write_bytes(content)
    with pytest.raises(ValueError, match=words):
        read_documents(tmp_path / "d.json")


def test_passages_without_text_are_left_out_and_counted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    entry = {**HOTPOT[0], "context": [["A", ["One."]], ["B", []]]}
    (tmp_path / "dev.json").write_text(json.dumps([entry]))
    assert read_multihop(tmp_path / "dev.json", "hotpotqa").documents == {"A": "One."}
    assert "left out 1 passages" in caplog.text


def test_many_texts_of_one_title_are_numbered_past_titles_that_exist(tmp_path: Path) -> None:
    passages = [("T", "1"), ("T (2)", "2"), ("T", "3"), ("T", "4"), ("T", "1")]
    paragraphs = [{"title": t, "paragraph_text": x, "is_supporting": x == "4"} for t, x in passages]
    (tmp_path / "dev.jsonl").write_text(json.dumps({**MUSIQUE, "paragraphs": paragraphs}))
    found = read_multihop(tmp_path / "dev.jsonl", "musique")
    assert found.documents == {"T": "1", "T (2)": "2", "T (3)": "3", "T (4)": "4"}
    assert found.questions[0]["supporting_facts"] == ["T (4)"]


def test_rows_without_a_response_or_an_answer_are_named() -> None:
    for row in ({"answer": "x"}, {"response": None, "answer": "x"}, {"response": "x", "answer": ["x"]}):
        with pytest.raises(ValueError, match="row 0 must have the strings response and answer"):
            evaluate_answers([row], "2wiki")
