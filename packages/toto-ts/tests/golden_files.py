"""Reading the reference data of golden/ (see its README), and comparing with its tolerance."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

GOLDEN = Path(__file__).parent / "golden"
MODELS = ("mixture_last", "mixture_first_exog", "studentt_timeonly_std", "causal_pertimestep")


def tensors(name: str) -> dict[str, torch.Tensor]:
    return load_file(GOLDEN / f"{name}.safetensors")


def values(name: str) -> Any:
    return json.loads((GOLDEN / f"{name}.json").read_text())


def model_folder(name: str, folder: Path, weights: str | None = None) -> Path:
    """One of the reference models as a folder that `from_pretrained` reads."""
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(GOLDEN / f"{name}.config.json", folder / "config.json")
    shutil.copyfile(GOLDEN / f"{weights or name}.model.safetensors", folder / "model.safetensors")
    return folder


def assert_golden(actual: torch.Tensor, expected: torch.Tensor, rtol: float = 1e-4) -> None:
    """Within rtol, and rtol times the largest expected magnitude (at least 1)."""
    atol = rtol * max(1.0, float(expected.abs().max()))
    torch.testing.assert_close(actual, expected, rtol=rtol, atol=atol)
