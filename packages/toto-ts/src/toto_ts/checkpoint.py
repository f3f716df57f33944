"""Model folders as published: ``config.json`` and ``model.safetensors``, plain or fused feed-forward names."""

from __future__ import annotations

import logging
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from nips_common.artifacts import atomic_folder, check_tensors
from nips_common.runtime import require
from toto_ts.config import TotoConfig

if TYPE_CHECKING:
    from toto_ts.model import Toto

log = logging.getLogger(__name__)

CONFIG_FILE, WEIGHTS_FILE = "config.json", "model.safetensors"
LABELS = ("model.target_variate_label", "model.exogenous_variate_label")


def plain_names(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Fused feed-forward names turned into plain ones; rotary buffers, which are never needed, left out."""
    renamed: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        if name.endswith("rotary_emb.freqs"):
            continue
        plain = re.sub(r"\.mlp\.0\.w3\.", ".mlp.2.", re.sub(r"\.mlp\.0\.w12\.", ".mlp.0.", name))
        if plain in renamed:
            raise ValueError(f"the checkpoint holds {plain} under both its plain and its fused name")
        renamed[plain] = tensor
    return renamed


def fused_names(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Plain feed-forward names turned into those of the fused kernels."""
    return {
        re.sub(r"\.mlp\.2\.", ".mlp.0.w3.", re.sub(r"\.mlp\.0\.", ".mlp.0.w12.", name)): tensor
        for name, tensor in tensors.items()
    }


def find_folder(path_or_id: str | Path) -> Path:
    """A local folder as it is, or the snapshot of a hub id.

    Raises:
        FileNotFoundError: neither a folder nor to be had from the hub.
        ImportError: a hub id without the extra ``hub``.
    """
    folder = Path(path_or_id)
    if folder.is_dir():
        return folder
    if folder.exists() or len(Path(path_or_id).parts) != 2 or str(path_or_id).startswith((".", "/", "~")):
        raise FileNotFoundError(f"{path_or_id}: no such folder, and not a hub id (org/name)")
    hub = require("huggingface_hub", "toto-ts[hub]")
    try:
        return Path(hub.snapshot_download(str(path_or_id), allow_patterns=[CONFIG_FILE, WEIGHTS_FILE]))
    except (OSError, ValueError) as error:  # the hub's own errors are OSError or ValueError
        reason = " ".join(str(error).split())[:200]
        raise FileNotFoundError(f"{path_or_id}: no such folder, and not to be had as a hub id: {reason}") from error


def read_weights(folder: Path) -> dict[str, Tensor]:
    """The tensors of a folder under their plain names.

    Raises:
        FileNotFoundError: no such file; pickles beside it are named.
        ValueError: truncated or damaged.
    """
    file = folder / WEIGHTS_FILE
    if not file.is_file():
        others = sorted(f.name for f in folder.glob("*") if f.suffix in (".bin", ".pt", ".pth", ".ckpt"))
        hint = f"; {', '.join(others)} could run code when read and is never loaded" if others else ""
        raise FileNotFoundError(f"{file}: no such file{hint}")
    try:
        return plain_names(load_file(file))
    except SafetensorError as error:
        raise ValueError(f"{file}: truncated or damaged ({error})") from error


def load_checkpoint(
    model_class: type[Toto],
    path_or_id: str | Path,
    map_location: str | torch.device,
    dtype: torch.dtype | None,
    strict: bool,
) -> Toto:
    """See `Toto.from_pretrained`."""
    folder = find_folder(path_or_id)
    if not (folder / CONFIG_FILE).is_file():
        raise FileNotFoundError(f"{folder / CONFIG_FILE}: no such file")
    config = TotoConfig.from_json(folder / CONFIG_FILE)
    tensors = read_weights(folder)
    with torch.device("meta"):
        model = model_class(config)
        if any(label in tensors for label in LABELS):
            model.enable_variate_labels()
    expected = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    try:
        check_tensors(tensors, expected, str(folder / WEIGHTS_FILE))
    except ValueError as error:
        if strict:
            raise
        log.warning("%s", error)
        tensors = _complete(model_class(config), tensors, expected)
    tensors = {name: tensor.to(device=map_location, dtype=dtype) for name, tensor in tensors.items()}
    model.load_state_dict(tensors, assign=True)
    return model.requires_grad_(True).eval()


def _complete(fresh: Toto, tensors: Mapping[str, Tensor], expected: Mapping[str, tuple[int, ...]]) -> dict[str, Tensor]:
    """The tensors that fit, and random ones for the rest."""
    if any(label in expected for label in LABELS):
        fresh.enable_variate_labels()
    fitting = {name: t for name, t in tensors.items() if expected.get(name) == tuple(t.shape)}
    return {**fresh.state_dict(), **fitting}


def save_checkpoint(model: Toto, folder: str | Path, fused: bool) -> None:
    """See `Toto.save_pretrained`."""
    state = {name: t.detach().to("cpu", copy=True).contiguous() for name, t in model.state_dict().items()}
    with atomic_folder(folder) as target:
        model.config.to_json(target / CONFIG_FILE)
        save_file(fused_names(state) if fused else state, target / WEIGHTS_FILE, metadata={"format": "pt"})
        shutil.copymode(target / CONFIG_FILE, target / WEIGHTS_FILE)  # safetensors makes it private
