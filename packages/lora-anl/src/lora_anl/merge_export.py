"""Merging a saved adapter into a plain transformers model: exactly, by the paper's policy, or calibrated on data."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch

from lora_anl.merge import merge_calibrated
from nips_finetune import Batches, SavedAdapter, check_new_folder, merge_and_save

Policy = Literal["exact", "static", "calibrated"]


def merge_by_policy(
    saved: SavedAdapter,
    out: Path,
    policy: Policy,
    batches: Batches | None,
    device: torch.device,
    dtype: torch.dtype,
    eps: float = 1e-4,
) -> dict[str, Any]:
    """Merge and write a new folder, in one step; see :func:`nips_finetune.merge_and_save`.

    Args:
        saved: The adapter.
        out: The folder, new or empty.
        policy: "exact" for adapters in static form; for dynamic ones "static" (the paper's) or "calibrated".
        batches: To calibrate on, and to compare before and after on.
        device: Where to compute.
        dtype: Of the weights.
        eps: Ridge of the calibrated merge.

    Raises:
        ValueError: The policy does not fit the adapter, or the folder is not empty; before anything is loaded.
    """
    _check(saved, policy, batches)
    check_new_folder(out)
    about = {"policy": policy}
    if policy == "calibrated" and batches is not None:
        merge = partial(merge_calibrated, dataloader=batches, eps=eps)
        return merge_and_save(saved, out, batches, device, dtype, merge, about)
    changes = {"merge_policy": "static"} if policy == "static" else {}
    return merge_and_save(saved, out, batches, device, dtype, about=about, changes=changes)


def _check(saved: SavedAdapter, policy: Policy, batches: Batches | None) -> None:
    dynamic = saved.config.forward_mode == "dynamic"
    if policy == "exact" and dynamic:
        raise ValueError(
            f"{saved.folder} was trained with forward_mode='dynamic': its update B s(A x) is nonlinear in x, and no "
            "merged weight computes that. Keep it as an adapter; or train with --forward_mode static, which merges "
            "exactly; or accept another function: --policy calibrated --data DATA (nearest on your data) or "
            "--policy static (the paper's; `lora-anl gap` measures its change)"
        )
    if policy != "exact" and not dynamic:
        raise ValueError(
            f"{saved.folder} was trained with forward_mode='static' and merges exactly: use --policy exact"
        )
    if policy == "calibrated" and batches is None:
        raise ValueError("--policy calibrated needs --data, rows like those that the model will see")
