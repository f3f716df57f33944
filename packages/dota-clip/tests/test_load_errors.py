"""One-line errors in place of library stacks."""

from __future__ import annotations

import pytest

from dota_clip.load_errors import load_failure, near_matches, one_line


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("laion2b", "did you mean laion2b_s34b_b88k? "),
        ("opena", "did you mean openai? "),
        ("OPEN-AI", "did you mean openai? "),
        ("mnist", ""),
    ],
)
def test_near_matches_begin_with_or_resemble_the_name(name: str, expected: str) -> None:
    assert near_matches(name, ["openai", "laion2b_s34b_b88k", "dfn5b"]) == expected


def test_a_long_message_becomes_one_short_line() -> None:
    found = one_line(RuntimeError("Error(s):\n\tMissing key " + "x" * 1000))
    assert found.startswith("Error(s): Missing key xxx")
    assert len(found) == 300
    assert found.endswith("...")


def test_an_error_without_text_is_named_by_its_type() -> None:
    assert one_line(KeyError()) == "KeyError"


def test_a_cause_hidden_in_the_chain_is_found() -> None:
    from huggingface_hub.errors import LocalEntryNotFoundError

    try:
        try:
            raise LocalEntryNotFoundError("x")
        except LocalEntryNotFoundError as cause:
            raise RuntimeError("could not determine the configuration") from cause
    except RuntimeError as error:
        found = load_failure("hf-hub:org/name", "org/name", error)
    assert isinstance(found, OSError)
    assert "run `hf download org/name` where there is a network" in str(found)
