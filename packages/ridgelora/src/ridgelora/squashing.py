"""The ridge-squashing loss: the mean nuclear norm of M - I over the adapted matrices (paper eqs. 4 and 5).

Added to the task's loss with a negative weight, -0.5 in the paper, it rewards large updates of high rank. It has no
lower bound then: keep the learning rate small and clip gradients.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ridgelora.initialisation import check_rank
from ridgelora.layer import RidgeLoraLinear, named_ridge_layers
from ridgelora.nuclear_norm import RidgeNorm, Route, ridge_nuclear_norm


def ridge_squashing_loss(
    model: nn.Module,
    adapter_name: str | None = None,
    max_modules: int | None = None,
    generator: torch.Generator | None = None,
    route: Route = "auto",
) -> Tensor:
    """Return the mean over the adapted matrices of the nuclear norm of lambda diag(sigma) + s B A - I (paper eq. 4).

    :func:`ridge_squashing_terms` gives the single norms and says how each was computed.

    Args:
        model: A model with RidgeLoRA adapters, wrapped or not.
        adapter_name: The adapter; None: the active ones.
        max_modules: How many matrices to draw, without replacement, in place of taking all; the expectation of their
            mean is the mean over all.
        generator: A CPU generator for that; None: torch's own.
        route: As in :func:`ridgelora.ridge_nuclear_norm`.

    Returns:
        A scalar in at least float32, differentiable once.

    Raises:
        ValueError: As :func:`ridge_squashing_terms`.
    """
    values = [norm.value for norm in ridge_squashing_terms(model, adapter_name, max_modules, generator, route).values()]
    return torch.stack([value.to(values[0].device) for value in values]).mean()


def ridge_squashing_terms(
    model: nn.Module,
    adapter_name: str | None = None,
    max_modules: int | None = None,
    generator: torch.Generator | None = None,
    route: Route = "auto",
) -> dict[tuple[str, str], RidgeNorm]:
    """Return what :func:`ridge_squashing_loss` averages, by the names of layer and adapter.

    Raises:
        ValueError: No RidgeLoRA layer, an unknown adapter, a parallel one (which has no M), adapters that are disabled,
            ``max_modules`` below 1, an adapter that holds NaN or infinity.
    """
    if max_modules is not None:
        check_rank("max_modules", max_modules)
    matrices = _matrices(model, adapter_name)
    if max_modules is not None and max_modules < len(matrices):
        chosen = torch.randperm(len(matrices), generator=generator)[:max_modules]
        matrices = [matrices[i] for i in sorted(chosen.tolist())]
    norms = {}
    for name, layer, adapter in matrices:
        weights, offset = layer.adapter_weights(adapter), layer.adapter_offset(adapter)
        try:
            norms[name, adapter] = ridge_nuclear_norm(*weights, layer.scaling[adapter], offset, route)
        except ValueError as error:
            raise ValueError(f"adapter {adapter!r} of layer {name!r}: {error}") from error
    return norms


def _matrices(model: nn.Module, adapter_name: str | None) -> list[tuple[str, RidgeLoraLinear, str]]:
    layers = named_ridge_layers(model)
    if not layers:
        raise ValueError(f"the model, a {type(model).__name__}, has no RidgeLoRA layer")
    found = [
        (name, layer, adapter)
        for name, layer in layers.items()
        for adapter in (layer.active_adapters if adapter_name is None else [adapter_name])
        if layer.has_adapter(adapter)
    ]
    if not found:
        known = sorted({name for layer in layers.values() for name in layer.r})
        wanted = "active adapter" if adapter_name is None else f"adapter {adapter_name!r}"
        raise ValueError(f"no RidgeLoRA layer has the {wanted}, only {', '.join(known)}")
    for name, layer, adapter in found:
        if layer.disable_adapters:
            raise ValueError(f"the adapters of layer {name!r} are disabled; enable them first")
        if layer.connection[adapter] != "series":
            raise ValueError(
                f"adapter {adapter!r} of layer {name!r} is parallel; the ridge-squashing loss is for series adapters"
            )
    return found
