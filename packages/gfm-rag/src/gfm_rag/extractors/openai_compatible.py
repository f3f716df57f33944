"""Triples from a language model behind any OpenAI-compatible endpoint. Replies are read as JSON and never evaluated."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Any

from gfm_rag.chat import ChatEndpoint
from gfm_rag.ircot import Messages
from gfm_rag.json_replies import extract_json

_INSTRUCTION = (
    "Extract a knowledge graph from the passage. Reply with one JSON object with two keys: "
    '"named_entities", a list of the names, dates and terms that the passage speaks of, and "triples", a list of '
    "[subject, predicate, object] with exactly three short strings each. Subjects and objects should be named entities "
    "where possible; replace pronouns by the names they stand for. Reply with JSON only."
)
_EXAMPLE = (
    "Radio City\nRadio City is India's first private FM radio station. It was started on 3 July 2001.",
    '{"named_entities": ["Radio City", "India", "private FM radio station", "3 July 2001"], "triples": '
    '[["Radio City", "located in", "India"], ["Radio City", "is", "private FM radio station"], '
    '["Radio City", "started on", "3 July 2001"]]}',
)


class OpenAICompatibleExtractor:
    """Asks a model once for each passage, several passages at a time.

    A reply that holds no JSON object is asked for again; after that, and after connection errors that the client's own
    retries did not mend, the extraction carries an "error", which the index reports and the cache does not keep.

    Args:
        base_url: such as http://localhost:8000/v1.
        model: the server's name of the model.
        concurrency: passages at a time.
        attempts: replies asked for until one can be read.
        options: of `ChatEndpoint`: api_key, timeout, max_retries, max_tokens, ...

    Raises:
        ValueError: a number below 1.
    """

    def __init__(self, base_url: str, model: str, *, concurrency: int = 4, attempts: int = 2, **options: Any) -> None:
        if concurrency < 1 or attempts < 1:
            raise ValueError(f"concurrency and attempts must be at least 1, got {concurrency} and {attempts}")
        self.concurrency, self.attempts = concurrency, attempts
        self.chat = ChatEndpoint(base_url, model, **{"json_mode": True, **options})

    def __call__(self, passage: str) -> dict[str, Any]:
        """The extraction of a passage."""
        messages: Messages = [
            {"role": "system", "content": _INSTRUCTION},
            {"role": "user", "content": _EXAMPLE[0]},
            {"role": "assistant", "content": _EXAMPLE[1]},
            {"role": "user", "content": passage},
        ]
        error = ""
        for _ in range(self.attempts):
            try:
                reply = self.chat(messages)
            except ConnectionError as failure:
                return _extraction(passage, {}, str(failure))
            found = extract_json(reply)
            if found is None:
                error = f"no JSON object in the model's reply of {len(reply)} characters"
            elif not all(isinstance(found.get(key), list) for key in ("named_entities", "triples")):
                keys = ", ".join(found) or "no keys"
                error = f"the reply's JSON lacks the lists named_entities and triples; it has {keys}"
            else:
                return _extraction(passage, found)
        return _extraction(passage, {}, error)

    def map(self, passages: Iterable[str]) -> Iterator[dict[str, Any]]:
        """The extractions of several passages, as they come."""
        pool = ThreadPoolExecutor(self.concurrency)
        try:
            for future in as_completed([pool.submit(self, passage) for passage in passages]):
                yield future.result()
        finally:
            pool.shutdown(cancel_futures=True)  # an interrupted run does not wait for passages it has not begun


def _extraction(passage: str, found: dict[str, Any], error: str = "") -> dict[str, Any]:
    extraction = {
        "passage": passage,
        "extracted_entities": found.get("named_entities", []),
        "extracted_triples": found.get("triples", []),
    }
    return {**extraction, "error": error} if error else extraction
