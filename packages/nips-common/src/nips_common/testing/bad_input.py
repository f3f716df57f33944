"""A table of wrong calls: what is called, which error it raises, and the words that its one line must hold."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import pytest


@dataclass(frozen=True)
class BadInput:
    """One wrong call.

    Args:
        title: What is wrong, in a few words; becomes the test's id.
        call: The call; it gets what :meth:`check` is given, for instance ``tmp_path``.
        words: What the message must hold: the value, the place, what is accepted.
        error: The exact class of the error or a base of it.
    """

    title: str
    call: Callable[..., object]
    words: tuple[str, ...]
    error: type[Exception] = ValueError

    def check(self, *args: Any, **kwargs: Any) -> None:
        """Make the call and fail unless it raises the error, in one line, with all the words."""
        with pytest.raises(self.error) as caught:
            self.call(*args, **kwargs)
        message = str(caught.value)
        absent = [word for word in self.words if word not in message]
        assert not absent, f"{message!r} lacks {absent}"
        assert "\n" not in message, f"{message!r} is more than one line"


def bad_inputs(cases: Iterable[BadInput]) -> pytest.MarkDecorator:
    """Parametrise a test over ``cases``, as its argument ``case``: ``@bad_inputs(CASES)``."""
    return pytest.mark.parametrize("case", [pytest.param(case, id=case.title) for case in cases])
