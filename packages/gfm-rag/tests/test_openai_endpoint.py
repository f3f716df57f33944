"""Extraction and chat over real HTTP, against a server on loopback."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any

import pytest

from gfm_rag import KGIndex, RuleExtractor, extract_json
from gfm_rag.chat import ChatEndpoint
from gfm_rag.cli import app
from gfm_rag.extractors import OpenAICompatibleExtractor
from nips_common.cli import run

pytest.importorskip("openai")
SERVER = runpy.run_path(str(Path(__file__).parent / "chat_server.py"))
chat_server, slow = SERVER["chat_server"], SERVER["slow"]

GOOD = {"named_entities": ["Ada", "London"], "triples": [["Ada", "lived in", "London"]]}


def passage_of(body: dict[str, Any]) -> str:
    return body["messages"][-1]["content"]  # type: ignore[no-any-return]


def test_a_model_with_json_mode_is_asked_for_json() -> None:
    with chat_server(lambda body: json.dumps(GOOD)) as server:
        found = OpenAICompatibleExtractor(server.base_url, "tiny", api_key="secret")("Ada\nShe lived in London.")
    assert found == {
        "passage": "Ada\nShe lived in London.",
        "extracted_entities": ["Ada", "London"],
        "extracted_triples": [["Ada", "lived in", "London"]],
    }
    assert server.requests[0]["response_format"] == {"type": "json_object"}
    assert (server.requests[0]["model"], server.requests[0]["temperature"]) == ("tiny", 0)
    assert server.keys == ["Bearer secret"]


def test_a_model_without_json_mode_is_asked_without_it_from_then_on() -> None:
    def answer(body: dict[str, Any]) -> Any:
        if "response_format" in body:
            return 400, {"error": {"message": "response_format is not supported"}}, {}
        return f"Here it is:\n```json\n{json.dumps(GOOD)}\n```"

    with chat_server(answer) as server:
        extractor = OpenAICompatibleExtractor(server.base_url, "tiny", concurrency=1)
        found = list(extractor.map(["one", "two"]))
    assert all(row["extracted_triples"] == GOOD["triples"] for row in found)
    assert ["response_format" in request for request in server.requests] == [True, False, False]


def test_a_reply_that_cannot_be_read_is_asked_for_again() -> None:
    replies = iter(['{"named_entities": [', json.dumps(GOOD)])
    with chat_server(lambda body: next(replies)) as server:
        found = OpenAICompatibleExtractor(server.base_url, "tiny")("x")
    assert found["extracted_triples"] == GOOD["triples"]
    assert len(server.requests) == 2


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        ("no json here", "no JSON object in the model's reply of 12 characters"),
        ('{"entities": []}', "lacks the lists named_entities and triples; it has entities"),
        ("__import__('pathlib').Path('touched').touch()", "no JSON object"),
        ('{"named_entities": __import__("pathlib").Path("touched").touch()}', "no JSON object"),
        ("", "no JSON object in the model's reply of 0 characters"),
    ],
)
def test_replies_that_stay_unreadable_are_errors_and_never_evaluated(
    reply: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with chat_server(lambda body: reply) as server:
        found = OpenAICompatibleExtractor(server.base_url, "tiny", attempts=3)("x")
    assert words in found["error"]
    assert found["extracted_triples"] == []
    assert len(server.requests) == 3
    assert not (tmp_path / "touched").exists()


def test_a_busy_server_is_asked_again_after_the_time_it_names() -> None:
    replies = iter([(429, {"error": {"message": "slow down"}}, {"Retry-After": "0.05"}), json.dumps(GOOD)])
    with chat_server(lambda body: next(replies)) as server:
        found = OpenAICompatibleExtractor(server.base_url, "tiny")("x")
    assert "error" not in found
    assert len(server.requests) == 2


def test_a_server_that_stays_busy_is_an_error_without_the_key() -> None:
    busy = (429, {"error": {"message": "slow down"}}, {"Retry-After": "0.01"})
    with chat_server(lambda body: busy) as server:
        found = OpenAICompatibleExtractor(server.base_url, "tiny", api_key="secret", max_retries=1)("x")
    assert "429" in found["error"]
    assert "secret" not in found["error"]
    assert len(server.requests) == 2


def test_a_server_that_is_too_slow_is_an_error() -> None:
    with chat_server(lambda body: slow(1.0, "late")) as server:
        found = OpenAICompatibleExtractor(server.base_url, "tiny", timeout=0.1, max_retries=1)("x")
    assert "APITimeoutError" in found["error"]
    assert len(server.requests) == 2


def test_no_server_is_an_error_that_names_the_address() -> None:
    with chat_server(lambda body: "") as server:
        address = server.base_url
    with pytest.raises(ConnectionError, match=rf"{address}, model 'tiny': APIConnectionError"):
        ChatEndpoint(address, "tiny", max_retries=0)([{"role": "user", "content": "x"}])


def test_passages_are_extracted_at_the_same_time() -> None:
    with chat_server(lambda body: slow(0.2, json.dumps(GOOD))) as server:
        extractor = OpenAICompatibleExtractor(server.base_url, "tiny", concurrency=3)
        found = list(extractor.map([str(i) for i in range(6)]))
    assert sorted(row["passage"] for row in found) == [str(i) for i in range(6)]
    assert server.most_at_once == 3


def test_an_index_keeps_what_came_and_asks_only_for_the_rest(tmp_path: Path) -> None:
    documents = {"Ada": "Ada lived in London.", "Bad": "Unreadable."}
    broken = True

    def answer(body: dict[str, Any]) -> str:
        return "garbage" if broken and passage_of(body).startswith("Bad") else json.dumps(GOOD)

    with chat_server(answer) as server:
        make = lambda: KGIndex.from_documents(
            documents, OpenAICompatibleExtractor(server.base_url, "tiny", attempts=1), cache=tmp_path / "cache.jsonl"
        )
        assert make().report()["failed_documents"] == ["Bad"]
        broken = False
        assert make().report()["failed_documents"] == []
    assert [passage_of(body).split("\n")[0] for body in server.requests].count("Ada") == 1


def test_the_command_tries_again_what_failed_and_asks_for_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "docs.json").write_text(json.dumps({"Bad": "Unreadable.", "Ada": "Ada lived in London."}))
    broken = True

    def answer(body: dict[str, Any]) -> str:
        return "garbage" if broken and passage_of(body).startswith("Bad") else json.dumps(GOOD)

    with chat_server(answer) as server:
        command = ["index", str(tmp_path / "docs.json"), str(tmp_path / "index"), "--extractor", "openai",
                   "--base-url", server.base_url, "--llm", "org/tiny"]  # fmt: skip
        for works, code, failed in ((False, 1, ["Bad"]), (False, 1, ["Bad"]), (True, 0, [])):
            broken = not works
            with pytest.raises(SystemExit) as ended:
                run(app, command)
            assert ended.value.code == code
            assert KGIndex.load(tmp_path / "index").report()["failed_documents"] == failed
        assert [passage_of(body).split("\n")[0] for body in server.requests].count("Ada") == 1
    assert sorted(KGIndex.load(tmp_path / "index").documents) == ["Ada", "Bad"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["docs.json", "index"]


def test_the_command_takes_limits_for_slow_and_small_local_models(tmp_path: Path) -> None:
    from gfm_rag.index_commands import extractor_maker

    (tmp_path / "docs.json").write_text(json.dumps({"Ada": "Ada lived in London."}))
    with chat_server(lambda body: json.dumps(GOOD)) as server:
        command = ["index", str(tmp_path / "docs.json"), str(tmp_path / "index"), "--extractor", "openai",
                   "--base-url", server.base_url, "--llm", "tiny", "--max-tokens", "512"]  # fmt: skip
        with pytest.raises(SystemExit) as ended:
            run(app, command)
    assert ended.value.code == 0
    assert server.requests[0]["max_tokens"] == 512
    with chat_server(lambda body: slow(1.0, "late")) as server:
        make: Any = extractor_maker("openai", "", server.base_url, "tiny", timeout=0.1, max_retries=0)
        assert "APITimeoutError" in make()("x")["error"]


def test_a_chat_returns_the_reply() -> None:
    with chat_server(lambda body: "So the answer is: 42") as server:
        chat = ChatEndpoint(server.base_url, "tiny", temperature=0.5, max_tokens=7)
        assert chat([{"role": "user", "content": "x"}]) == "So the answer is: 42"
    assert "response_format" not in server.requests[0]
    assert (server.requests[0]["temperature"], server.requests[0]["max_tokens"]) == (0.5, 7)


def test_wrong_addresses_and_numbers_are_refused() -> None:
    with pytest.raises(ValueError, match="http:// or https://, got 'localhost:1'"):
        ChatEndpoint("localhost:1", "tiny")
    with pytest.raises(ValueError, match="at least 1, got 0 and 2"):
        OpenAICompatibleExtractor("http://x/v1", "tiny", concurrency=0)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('a {not json} then {"b": "}"}', {"b": "}"}),
        ('{"a": {"b": 1}, }', None),
        ('[1, 2] {"a": "\\"{"}', {"a": '"{'}),
        ("{'a': 1}", None),
        ('{"a": 1', None),
        ("{" * 5000, None),
    ],
)
def test_the_first_whole_object_of_a_reply_counts(text: str, found: Any) -> None:
    assert extract_json(text) == found


def command(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[Any, dict[str, Any]]:
    """Exit code and printed JSON of a command."""
    with pytest.raises(SystemExit) as ended:
        run(app, [str(argument) for argument in arguments])
    return ended.value.code, json.loads(capsys.readouterr().out)


def test_ask_thinks_in_steps_and_answers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    documents = {"Ada": "Ada Lovelace worked with Charles Babbage.", "Babbage": "Charles Babbage liked engines."}
    KGIndex.from_documents(documents, RuleExtractor()).save(tmp_path / "index")

    def answer(body: dict[str, Any]) -> str:
        prompt = body["messages"][0]["content"]
        return "Thought: easy. Answer: Babbage" if "Answer: " in prompt else "Ada worked with Charles Babbage."

    with chat_server(answer) as server:
        options = ["--retriever", "bm25", "--base-url", server.base_url, "--llm", "tiny", "--steps", 3, "--top-k", 1]
        code, found = command(capsys, "ask", tmp_path / "index", "With whom did Ada work?", *options)
    assert (code, found["answer"], len(found["thoughts"]), len(found["documents"])) == (0, "Babbage", 3, 1)
    assert len(server.requests) == 4
    assert found["documents"][0]["title"] == "Ada"
