"""Out of memory: try again with half as much at a time, and remember what fitted."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from boom_bench.config import check_whole

log = logging.getLogger(__name__)
T = TypeVar("T")


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that memory ran out: Python's, torch's (CUDA, MPS), or jax's by its words."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    text = str(error).lower()
    return isinstance(error, RuntimeError) and ("out of memory" in text or "resource_exhausted" in text)


@dataclass
class HalvingBackoff:
    """Calls with a size that halves whenever memory runs out.

    Args:
        size: how much to try at first (variates or samples at a time); it only falls.
    """

    size: int

    def __post_init__(self) -> None:
        check_whole("size", self.size)

    def __call__(self, attempt: Callable[[int], T], most: int | None = None) -> T:
        """Returns ``attempt(size)``.

        Args:
            attempt: called with the size; must start anew every time.
            most: an upper bound of this call's size.

        Raises:
            Exception: what ``attempt`` raises, if it is not for want of memory or the size is 1.
        """
        while True:
            size = self.size if most is None else min(self.size, most)
            try:
                return attempt(size)
            except Exception as error:
                if size == 1 or not is_out_of_memory(error):
                    raise
                self.size = size // 2
                log.warning("out of memory at %d at a time, going on with %d", size, self.size)
            _free_cache()


def _free_cache() -> None:
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        torch.cuda.empty_cache()
