"""The graph class of torch_geometric, imported when a graph is made: it takes twice as long as torch itself.

Imports of big libraries are made without the notices that they give about themselves.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch_geometric.data import Data


@contextmanager
def without_import_notices() -> Iterator[None]:
    """Hides two notices of other libraries about their own code while they are imported, and nothing afterwards.

    torch_geometric still scripts functions with `torch.jit`; torchao, which transformers imports where it is installed,
    registers its enums in a way that newer torch need not be told.
    """
    log = logging.getLogger("torch.utils._pytree")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=r"`torch\.jit\.script` is deprecated")
            yield
    finally:
        log.setLevel(level)


def make_graph(**parts: Any) -> Data:
    """A graph of the parts that `GNNRetriever.forward` describes."""
    with without_import_notices():
        from torch_geometric.data import Data
    return Data(**parts)
