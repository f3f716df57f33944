"""How much the paper's static merge changes what a dynamic adapter computes on given data (not in the paper)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from peft.utils.other import AuxiliaryTrainingWrapper
from torch import Tensor, nn

from lora_anl.layer import AuroraLayer


def measure_merge_gap(model: nn.Module, dataloader: Iterable[Any], adapter_name: str | None = None) -> dict[str, float]:
    """Compare a model as it runs with what the static merge would make of it; the model is not changed.

    Needs no permission to merge. The model runs in evaluation mode, and the merge is one in full precision: what
    half-precision or quantised weights would lose by it is not included.

    Args:
        model: A peft model, or any module that holds :class:`AuroraLinear` layers (or is one), not merged.
        dataloader: Batches: a tensor or a tuple, whose first element is used, for ``model(x)``; or a mapping for
            ``model(**batch)``. The output is ``.logits``, else ``.last_hidden_state``, else the tensor itself; padding
            counts too.
        adapter_name: The adapter to measure alone; None: the active ones as they are.

    Returns:
        With Frobenius norms over all batches, y the output, y_static the one after the static merge and y_base the one
        with the adapter disabled (peft then takes the original of a module trained in full, such as a head):
        ``relative_gap`` = ‖y - y_static‖ / ‖y - y_base‖, ``relative_output_change`` = ‖y - y_static‖ / ‖y‖ and
        ``max_abs_change`` = max |y - y_static|.

    Raises:
        ValueError: No AuroRA layer, no such adapter, a merged model or one whose adapters are disabled, no batch or an
            empty one, or an output without a tensor.
    """
    layers = aurora_layers(model, adapter_name)
    gap = effect = size = largest = 0.0
    count = 0
    with torch.no_grad(), evaluation(model), only(model, adapter_name):
        for count, batch in enumerate(dataloader, 1):  # noqa: B007 - counted for the check below
            output = run(model, batch)
            with _static(layers):
                static = run(model, batch)
            with _disabled(model):
                base = run(model, batch)
            change = output - static
            gap += float(change.square().sum())
            effect += float((output - base).square().sum())
            size += float(output.square().sum())
            largest = float(np.maximum(largest, float(change.abs().max())))  # NaN stays
    if count == 0:
        raise ValueError("dataloader gave no batch to measure the merge gap on")
    return {
        "relative_gap": _ratio(gap, effect),
        "relative_output_change": _ratio(gap, size),
        "max_abs_change": largest,
    }


def _ratio(squared: float, to: float) -> float:
    if squared == 0:
        return 0.0
    return float("inf") if to == 0 else (squared / to) ** 0.5


def aurora_layers(model: nn.Module, adapter_name: str | None = None) -> dict[str, AuroraLayer]:
    """The AuroRA layers by name, only those with a named adapter; ValueError if none, or one is merged or disabled."""
    layers = {name: module for name, module in model.named_modules() if isinstance(module, AuroraLayer)}
    if not layers:
        raise ValueError(f"the {type(model).__name__} has no AuroRA layer; adapt it with an AuroraConfig first")
    if adapter_name is not None:
        known = sorted({name for layer in layers.values() for name in layer.aurora_A})
        layers = {name: layer for name, layer in layers.items() if adapter_name in layer.aurora_A}
        if not layers:
            raise ValueError(f"the model has no adapter {adapter_name!r}, only {', '.join(known)}")
    for name, layer in layers.items():
        if layer.disable_adapters:
            raise ValueError(f"the adapters of layer {name!r} are disabled; enable them first")
        if layer.merged:
            raise ValueError(
                f"layer {name!r} has merged adapters {', '.join(layer.merged_adapters)}; unmerge them first"
            )
    return layers


def run(model: nn.Module, batch: Any) -> Tensor:
    """The model's output on a batch, as float64; see :func:`measure_merge_gap` for what a batch may be."""
    device = next((p.device for p in model.parameters() if p.device.type != "meta"), torch.device("cpu"))
    if isinstance(batch, Mapping):
        output = model(
            **{key: value.to(device) if isinstance(value, Tensor) else value for key, value in batch.items()}
        )
    else:
        first = batch[0] if isinstance(batch, tuple | list) and batch else batch
        if not isinstance(first, Tensor):
            raise ValueError(f"a batch must be a tensor, a tuple of tensors or a mapping, got {type(batch).__name__}")
        output = model(first.to(device))
    for name in ("logits", "last_hidden_state"):
        if isinstance(getattr(output, name, None), Tensor):
            output = getattr(output, name)
    if not isinstance(output, Tensor):
        raise ValueError(
            f"the model's output must have logits, last_hidden_state or be a tensor, got {type(output).__name__}"
        )
    if output.numel() == 0:
        raise ValueError(f"a batch must hold at least one row, its output has shape {tuple(output.shape)}")
    return output.cpu().double()


@contextmanager
def evaluation(model: nn.Module) -> Iterator[None]:
    """Evaluation mode for a while, without compiled code, which does not see hooks; modules get their own mode back."""
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        with torch.compiler.set_stance("force_eager"):
            yield
    finally:
        for module in training:
            module.training = True


@contextmanager
def only(model: nn.Module, adapter_name: str | None) -> Iterator[None]:
    """One adapter alone for a while, with its modules trained in full, without touching what trains."""
    modules = _switched(model) if adapter_name is not None else []
    active = [module._active_adapter for module in modules]
    try:
        for module in modules:
            module._active_adapter = [adapter_name]
        yield
    finally:
        for module, before in zip(modules, active, strict=True):
            module._active_adapter = before


@contextmanager
def _disabled(model: nn.Module) -> Iterator[None]:
    """All adapters off for a while, as by peft's ``disable_adapter``."""
    modules = _switched(model)
    before = [module._disable_adapters for module in modules]
    try:
        for module in modules:
            module._disable_adapters = True
        yield
    finally:
        for module, disabled in zip(modules, before, strict=True):
            module._disable_adapters = disabled


def _switched(model: nn.Module) -> list[Any]:
    """What peft switches by adapter: our layers and modules trained in full."""
    return [module for module in model.modules() if isinstance(module, AuroraLayer | AuxiliaryTrainingWrapper)]


@contextmanager
def _static(layers: Mapping[str, AuroraLayer]) -> Iterator[None]:
    """All adapters in static form for a while."""
    before = {name: layer.forward_mode for name, layer in layers.items()}
    try:
        for layer in layers.values():
            layer.forward_mode = dict.fromkeys(layer.forward_mode, "static")
        yield
    finally:
        for name, layer in layers.items():
            layer.forward_mode = before[name]
