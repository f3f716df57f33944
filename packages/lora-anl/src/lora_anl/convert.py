"""Weights of ``LinearWithAurora`` layers (the code of the survey arXiv 2601.22708) as a peft checkpoint of ours."""

from __future__ import annotations

import re
from collections.abc import Mapping

import torch
from torch import Tensor

from lora_anl.config import AuroraConfig
from lora_anl.spline import uniform_knots

# Their name (shape), ours.
NAMES = {
    "weight_a": "aurora_A.weight",  # (r, in)
    "weight_b": "aurora_B.weight",  # (out, r)
    "weight_ab_mixer": "aurora_anl.proj",  # (r, r)
    "weight_a_spline": "aurora_anl.spline_weight",  # (r, G + k)
}
GRID = "grid"  # (G + 2k + 1,), the knots


def convert_third_party(
    state_dict: Mapping[str, Tensor], aurora_alpha: float = 4, prefix: str = "base_model.model."
) -> tuple[AuroraConfig, dict[str, Tensor]]:
    """Turn the weights of ``LinearWithAurora`` layers into a config and the tensors of a peft checkpoint.

    Theirs are ``<module>.weight_a``, ``.weight_b``, ``.weight_ab_mixer``, ``.weight_a_spline`` and ``.grid``; other
    entries, such as base weights, are ignored. Write ``adapter_config.json`` with ``config.save_pretrained(folder)``
    and the tensors with ``safetensors.torch.save_file`` to ``folder/adapter_model.safetensors``, and
    ``PeftModel.from_pretrained`` reads the folder.

    Args:
        state_dict: Theirs.
        aurora_alpha: Their ``lora_alpha``, which is not in the weights; the update is scaled by it over the rank.
        prefix: What peft puts before a module's name; ``""`` for adapters injected without a PeftModel.

    Returns:
        The config, which targets these modules by their full names, and the tensors by peft's keys.

    Raises:
        ValueError: No such layer, an incomplete one, shapes that do not fit, a grid that is not uniform, or grids that
            differ between layers.
    """
    modules = sorted(key.removesuffix(".weight_a") for key in state_dict if key.endswith(".weight_a"))
    if not modules:
        raise ValueError(
            f"no key ends in .weight_a, so there is no LinearWithAurora layer; keys are {_some(state_dict)}"
        )
    tensors: dict[str, Tensor] = {}
    ranks, grids = {}, {}
    for module in modules:
        missing = [name for name in (*NAMES, GRID) if f"{module}.{name}" not in state_dict]
        if missing:
            raise ValueError(f"layer {module!r} lacks {', '.join(missing)}")
        found = {name: state_dict[f"{module}.{name}"] for name in (*NAMES, GRID)}
        ranks[module], grids[module] = _check_layer(module, found)
        tensors |= {f"{prefix}{module}.{ours}": found[theirs].detach().clone() for theirs, ours in NAMES.items()}
    grid_size, order, grid_range = grids[modules[0]]
    for module, grid in grids.items():
        if grid != grids[modules[0]]:
            raise ValueError(
                f"layer {module!r} has grid {grid}, but {modules[0]!r} has {grids[modules[0]]}; one config holds one"
            )
    r = ranks[modules[0]]
    config = AuroraConfig(
        r=r,
        aurora_alpha=aurora_alpha,
        target_modules="|".join(map(re.escape, modules)),
        grid_size=grid_size,
        spline_order=order,
        grid_range=grid_range,
        rank_pattern={f"^{re.escape(module)}": rank for module, rank in ranks.items() if rank != r},
    )
    return config, tensors


def _check_layer(module: str, found: Mapping[str, Tensor]) -> tuple[int, tuple[int, int, tuple[float, float]]]:
    """The rank and the grid (size, order, range) that a layer's shapes and knots say."""
    for name, tensor in found.items():
        dims = (1, 2) if name == GRID else (2,)
        if not isinstance(tensor, Tensor) or not tensor.is_floating_point() or tensor.dim() not in dims:
            what = f"{tuple(tensor.shape)} {tensor.dtype}" if isinstance(tensor, Tensor) else type(tensor).__name__
            raise ValueError(f"{module}.{name} must be a floating tensor of {dims[-1]} dimensions, got {what}")
        if not tensor.isfinite().all():
            raise ValueError(f"{module}.{name} must be finite, found NaN or infinity")
    r, columns = found["weight_a"].shape[0], found["weight_a_spline"].shape[-1]
    shapes = {"weight_b": (found["weight_b"].shape[0], r), "weight_ab_mixer": (r, r), "weight_a_spline": (r, columns)}
    for name, shape in shapes.items():
        if tuple(found[name].shape) != shape:
            raise ValueError(
                f"{module}.{name} must have shape {shape}, as weight_a has rank {r}; got {tuple(found[name].shape)}"
            )
    knots = found[GRID].flatten().double()
    order = len(knots) - 1 - columns
    grid_size = columns - order
    if not (order >= 0 and grid_size >= 1):
        raise ValueError(f"{module}.grid has {len(knots)} knots, which does not fit {columns} spline weights")
    low, high = (float(f"{float(knots[i]):.7g}") for i in (order, -order - 1))  # they are kept in single precision
    if not low < high or not torch.allclose(
        knots, torch.tensor(uniform_knots(grid_size, order, (low, high)), dtype=torch.float64), atol=1e-5
    ):
        raise ValueError(f"{module}.grid must hold uniform knots, got {knots.tolist()}")
    return r, (grid_size, order, (low, high))


def _some(keys: Mapping[str, Tensor]) -> str:
    return ", ".join(list(keys)[:3]) + (", ..." if len(keys) > 3 else "") or "none"
