"""The table of wrong calls fails where a message is not what the table says."""

from pathlib import Path

import pytest

from nips_common.testing.bad_input import BadInput, bad_inputs


def _fail(message: str, error: type[Exception] = ValueError) -> None:
    raise error(message)


def test_a_message_with_all_the_words_passes() -> None:
    BadInput("t", lambda: _fail("rank must be between 1 and 64, got 0"), ("rank", "1 and 64", "got 0")).check()


def test_a_message_that_lacks_a_word_fails_and_names_it() -> None:
    case = BadInput("t", lambda: _fail("rank is wrong"), ("rank", "64"))
    with pytest.raises(AssertionError, match=r"'rank is wrong' lacks \['64'\]"):
        case.check()


def test_a_message_of_two_lines_fails() -> None:
    with pytest.raises(AssertionError, match="more than one line"):
        BadInput("t", lambda: _fail("rank\nis wrong"), ("rank",)).check()


def test_a_call_that_raises_nothing_fails() -> None:
    with pytest.raises(pytest.fail.Exception, match="DID NOT RAISE"):
        BadInput("t", lambda: None, ()).check()


def test_another_error_is_not_swallowed() -> None:
    with pytest.raises(KeyError):
        BadInput("t", lambda: _fail("x", KeyError), ("x",)).check()


@bad_inputs([BadInput("a missing file", lambda folder: (folder / "x").read_text(), ("x",), FileNotFoundError)])
def test_the_call_gets_what_check_is_given(case: BadInput, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    assert request.node.name.endswith("[a missing file]")
    case.check(tmp_path)
