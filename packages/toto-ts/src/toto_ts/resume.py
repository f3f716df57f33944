"""What a run left in its folder: checkpoints that are whole, so that it can go on, or its end."""

from __future__ import annotations

import json
import logging
import zipfile
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from toto_ts.checkpoint import WEIGHTS_FILE

log = logging.getLogger(__name__)

METRICS = "metrics.json"  # written behind everything else: it tells of a finished run


def last_checkpoint(folder: Path, sharded: bool = False) -> Path | None:
    """The newest whole checkpoint of a run; one that a kill left unfinished is passed over with a warning."""
    numbered = [(path.name.removeprefix("checkpoint-"), path) for path in folder.glob("checkpoint-*")]
    for _, path in sorted(((int(n), path) for n, path in numbered if n.isdecimal()), reverse=True):
        fault = checkpoint_fault(path, sharded)
        if fault is None:
            return path
        log.warning("%s is not whole, passed over: %s", path, fault)
    return None


def checkpoint_fault(folder: Path, sharded: bool = False) -> str | None:
    """What keeps a run from going on from a checkpoint; None for a whole one. Nothing is unpickled.

    Args:
        folder: the checkpoint.
        sharded: of FSDP or DeepSpeed, which lay out weights and optimizer their own way: only the state is looked at.
    """
    try:
        int(json.loads((folder / "trainer_state.json").read_text("utf-8"))["global_step"])  # written last
    except (OSError, ValueError, KeyError, TypeError):
        return "trainer_state.json is missing or damaged"
    if sharded:
        return None
    if not _is_whole_safetensors(folder / WEIGHTS_FILE):
        return f"{WEIGHTS_FILE} is missing or damaged"
    states = sorted(folder.glob("rng_state*.pth"))  # one of each process
    if not states:
        return "rng_state.pth is missing"
    for file in (folder / "optimizer.pt", folder / "scheduler.pt", *states):
        if not _is_whole_zip(file):
            return f"{file.name} is missing or damaged"
    return None


def finished_report(folder: Path, steps: int) -> dict[str, Any] | None:
    """What is in ``metrics.json`` of a run that has made all its steps and has its weights; None for any other."""
    if not _is_whole_safetensors(folder / WEIGHTS_FILE):
        return None
    try:
        report: dict[str, Any] = json.loads((folder / METRICS).read_text("utf-8"))
        finished = int(report["steps"]) >= steps
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return report if finished else None


def _is_whole_safetensors(file: Path) -> bool:
    """Whether a file has a readable header and all the bytes that it announces."""
    try:
        with safe_open(str(file), "pt"):
            return True
    except (OSError, SafetensorError):
        return False


def _is_whole_zip(file: Path) -> bool:
    """Whether a file of torch.save, which is a zip archive, has all its parts with the right checksums."""
    try:
        with zipfile.ZipFile(file) as archive:
            return archive.testzip() is None
    except (OSError, zipfile.BadZipFile):
        return False
