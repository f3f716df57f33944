"""Grade-school word problems with worked solutions, from the GSM-Symbolic templates in the asset ``reasoning-gym``."""

from __future__ import annotations

import ast
import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from types import ModuleType
from typing import Any, NamedTuple

LIBRARY, TASK = "reasoning_gym", "arithmetic.gsm_symbolic"
GENERATORS = ("generators_00_49", "generators_50_99")  # modules of functions generate_<template>


class Problem(NamedTuple):
    """A question, and a solution in words that ends in ``#### <answer>``."""

    question: str
    solution: str


def problems(asset: Path, seed: int) -> Iterator[Problem]:
    """Problems without end and without repetition, from all sound templates in turn.

    The library's own entry imports all of its hundred task families and what they need; only the templates are
    imported here.

    Args:
        asset: The folder of the asset.
        seed: Of the numbers and names in them.

    Raises:
        FileNotFoundError: The folder holds another library.
    """
    folder = asset.joinpath(LIBRARY, *TASK.split("."))
    sound = _sound_templates(folder / "gsm_symbolic.py")
    with _bare_packages(asset):
        modules = [importlib.import_module(f"{LIBRARY}.{TASK}.{name}") for name in GENERATORS]
    rng, seen = Random(seed), set[Problem]()  # noqa: S311 - numbers of word problems
    while True:
        for template in sound:
            made = getattr(modules[template // 50], f"generate_{template}")(rng)
            problem = Problem(made["question"].strip(), made["metadata"]["answer_cot"].strip())
            if problem not in seen:
                seen.add(problem)
                yield problem


def _sound_templates(file: Path) -> list[int]:
    """The library's list of templates that need no mending."""
    for statement in ast.parse(file.read_text(encoding="utf-8")).body:
        if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == "tasks_ok":
            templates: list[int] = ast.literal_eval(statement.value)
            return templates
    raise ValueError(f"{file} holds no list tasks_ok of templates")


@contextmanager
def _bare_packages(asset: Path) -> Iterator[None]:
    """The library's packages as mere folders, without what their __init__ files import; gone again afterwards."""

    def ours(name: str) -> bool:
        return name.split(".")[0] == LIBRARY

    kept: dict[str, Any] = {name: sys.modules.pop(name) for name in list(sys.modules) if ours(name)}
    parts = [LIBRARY, *TASK.split(".")]
    for depth in range(1, len(parts) + 1):
        package = ModuleType(".".join(parts[:depth]))
        package.__path__ = [str(asset.joinpath(*parts[:depth]))]
        sys.modules[package.__name__] = package
    try:
        yield
    finally:
        for name in list(sys.modules):
            if ours(name):
                del sys.modules[name]
        sys.modules.update(kept)
