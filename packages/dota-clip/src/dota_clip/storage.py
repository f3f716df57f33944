"""How an adapter's state is kept: a folder of config.json and model.safetensors, read strictly."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from nips_common.artifacts import check_keys, check_tensors, load_folder, save_folder


def keep_precision(fn: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """Wraps a module's conversion: floating tensors change device, or to float32 or float64, but never to less."""

    def convert(tensor: Tensor) -> Tensor:
        probe = fn(torch.empty(0, dtype=tensor.dtype, device=tensor.device))
        if tensor.is_floating_point() and probe.dtype in (torch.float16, torch.bfloat16):
            return tensor.to(probe.device)
        return fn(tensor)

    return convert


def copy_entries(destination: dict[str, Any], prefix: str) -> None:
    """Replaces the tensors of a state dict under ``prefix`` by copies."""
    for key, value in destination.items():
        if key.startswith(prefix) and isinstance(value, Tensor):
            destination[key] = value.clone()


def save_module(folder: str | os.PathLike[str], kind: str, module: nn.Module, config: dict[str, Any]) -> None:
    """Writes config and buffers of a module as one folder, atomically, without copying the state first."""
    save_folder(Path(folder), kind, config, {name: buffer.contiguous() for name, buffer in module.named_buffers()})


def read_module(folder: Path, kind: str, config_class: type) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Reads a folder of `save_module` and checks the config's keys against the dataclass (plus ``logit_scale``)."""
    config, tensors = load_folder(folder, kind)
    fields = [field.name for field in dataclasses.fields(config_class)] + ["logit_scale"]
    check_keys(config, fields, fields, str(folder / "config.json"))
    if "class_weights" not in tensors:
        raise ValueError(
            f"{folder / 'model.safetensors'}: missing class_weights, found {', '.join(sorted(tensors)) or 'nothing'}"
        )
    return config, tensors


def check_state(module: nn.Module, tensors: Mapping[str, Tensor], where: str = "state_dict") -> None:
    """ValueError naming every unknown, missing or wrongly shaped entry, before any is copied."""
    check_tensors(tensors, {name: tuple(buffer.shape) for name, buffer in module.named_buffers()}, where)


def load_tensors(module: nn.Module, tensors: dict[str, Tensor], folder: Path) -> None:
    """Copies tensors into the module's buffers once all names and shapes agree."""
    check_state(module, tensors, str(folder / "model.safetensors"))
    nn.Module.load_state_dict(module, tensors)
