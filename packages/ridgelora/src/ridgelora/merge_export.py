"""Merging a saved adapter into a plain transformers model: exactly, computed in full precision, rounded once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import nn

from nips_finetune import Batches, SavedAdapter, merge_and_save


def merge_exactly(
    saved: SavedAdapter,
    out: Path,
    batches: Batches | None,
    device: torch.device,
    dtype: torch.dtype,
    safe: bool = True,
) -> dict[str, Any]:
    """Merge and write a new folder, in one step; see :func:`nips_finetune.merge_and_save`.

    Everything is computed in float32, or in float64 for that ``dtype``, so that weights are rounded once, at the end.

    Args:
        saved: The adapter.
        out: The folder, new or empty.
        batches: To compare before and after on.
        device: Where to compute.
        dtype: Of the merged weights; rounding to it is part of the change that is reported.
        safe: Refuse weights that are not finite, with nothing written.

    Raises:
        ValueError: The folder is not empty, or what peft's ``merge_and_unload`` raises.
    """

    def merge(model: nn.Module) -> nn.Module:
        merged: nn.Module = model.merge_and_unload(safe_merge=safe)  # type: ignore[operator] # of a PeftModel
        return merged.to(dtype)

    return merge_and_save(saved, out, batches, device, torch.promote_types(dtype, torch.float32), merge)
