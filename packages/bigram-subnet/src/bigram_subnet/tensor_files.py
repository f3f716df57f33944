"""Safetensors files, written in one step and readable by whom the user lets read new files."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

from safetensors.torch import save_file
from torch import Tensor

from nips_common.artifacts import atomic_file


def write_tensors(path: str | Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> None:
    """Writes tensors and metadata to a file, under a temporary name first."""
    with atomic_file(path) as temporary:
        save_file({name: value.contiguous() for name, value in tensors.items()}, temporary, dict(metadata))
        ordinary = temporary.with_name("mode")  # safetensors makes files that only their owner may read
        ordinary.touch()
        shutil.copymode(ordinary, temporary)
