"""Merging a saved adapter into a plain transformers model, with a comparison before and after."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from nips_common.artifacts import atomic_folder, write_json
from nips_finetune.saved_adapter import Batches, Outcome, SavedAdapter


def merge_and_unload(model: nn.Module) -> nn.Module:
    """Merge by peft's own way, refusing weights that are not finite."""
    merged: nn.Module = model.merge_and_unload(safe_merge=True)  # type: ignore[operator] # of a PeftModel
    return merged


def merge_and_save(
    saved: SavedAdapter,
    out: Path,
    batches: Batches | None,
    device: torch.device,
    dtype: torch.dtype,
    merge: Callable[[nn.Module], nn.Module] = merge_and_unload,
    about: Mapping[str, Any] | None = None,
    changes: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Merge and write the model, its tokenizer or image processor, and ``merge.json`` to a new folder, in one step.

    Args:
        saved: The adapter.
        out: The folder, new or empty.
        batches: To compare before and after on.
        device: Where to compute.
        dtype: Of the weights.
        merge: Makes the plain model from the peft model.
        about: What the report should say too, such as the way of merging.
        changes: Settings of the config to load the adapter with.

    Returns:
        What was done; with batches, how much it changed: of a classifier ``relative_output_change`` and ``same_class``
        (the share of rows), of a language model ``loss_before`` and ``loss_after``.

    Raises:
        ValueError: The folder is not empty, or what ``merge`` raises.
    """
    check_new_folder(out)
    model = saved.load(device, dtype, **(changes or {}))
    processor = saved.load_processor()
    before = None if batches is None else Outcome.of(model, batches, saved.task)
    merged: Any = merge(model)
    report: dict[str, Any] = {"adapter": str(saved.folder), "base": saved.base, **(about or {}), "out": str(out)}
    if before is not None and batches is not None:
        report |= {"rows": len(batches.examples)} | before.change_to(Outcome.of(merged, batches, saved.task))
    with atomic_folder(out) as folder:
        merged.save_pretrained(folder)
        processor.save_pretrained(folder)
        write_json(folder / "merge.json", report)
    return report


def check_new_folder(out: Path) -> None:
    """ValueError if there is something at ``out`` already."""
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ValueError(f"--out {out} must be a new or empty folder")
