"""Checkpoints of a run: which of them are whole, so that a run can go on from them."""

from __future__ import annotations

import json
import logging
import zipfile
from pathlib import Path

from safetensors import SafetensorError, safe_open

log = logging.getLogger(__name__)

WEIGHTS = "adapter_model.safetensors"


def is_whole_safetensors(file: Path) -> bool:
    """Whether a file has a readable header and all the bytes that it announces."""
    try:
        with safe_open(str(file), "pt"):
            return True
    except (OSError, SafetensorError):
        return False


def checkpoint_step(folder: Path) -> int:
    """The step that a whole checkpoint was written after."""
    return int(json.loads((folder / "trainer_state.json").read_text("utf-8"))["global_step"])


def checkpoint_fault(folder: Path, sharded: bool = False) -> str | None:
    """What keeps a run from going on from a checkpoint; None for a whole one. Nothing is unpickled.

    Args:
        folder: The checkpoint.
        sharded: Of FSDP or DeepSpeed, which lay out weights and optimizer their own way: only the state is looked at.
    """
    try:
        checkpoint_step(folder)  # of the file that the Trainer writes last
    except (OSError, ValueError, KeyError, TypeError):
        return "trainer_state.json is missing or damaged"
    if sharded:
        return None
    if not is_whole_safetensors(folder / WEIGHTS):
        return f"{WEIGHTS} is missing or damaged"
    states = sorted(folder.glob("rng_state*.pth"))  # one of each process
    if not states:
        return "rng_state.pth is missing"
    for file in (folder / "optimizer.pt", folder / "scheduler.pt", *states):
        if not _is_whole_zip(file):
            return f"{file.name} is missing or damaged"
    return None


def _is_whole_zip(file: Path) -> bool:
    """Whether a file of torch.save, which is a zip archive, has all its parts with the right checksums."""
    try:
        with zipfile.ZipFile(file) as archive:
            return archive.testzip() is None
    except (OSError, zipfile.BadZipFile):
        return False


def last_checkpoint(folder: Path, sharded: bool = False) -> Path | None:
    """The newest whole checkpoint of a run; what a kill left unfinished is passed over with a warning."""
    found = {}
    for path in folder.glob("checkpoint-*"):
        number = path.name.removeprefix("checkpoint-")
        if number.isdecimal():
            found[int(number)] = path
    for _, path in sorted(found.items(), reverse=True):
        fault = checkpoint_fault(path, sharded)
        if fault is None:
            return path
        log.warning("%s is not whole, passed over: %s", path, fault)
    return None
