"""Weights of ``LinearWithRidgeLoRA`` layers (the code of arXiv 2601.22708) as a peft checkpoint of ours."""

from __future__ import annotations

import re
from collections.abc import Mapping

from torch import Tensor

from ridgelora.config import RidgeLoraConfig

# Their name, ours.
NAMES = {
    "weight_a": "ridgelora_A",  # (r, in)
    "weight_b": "ridgelora_B",  # (in, r)
    "weight_ridge": "ridgelora_sigma",  # (in,)
    "ridge_intensity": "ridgelora_lambda",  # (1,)
}


def convert_third_party(
    state_dict: Mapping[str, Tensor], ridgelora_alpha: float = 16, prefix: str = "base_model.model."
) -> tuple[RidgeLoraConfig, dict[str, Tensor]]:
    """Turn the weights of ``LinearWithRidgeLoRA`` layers into a config and the tensors of a peft checkpoint.

    Theirs are ``<module>.weight_a``, ``.weight_b``, ``.weight_ridge`` and ``.ridge_intensity``; other entries, such as
    base weights, are ignored. Write ``adapter_config.json`` with ``config.save_pretrained(folder)`` and the tensors
    with ``safetensors.torch.save_file`` to ``folder/adapter_model.safetensors``; ``PeftModel.from_pretrained`` reads
    it.

    Args:
        state_dict: Theirs.
        ridgelora_alpha: Their ``lora_alpha``, which is not in the weights; B A is scaled by it over the rank.
        prefix: What peft puts before a module's name; ``""`` for adapters injected without a PeftModel.

    Returns:
        The config, which targets these modules by their full names, and the tensors by peft's keys.

    Raises:
        ValueError: No such layer, an incomplete one, shapes that do not fit, or tensors that are no finite numbers.
    """
    modules = sorted(key.removesuffix(".weight_ridge") for key in state_dict if key.endswith(".weight_ridge"))
    if not modules:
        some = ", ".join(list(state_dict)[:3]) + (", ..." if len(state_dict) > 3 else "") or "none"
        raise ValueError(f"no key ends in .weight_ridge, so there is no LinearWithRidgeLoRA layer; keys are {some}")
    tensors: dict[str, Tensor] = {}
    ranks = {}
    for module in modules:
        missing = [name for name in NAMES if f"{module}.{name}" not in state_dict]
        if missing:
            raise ValueError(f"layer {module!r} lacks {', '.join(missing)}")
        found = {name: state_dict[f"{module}.{name}"] for name in NAMES}
        _check_tensors(module, found)
        found["ridge_intensity"] = found["ridge_intensity"].reshape(-1)
        ranks[module] = _check_shapes(module, found)
        tensors |= {f"{prefix}{module}.{ours}": found[theirs].detach().clone() for theirs, ours in NAMES.items()}
    r = ranks[modules[0]]
    config = RidgeLoraConfig(
        r=r,
        ridgelora_alpha=ridgelora_alpha,
        target_modules="|".join(map(re.escape, modules)),  # as a pattern, it matches full names only
        rank_pattern={f"^{re.escape(module)}": rank for module, rank in ranks.items() if rank != r},
    )
    return config, tensors


def _check_tensors(module: str, found: Mapping[str, Tensor]) -> None:
    for name, tensor in found.items():
        if not isinstance(tensor, Tensor) or not tensor.is_floating_point():
            what = str(tensor.dtype) if isinstance(tensor, Tensor) else type(tensor).__name__
            raise ValueError(f"{module}.{name} must be a floating tensor, got {what}")
        if name.startswith("weight_") and tensor.dim() != (1 if name == "weight_ridge" else 2):
            raise ValueError(f"{module}.{name} has a wrong number of dimensions, got shape {tuple(tensor.shape)}")
        if not tensor.isfinite().all():
            raise ValueError(f"{module}.{name} must be finite, found NaN or infinity")


def _check_shapes(module: str, found: Mapping[str, Tensor]) -> int:
    """The rank of a layer."""
    r, width = found["weight_a"].shape[0], found["weight_ridge"].numel()
    shapes = {"weight_a": (r, width), "weight_b": (width, r), "weight_ridge": (width,), "ridge_intensity": (1,)}
    for name, shape in shapes.items():
        if tuple(found[name].shape) != shape:
            raise ValueError(
                f"{module}.{name} must have shape {shape}, as weight_ridge has {width} entries and weight_a {r} rows; "
                f"got {tuple(found[name].shape)}"
            )
    return r
