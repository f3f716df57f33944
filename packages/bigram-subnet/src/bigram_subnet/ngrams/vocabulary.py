"""Whether counts, tokenizer and model speak of the same tokens."""

from __future__ import annotations

import hashlib
from typing import Any


def vocabulary_digest(tokenizer: Any) -> str:
    """SHA-256 of a tokenizer's vocabulary: every token with its id."""
    digest = hashlib.sha256()
    for token, index in sorted(tokenizer.get_vocab().items(), key=lambda item: (item[1], item[0])):
        digest.update(f"{index} {token}\n".encode("utf-8", "surrogatepass"))
    return digest.hexdigest()
