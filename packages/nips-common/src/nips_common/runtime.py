"""Devices, dtypes and seeds: what the user asked for is resolved, or refused with what there is."""

import importlib
import os
import random
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import torch


def require(module: str, requirement: str) -> Any:
    """Import and return an optional module, or raise the ImportError that says ``pip install "requirement"``."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise ImportError(f'{error.name} is not installed: pip install "{requirement}"') from error


def resolve_device(device: "str | torch.device" = "auto") -> "torch.device":
    """Turn ``auto | cpu | cuda[:N] | mps`` into a device of this machine, or raise ValueError naming what it has.

    ``auto`` prefers CUDA, then MPS. CUDA without a number is the one of torchrun's ``LOCAL_RANK``, else the first.
    """
    require("torch", "nips-common[torch]")
    import torch

    gpus = torch.cuda.device_count()
    available = [f"cuda:{index}" for index in range(gpus)] + ["mps"] * torch.backends.mps.is_available() + ["cpu"]
    rank = int(os.environ.get("LOCAL_RANK", "0")) % max(gpus, 1)
    found = {"auto": available[rank], "cuda": f"cuda:{rank}"}.get(str(device), str(device))
    if found not in available:
        here = ", ".join(["auto", *["cuda"] * bool(gpus), *available])
        raise ValueError(f"device must be one of {here} (what torch {torch.__version__} finds), got {str(device)!r}")
    return torch.device(found)


def resolve_dtype(dtype: str = "auto", device: "str | torch.device" = "cpu") -> "torch.dtype":
    """Turn the name of a float dtype into it; ``auto`` is bfloat16 on CUDA that has it (capability 8), else float32."""
    place = resolve_device(device)
    import torch

    dtypes = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16, "float64": torch.float64}
    if dtype == "auto":
        dtype = "bfloat16" if place.type == "cuda" and torch.cuda.get_device_capability(place) >= (8, 0) else "float32"
    if dtype not in dtypes:
        raise ValueError(f"dtype must be auto, {', '.join(dtypes)}; got {dtype!r}")
    return dtypes[dtype]


def seed_everything(seed: int) -> None:
    """Seed ``random``, numpy's global generator and torch on all devices; ``seed`` lies in 0 .. 2**32 - 1."""
    if not 0 <= seed < 2**32:
        raise ValueError(f"seed must be between 0 and 2**32 - 1, which is what numpy takes; got {seed}")
    require("torch", "nips-common[torch]").manual_seed(seed)
    np.random.seed(seed)  # noqa: NPY002 - libraries below us draw from the global generator
    random.seed(seed)


def describe(device: "torch.device", dtype: "torch.dtype") -> str:
    """One line for logs and result files, such as ``cuda:0 (NVIDIA H100), bfloat16``."""
    chip = f" ({require('torch', 'torch').cuda.get_device_name(device)})" if device.type == "cuda" else ""
    return f"{device}{chip}, {str(dtype).removeprefix('torch.')}"
