"""What is in a model folder, without computing anything: config, sizes, names that do not fit."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import torch

from nips_common.artifacts import read_json
from toto_ts.checkpoint import CONFIG_FILE, LABELS, find_folder, read_weights
from toto_ts.config import TotoConfig
from toto_ts.model import Toto


def inspect_checkpoint(path_or_id: str | Path) -> dict[str, Any]:
    """Describe a checkpoint.

    Args:
        path_or_id: folder or hub id.

    Returns:
        The config, its unknown keys, counts of parameters and tensors, dtypes, whether there are variate labels, and
        the names of tensors that are missing, unknown or wrongly shaped.

    Raises:
        FileNotFoundError, ValueError: a folder or file that cannot be read.
    """
    folder = find_folder(path_or_id)
    if not (folder / CONFIG_FILE).is_file():
        raise FileNotFoundError(f"{folder / CONFIG_FILE}: no such file")
    config, tensors = TotoConfig.from_json(folder / CONFIG_FILE), read_weights(folder)
    with torch.device("meta"):
        model = Toto(config)
        if any(label in tensors for label in LABELS):
            model.enable_variate_labels()
    expected = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    found = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    shared = expected.keys() & found.keys()
    known = {field.name for field in dataclasses.fields(TotoConfig)}
    return {
        "config": dataclasses.asdict(config),
        "unknown_config_keys": sorted(read_json(folder / CONFIG_FILE).keys() - known),
        "parameters": sum(tensor.numel() for tensor in model.state_dict().values()),
        "tensors": len(tensors),
        "dtypes": sorted({str(tensor.dtype).removeprefix("torch.") for tensor in tensors.values()}),
        "variate_labels": any(label in tensors for label in LABELS),
        "missing": sorted(expected.keys() - found.keys()),
        "unknown": sorted(found.keys() - expected.keys()),
        "wrong_shape": {name: [list(found[name]), list(expected[name])] for name in sorted(shared)
                        if found[name] != expected[name]},
    }  # fmt: skip
