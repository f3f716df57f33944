"""Where a command writes: a folder of its own, that holds nothing yet or that it was told to replace."""

from __future__ import annotations

import os
from pathlib import Path

from nips_common.artifacts import recover


def check_folder_name(path: Path) -> None:
    """A folder's name, before any work.

    Raises:
        ValueError: it is a file's, that of the working directory or of one around it, or a mount point.
    """
    target = Path(os.path.realpath(path))
    if target.exists() and not target.is_dir():
        raise ValueError(f"{path} is a file: name a folder")
    if Path.cwd().is_relative_to(target) or os.path.ismount(target):
        raise ValueError(f"{path} is the working directory, one around it or a mount point: name a folder of its own")
    recover(target)


def is_used(path: Path) -> bool:
    """Whether a folder holds anything but hidden files and what a killed run left (`_graphs-0`)."""
    return path.is_dir() and any(not entry.name.startswith((".", "_graphs-")) for entry in path.iterdir())


def check_output_folder(path: Path, marks: tuple[str, ...], overwrite: bool, instead: str = "") -> None:
    """A folder that is to be written as a whole, before any work.

    Args:
        path: of the folder.
        marks: names or patterns of which a folder of the same kind holds one.
        overwrite: the user wants it replaced.
        instead: what else could be done with a folder that is used, for the message.

    Raises:
        ValueError: as `check_folder_name`; a folder that is used without `overwrite`, or for something else.
    """
    check_folder_name(path)
    if not is_used(path):
        return
    if not any(any(path.glob(mark)) for mark in marks):
        raise ValueError(f"{path} holds other files (no {' or '.join(marks)}): name a new folder")
    if not overwrite:
        raise ValueError(f"{path} exists and would be replaced: name another folder, or add --overwrite{instead}")
