"""Several steps of retrieval with a language model that misbehaves, and replies that should be JSON."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from gfm_rag import ChatPrompt, RetrievedDocument, extract_json, ircot


class Echo:
    """Finds a document of the question's own name."""

    def retrieve(self, question: str, top_k: int = 5) -> list[RetrievedDocument]:
        return [RetrievedDocument(question, "{x} {0}", 1.0, 1.0)]


@pytest.mark.parametrize("reply", ["", "  \n"])
def test_a_model_that_says_nothing_ends_the_loop(reply: str, caplog: pytest.LogCaptureFixture) -> None:
    replies = iter(["first", reply, "never asked for"])
    result = ircot(Echo(), "question", lambda _: next(replies), max_steps=3)
    assert result.thoughts == ["first"]
    assert [document.title for document in result.documents] == ["question", "first"]
    assert "empty thought in step 2 of 3" in caplog.text


def test_a_model_that_repeats_itself_is_asked_max_steps_times() -> None:
    result = ircot(Echo(), "question", lambda _: "again", max_steps=4)
    assert result.thoughts == ["again"] * 4
    assert [document.title for document in result.documents] == ["question", "again"]


def test_what_is_no_reply_is_told_and_errors_go_through() -> None:
    with pytest.raises(TypeError, match="llm must give a string, got NoneType in step 1"):
        ircot(Echo(), "question", lambda _: None)  # type: ignore[arg-type, return-value]

    def failing(messages: Any) -> str:
        raise ConnectionError("no answer")

    with pytest.raises(ConnectionError, match="no answer"):
        ircot(Echo(), "question", failing)
    with pytest.raises(ValueError, match="max_steps must be at least 1, got 0"):
        ircot(Echo(), "question", failing, max_steps=0)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"doc_prompt": '{"title": {title}}'}, r"doc_prompt may hold the fields {title}, {content} and no other"),
        ({"question_prompt": "{q}"}, r"question_prompt may hold the fields {question} and no other braces"),
        ({"examples": [{"input": "x"}]}, "example 0 must have input and response, got input"),
    ],
)
def test_prompts_that_cannot_be_filled_are_refused_when_made(options: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        ChatPrompt("system", **options)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('```\n```json\n{"a": {"b": "}"}}\n```\n```', {"a": {"b": "}"}}),
        ('see {this} first: {"a": 1} {"b": 2}', {"a": 1}),
        ('{"a": 1,}', None),
        ("{'a': __import__('pathlib').Path('touched').touch()}", None),
        ('{"a": {"b": 1}', None),  # cut off: what is inside is not the reply
        ("", None),
    ],
)
def test_the_first_whole_object_of_a_reply_is_read(
    text: str, found: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert extract_json(text) == found
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "text", ["{" * 2_000_000, '{"a":' * 200_000 + "1" + "}" * 200_000, '{"a":' + "9" * 500_000 + "}"]
)
def test_large_and_deep_replies_are_no_trouble(text: str) -> None:
    start = time.process_time()
    assert extract_json(text) is None
    assert time.process_time() - start < 20  # a search anew from every brace would take days
