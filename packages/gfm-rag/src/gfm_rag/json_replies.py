"""JSON objects in the replies of language models. Read as JSON and nothing else: nothing is ever evaluated."""

from __future__ import annotations

import json
from typing import Any


def extract_json(text: str) -> dict[str, Any] | None:
    """The first balanced {...} of a text that is a JSON object, or None.

    Args:
        text: a reply, with or without prose or code fences around the object.
    """
    start = text.find("{")
    while start >= 0:
        end = _balanced_end(text, start)
        if end is None:
            return None
        try:
            found = json.loads(text[start:end])
        except (ValueError, RecursionError):
            found = None
        if isinstance(found, dict):
            return found
        start = text.find("{", end)
    return None


def _balanced_end(text: str, start: int) -> int | None:
    """Behind the brace that closes the one at `start`; braces in strings do not count."""
    depth, quoted, escaped = 0, False, False
    for position in range(start, len(text)):
        char = text[position]
        if quoted:
            if escaped:
                escaped = False
            elif char == "\\":
                escaped = True
            elif char == '"':
                quoted = False
        elif char == '"':
            quoted = True
        elif char in "{}":
            depth += 1 if char == "{" else -1
            if depth == 0:
                return position + 1
    return None
