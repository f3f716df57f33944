"""The calibrated merge: the linear map nearest to a dynamic adapter on given inputs (an extension; not in the paper).

It minimises the sum over inputs x of ‖sigma(A x) - M x‖² plus eps ‖M‖², which gives
M = (sum sigma(A x) xᵀ) (sum x xᵀ + eps I)⁻¹, and adds scaling B M to the weight.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from typing import Any

import torch
from peft.tuners.tuners_utils import onload_layer
from torch import Tensor, nn

from lora_anl.gap import aurora_layers, evaluation, only, run
from lora_anl.layer import AuroraLayer, AuroraLinear
from lora_anl.model import AuroraModel
from lora_anl.nonlinear import check_number


def calibrated_delta_weight(
    layer: AuroraLinear, inputs: Tensor, eps: float = 1e-4, adapter_name: str | None = None
) -> Tensor:
    """Return the weight that reproduces an adapter best on given inputs of its layer; the layer is not changed.

    Args:
        layer: An adapted layer.
        inputs: ``(n, in)``, or more leading dimensions: what enters the layer.
        eps: The ridge, at least 0; with 0 the inputs must span all directions.
        adapter_name: The adapter; None: the only active one.

    Returns:
        ``(out, in)`` in the adapter's dtype; sums and solution are in float64.

    Raises:
        ValueError: No input, another width, an unknown adapter, or inputs that are not finite or span too little for
            ``eps``.
    """
    active = [name for name in layer.active_adapters if name in layer.aurora_A]
    name = _only_adapter(active) if adapter_name is None else adapter_name
    if name not in layer.aurora_A:
        raise ValueError(f"the layer has no adapter {name!r}, only {', '.join(layer.aurora_A)}")
    if inputs.dim() < 2:
        raise ValueError(f"inputs must be (n, in_features={layer.in_features}), got shape {tuple(inputs.shape)}")
    moments = _Moments(layer, name, eps)
    moments.add(inputs)
    return moments.delta_weight()


def merge_calibrated(
    model: nn.Module, dataloader: Iterable[Any], eps: float = 1e-4, adapter_name: str | None = None
) -> nn.Module:
    """Merge an adapter by its calibrated weights and return the base model without adapters.

    Every layer is calibrated on what enters it in the model as it runs with this adapter; no permission to merge is
    needed, and a static adapter is merged exactly. Memory: an ``(in, in)`` float64 matrix a layer. As with
    ``merge_and_unload``, use what is returned.

    Args:
        model: A peft model with an AuroRA adapter, not merged.
        dataloader: Calibration batches, as :func:`lora_anl.measure_merge_gap` takes them; with fewer rows than a layer
            has inputs, directions that the data leaves open get no update.
        eps: The ridge, at least 0; see :func:`calibrated_delta_weight`.
        adapter_name: The adapter to merge; None: the only active one.

    Raises:
        ValueError: No AuroRA layer, no such adapter, several active ones, a merged model or one whose adapters are
            disabled, no batch, a layer that the data does not reach, a quantised layer that takes no merge, inputs
            that are not finite or span too little for ``eps``, or a weight that would not be finite; nothing is
            changed then.
    """
    check_number("eps", eps, 0)
    tuner = next((module for module in model.modules() if isinstance(module, AuroraModel)), None)
    if tuner is None:
        raise ValueError(f"merge_calibrated needs a peft model with an AuroraConfig, got a {type(model).__name__}")
    name = _only_adapter(tuner.active_adapters) if adapter_name is None else adapter_name
    layers = aurora_layers(model, name)
    for layer in layers.values():
        layer.check_quantisation()
    dynamic = {key: layer for key, layer in layers.items() if layer.forward_mode[name] != "static"}
    moments = {key: _Moments(layer, name, eps) for key, layer in dynamic.items()}
    with ExitStack() as stack, torch.no_grad(), evaluation(model), only(model, name):
        for key, layer in dynamic.items():
            stack.callback(layer.register_forward_pre_hook(_observer(moments[key])).remove)
        for batch in dataloader:
            run(model, batch)
    deltas = {}
    for key, layer in layers.items():
        try:
            with onload_layer(layer):
                deltas[key] = moments[key].delta_weight() if key in moments else layer.get_delta_weight(name)
                layer.check_finite({name: deltas[key]})
        except ValueError as error:
            raise ValueError(f"layer {key!r}: {error}") from error
    tuner.set_adapter([name])  # its modules trained in full become those of the model, too
    for key, layer in layers.items():
        with onload_layer(layer):  # where accelerate keeps its weights elsewhere
            layer.merge_delta(name, deltas[key])
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "All adapters are already merged")  # by the lines above
        return tuner.merge_and_unload(adapter_names=[name])


def _observer(moments: _Moments) -> Callable[[nn.Module, tuple[Any, ...]], None]:
    return lambda _, inputs: moments.add(inputs[0])


def _only_adapter(names: list[str]) -> str:
    if len(names) != 1:
        raise ValueError(f"adapter_name must say which adapter is meant, active are {', '.join(names) or 'none'}")
    return names[0]


class _Moments:
    """Sums over inputs x of what enters B times xᵀ, and of x xᵀ, in float64."""

    def __init__(self, layer: AuroraLayer, adapter_name: str, eps: float) -> None:
        check_number("eps", eps, 0)
        self.layer, self.adapter_name, self.eps = layer, adapter_name, eps
        self.cross = self.gram = torch.zeros(0)
        self.rows = 0

    @torch.no_grad()
    def add(self, x: Tensor) -> None:
        """Add the rows of x, ``(..., in)``."""
        width = self.layer.in_features
        if x.dim() == 0 or x.shape[-1] != width:
            raise ValueError(f"inputs must be (n, in_features={width}), got shape {tuple(x.shape)}")
        rows = x.reshape(-1, width).to(self.layer.adapter_weights(self.adapter_name)[0].dtype)
        device = torch.device("cpu") if x.device.type == "mps" else x.device  # MPS has no float64
        hidden = self.layer.hidden(self.adapter_name, rows).to(device).double()
        rows = rows.to(device).double()
        if self.rows == 0:
            self.cross, self.gram = hidden.T @ rows, rows.T @ rows
        else:
            self.cross += hidden.T @ rows
            self.gram += rows.T @ rows
        self.rows += len(rows)

    @torch.no_grad()
    def delta_weight(self) -> Tensor:
        """Scaling B cross (gram + eps I)⁻¹, ``(out, in)`` in the adapter's dtype."""
        width, (_, up, _) = self.layer.in_features, self.layer.adapter_weights(self.adapter_name)
        if self.rows == 0:
            raise ValueError("inputs must hold at least one row to calibrate on, got none")
        if not (self.gram.isfinite().all() and self.cross.isfinite().all()):
            raise ValueError("inputs to calibrate on must be finite, found NaN or infinity in them or behind A")
        if self.eps == 0 and torch.linalg.matrix_rank(self.gram, hermitian=True) < width:
            raise ValueError(f"{self.rows} inputs do not span in_features={width}; give more, or eps above 0")
        gram = self.gram + self.eps * torch.eye(width, dtype=torch.float64, device=self.gram.device)
        try:
            nearest = torch.linalg.solve(gram, self.cross.T).T
        except torch.linalg.LinAlgError as error:  # type: ignore[attr-defined]
            raise ValueError(f"{self.rows} inputs do not span in_features={width}; give a larger eps") from error
        delta = self.layer.scaling[self.adapter_name] * (up.to(nearest.device).double() @ nearest)
        return torch.as_tensor(delta, dtype=up.dtype, device=up.device)
