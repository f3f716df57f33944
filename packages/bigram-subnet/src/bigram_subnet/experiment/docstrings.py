"""Real text that every Python brings: the docstrings of its standard library, read from the source files."""

from __future__ import annotations

import ast
import functools
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

# Printable ASCII and the line end, one id a character: 96 symbols.
SYMBOLS = "\n" + "".join(chr(code) for code in range(32, 127))
_HELD_OUT = 10  # every tenth file


@dataclass(frozen=True)
class Corpus:
    """Token ids of text, (sequences, length), from different files.

    Args:
        training: for the model, the counts and the masks.
        held_out: for evaluation only.
    """

    training: Tensor
    held_out: Tensor


def documentation(source: Path) -> Iterator[str]:
    """The docstrings of a source file, with their indentation taken off; nothing is run."""
    try:
        tree = ast.parse(source.read_text("utf-8"))
    except (SyntaxError, UnicodeDecodeError):  # files kept for other Pythons
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text:
                yield text


@functools.lru_cache(maxsize=1)
def standard_library(length: int) -> Corpus:
    """The docstrings of the standard library's single-file modules, cut into sequences; every tenth file is held out.

    Args:
        length: characters in a sequence.
    """
    files = sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py"))
    ids = {symbol: index for index, symbol in enumerate(SYMBOLS)}
    parts: tuple[list[int], list[int]] = ([], [])
    for number, file in enumerate(files):
        part = parts[number % _HELD_OUT == 0]
        for text in documentation(file):
            part.extend(ids[symbol] for symbol in f"{text}\n\n" if symbol in ids)
    training, held_out = (torch.tensor(part[: len(part) // length * length]).view(-1, length) for part in parts)
    return Corpus(training, held_out)
