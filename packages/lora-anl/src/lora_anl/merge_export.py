"""Merging a saved adapter into a plain transformers model: exactly, by the paper's policy, or calibrated on data."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import torch

from lora_anl.merge import merge_calibrated
from lora_anl.saved_adapter import Batches, Outcome, SavedAdapter
from nips_common.artifacts import atomic_folder, write_json

Policy = Literal["exact", "static", "calibrated"]


def merge_and_save(
    saved: SavedAdapter,
    out: Path,
    policy: Policy,
    batches: Batches | None,
    device: torch.device,
    dtype: torch.dtype,
    eps: float = 1e-4,
) -> dict[str, Any]:
    """Merge and write the model, its tokenizer or image processor, and ``merge.json`` to a new folder, in one step.

    Args:
        saved: The adapter.
        out: The folder, new or empty.
        policy: "exact" for adapters in static form; for dynamic ones "static" (the paper's) or "calibrated".
        batches: To calibrate on, and to compare before and after on.
        device: Where to compute.
        dtype: Of the weights.
        eps: Ridge of the calibrated merge.

    Returns:
        What was done; with batches, how much it changed: of a classifier ``relative_output_change`` and ``same_class``
        (the share of rows), of a language model ``loss_before`` and ``loss_after``.

    Raises:
        ValueError: The policy does not fit the adapter, or the folder is not empty.
    """
    _check(saved, out, policy, batches)
    changes = {"merge_policy": "static"} if policy == "static" else {}
    model: Any = saved.load(device, dtype, **changes)
    processor = saved.load_processor()
    before = None if batches is None else Outcome.of(model, batches, saved.task)
    if policy == "calibrated" and batches is not None:
        merged: Any = merge_calibrated(model, batches, eps)
    else:
        merged = model.merge_and_unload()
    report: dict[str, Any] = {"adapter": str(saved.folder), "base": saved.base, "policy": policy, "out": str(out)}
    if before is not None and batches is not None:
        report |= {"rows": len(batches.examples)} | before.change_to(Outcome.of(merged, batches, saved.task))
    with atomic_folder(out) as folder:
        merged.save_pretrained(folder)
        processor.save_pretrained(folder)
        write_json(folder / "merge.json", report)
    return report


def _check(saved: SavedAdapter, out: Path, policy: Policy, batches: Batches | None) -> None:
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
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ValueError(f"--out {out} must be a new or empty folder")
