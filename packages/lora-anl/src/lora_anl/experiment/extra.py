"""Libraries that only the experiment needs."""

from __future__ import annotations

import importlib
from types import ModuleType


def from_extra(module: str) -> ModuleType:
    """Imports a module of the extra ``reproduce``.

    Raises:
        ImportError: the module is missing; the message holds the install command.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ImportError(f'the experiment needs {module}: pip install "lora-anl[reproduce]"') from error
