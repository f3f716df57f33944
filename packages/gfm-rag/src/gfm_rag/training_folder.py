"""The folder of a training run: what may lie in it before, its checkpoints, and what an interrupted run says."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gfm_rag.output_folder import check_folder_name, check_output_folder

_MARKS = ("checkpoint-*", "config.json")


def checkpoints(folder: Path) -> list[Path]:
    """Those of a folder, the newest last."""
    found = [path for path in folder.glob("checkpoint-*") if path.is_dir() and re.fullmatch(r"\d+", path.name[11:])]
    return sorted(found, key=lambda path: int(path.name[11:]))


def check_training_folder(folder: Path, resume: bool, overwrite: bool) -> None:
    """What can be told before any work.

    Raises:
        ValueError: a file, a folder for something else, one that holds a model or checkpoints without `resume` or
            `overwrite`, or nothing to go on from with `resume`.
    """
    if resume and overwrite:
        raise ValueError("--resume goes on with what --overwrite would remove: give one of them")
    if not resume:
        check_output_folder(folder, _MARKS, overwrite, " (--resume goes on with an interrupted run)")
        return
    check_folder_name(folder)
    if not checkpoints(folder):
        raise ValueError(f"--resume: {folder} holds no checkpoint to go on from")


def remove_checkpoints(folder: Path) -> None:
    """Those of an earlier run, which would count as the newest ones."""
    for path in checkpoints(folder):
        shutil.rmtree(path)


@contextmanager
def interruption_told(folder: Path) -> Iterator[None]:
    """Says how to go on where the user ends the run."""
    try:
        yield
    except KeyboardInterrupt:
        found = checkpoints(folder)
        way = f"--resume goes on from {found[-1].name}" if found else "there was no checkpoint yet"
        print(f"interrupted: {way}", file=sys.stderr)
        raise
