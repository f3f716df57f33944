"""Saving a stream so that it can be stopped at any moment and resumed with the same outcome."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from dota_clip.adapter import DotaAdapter
from dota_clip.streaming.methods import MethodConfig, StreamMethod
from dota_clip.tda import TDAAdapter
from nips_common.artifacts import atomic_folder, check_keys, read_json, recover, write_json

_PROGRESS = "progress.json"


@dataclasses.dataclass
class Progress:
    """How far a stream has come.

    Attributes:
        job: what the stream is a run of; a state is only resumed by the same job.
        position: images of the order that are done, the skipped ones included.
        log_size: bytes of the prediction log that belong to them.
        skipped: identifiers of unreadable images.
    """

    job: dict[str, Any]
    position: int = 0
    log_size: int = 0
    skipped: list[str] = dataclasses.field(default_factory=list)


def digest(parts: Iterable[str]) -> str:
    """A short name for a list of strings: equal lists have equal names."""
    state = hashlib.blake2b(digest_size=16)
    for part in parts:
        state.update(json.dumps(part).encode())
    return state.hexdigest()


def stream_folder(state: Path, stream: int, streams: int) -> Path:
    """Where stream number ``stream`` of ``streams`` keeps its state.

    Raises:
        ValueError: the state folder was written with another number of streams.
    """
    folders = [entry.name for entry in state.glob("stream-*-of-*") if entry.is_dir()]
    others = sorted(name for name in folders if name.rpartition("-of-")[2] != str(streams))
    if others:
        raise ValueError(
            f"{state} holds {others[0]}, this run has {streams} stream(s): resume with as many processes, or --restart"
        )
    return state / f"stream-{stream}-of-{streams}"


def forget(state: Path) -> None:
    """Removes states and logs of all streams (``--restart``); other files in the folder stay."""
    for entry in state.glob("stream-*-of-*"):
        if entry.is_dir():
            shutil.rmtree(entry)
        else:
            entry.unlink()


def save_stream(folder: Path, method: StreamMethod, progress: Progress) -> None:
    """Writes adapter and progress together: a kill leaves the old pair or the new one."""
    with atomic_folder(folder) as new:
        method.save(new)
        write_json(new / _PROGRESS, dataclasses.asdict(progress))


def read_progress(folder: Path, job: dict[str, Any]) -> Progress | None:
    """The progress of a saved stream, or None where there is none.

    Raises:
        ValueError: the state belongs to another job; every setting that differs is named with both values.
    """
    recover(folder)
    if not folder.exists():
        return None
    file = folder / _PROGRESS
    if not file.is_file():
        raise ValueError(f"{folder} has no {_PROGRESS}: it is not the state of a stream (--restart starts anew)")
    saved = read_json(file)
    names = [field.name for field in dataclasses.fields(Progress)]
    check_keys(saved, names, names, str(file))
    progress = Progress(**saved)
    different = [
        f"{key} was {progress.job.get(key)!r}, now {job.get(key)!r}"
        for key in sorted(progress.job.keys() | job.keys())
        if progress.job.get(key) != job.get(key)
    ]
    if different:
        raise ValueError(
            f"{folder} is the state of another run: {'; '.join(different)} (--restart starts anew, --start-from "
            "goes on with its adapter on other images)"
        )
    return progress


def read_adapter(folder: Path, device: Any) -> DotaAdapter | TDAAdapter:
    """The adapter in a state folder, whichever of the two it is."""
    recover(folder)
    kind = read_json(folder / "config.json").get("kind") if (folder / "config.json").is_file() else None
    cls = TDAAdapter if kind == "dota-clip/tda" else DotaAdapter
    return cls.from_pretrained(folder, device)


def start_adapter(folder: Path, method: MethodConfig, class_weights: Tensor) -> DotaAdapter | TDAAdapter:
    """A saved adapter to go on from, once it is sure that it fits the method, its settings and the classes.

    Raises:
        ValueError: it was learned with another method, other settings or other class weights.
    """
    adapter = read_adapter(folder, class_weights.device)
    wanted = StreamMethod(method, class_weights, adapter.logit_scale).adapter
    if type(adapter) is not type(wanted) or adapter.config != wanted.config:
        raise ValueError(f"{folder} was learned with {adapter.config}, this run has {wanted.config}")
    weights = class_weights.to(adapter.class_weights)
    if adapter.class_weights.shape != weights.shape or not torch.allclose(adapter.class_weights, weights, atol=1e-3):
        raise ValueError(f"{folder} was learned with other class weights (other classes, prompts or encoder)")
    return adapter


def read_confidences(folder: Path) -> tuple[float, ...]:
    """The confidences a feedback run has seen; none where it kept none."""
    file = folder / "feedback.json"
    return tuple(read_json(file)["confidences"]) if file.is_file() else ()
