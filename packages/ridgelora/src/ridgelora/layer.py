"""The adapted linear layer: base(lambda sigma x + s B A x) (paper eq. 1), as a peft tuner layer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import torch
from accelerate.utils import align_module_device
from peft.tuners._buffer_dict import BufferDict
from peft.tuners.tuners_utils import BaseTunerLayer, _get_in_out_features
from peft.utils import quantization_extra_repr
from torch import Tensor, nn
from torch.nn.functional import linear, pad
from transformers.pytorch_utils import Conv1D

from ridgelora.config import RidgeLoraConfig
from ridgelora.initialisation import check_rank, ridge_init, ridge_offset, scaling_of
from ridgelora.merging import MergingLayer, quantisation_of
from ridgelora.transform import ridge_transform, transform_with_dropout, work_dtype

WEIGHTS = ("ridgelora_lambda", "ridgelora_sigma", "ridgelora_A", "ridgelora_B")
OFFSET = "ridgelora_offset"


class RidgeLoraLayer(MergingLayer):
    """What every adapted layer holds, by adapter name: lambda, sigma, A, B, the constant offset of a calibrated start.

    They are float32 (float64 on a float64 layer) whatever the dtype of the base layer is: a start rounded to half
    precision would change the model. ``get_peft_model(..., autocast_adapter_dtype=False)`` asks for that.

    Args:
        base_layer: The layer to adapt, or another tuner's layer around it.
        get_apply_tensor_subclass: What peft needs to quantise torchao layers again; see ``peft.utils``.
    """

    adapter_layer_names = WEIGHTS
    other_param_names = (
        OFFSET,
        "ridgelora_dropout",
        "r",
        "ridgelora_alpha",
        "scaling",
        "connection",
        "init_weights",
    )

    def __init__(self, base_layer: nn.Module, **kwargs: Any) -> None:
        self.base_layer = base_layer
        self.ridgelora_lambda = nn.ParameterDict()
        self.ridgelora_sigma = nn.ParameterDict()
        self.ridgelora_A = nn.ParameterDict()
        self.ridgelora_B = nn.ParameterDict()
        self.ridgelora_offset = BufferDict(persistent=True)
        self.ridgelora_dropout = nn.ModuleDict()
        self.r: dict[str, int] = {}
        self.ridgelora_alpha: dict[str, float] = {}
        self.scaling: dict[str, float] = {}
        self.connection: dict[str, str] = {}
        self.init_weights: dict[str, str] = {}
        self.cast_input_dtype_enabled = True
        self._init_merging()
        target = self.get_base_layer()
        self.quantization_backend = quantisation_of(target, kwargs.get("get_apply_tensor_subclass"))
        self.in_features, self.out_features = _get_in_out_features(target)
        if not self.in_features or not self.out_features:
            raise ValueError(
                f"a layer must have inputs and outputs to adapt, got in_features={self.in_features} and "
                f"out_features={self.out_features}"
            )
        self.fan_in_fan_out = isinstance(target, Conv1D)

    def update_layer(self, adapter_name: str, r: int, ridgelora_alpha: float, config: RidgeLoraConfig) -> None:
        """Add an adapter.

        Args:
            adapter_name: Its name.
            r: Its rank in this layer.
            ridgelora_alpha: Its scale in this layer.
            config: All else.

        Raises:
            ValueError: A rank below 1 or above the width of the layer's input.
        """
        check_rank("r", r, self.in_features)
        self.r[adapter_name], self.ridgelora_alpha[adapter_name] = r, ridgelora_alpha
        self.scaling[adapter_name] = scaling_of(r, ridgelora_alpha, config.use_rslora)
        self.connection[adapter_name], self.init_weights[adapter_name] = config.connection, config.init_weights
        dropout = nn.Dropout(config.ridgelora_dropout) if config.ridgelora_dropout else nn.Identity()
        self.ridgelora_dropout[adapter_name] = dropout
        place = {"device": self.weight.device}
        place["dtype"] = torch.float64 if self.weight.dtype == torch.float64 else torch.float32
        for name, shape in self._shapes(adapter_name).items():
            getattr(self, name)[adapter_name] = nn.Parameter(torch.empty(shape, **place))
        if self._calibrated(adapter_name):
            self.ridgelora_offset[adapter_name] = torch.zeros(r, self.in_features, **place)
        self.reset_ridgelora_parameters(adapter_name, config)
        self.set_adapter(self.active_adapters, inference_mode=config.inference_mode)

    def _shapes(self, adapter_name: str) -> dict[str, tuple[int, ...]]:
        r, width, out = self.r[adapter_name], self.in_features, self.out_features
        series = self.connection[adapter_name] == "series"
        sizes = [(1,), (width if series else min(width, out),), (r, width), (width if series else out, r)]
        return dict(zip(WEIGHTS, sizes, strict=True))

    def _calibrated(self, adapter_name: str) -> bool:
        calibrated = self.init_weights[adapter_name] == "gaussian_calibrated"
        return calibrated and self.connection[adapter_name] == "series"

    @torch.no_grad()
    def reset_ridgelora_parameters(self, adapter_name: str, config: RidgeLoraConfig) -> None:
        """Draw an adapter's weights anew; see :func:`ridgelora.ridge_init`. Nothing is drawn for the meta device."""
        weights = self.adapter_weights(adapter_name)
        if any(weight.is_meta for weight in weights):
            return
        drawn = ridge_init(
            self.in_features,
            self.r[adapter_name],
            self.ridgelora_alpha[adapter_name],
            init=config.init_weights,
            noise_mean=config.noise_mean,
            noise_std=config.noise_std,
            use_rslora=config.use_rslora,
            dtype=weights[0].dtype,
        )
        if self.connection[adapter_name] == "parallel":
            lam, sigma, _, B = weights
            drawn = (torch.ones_like(lam), torch.zeros_like(sigma), drawn[2], torch.zeros_like(B))  # as LoRA's start
        for weight, value in zip(weights, drawn, strict=True):
            weight.copy_(value)
        if self._calibrated(adapter_name):
            offset = ridge_offset(*drawn, self.scaling[adapter_name])
            self.ridgelora_offset[adapter_name].copy_(offset)

    def adapter_weights(self, adapter_name: str) -> tuple[nn.Parameter, nn.Parameter, nn.Parameter, nn.Parameter]:
        """Return lambda ``(1,)``, sigma ``(in,)``, A ``(r, in)`` and B ``(in, r)`` of an adapter.

        In a parallel adapter, sigma has ``min(in, out)`` entries and B is ``(out, r)``.
        """
        lam, sigma, A, B = (getattr(self, name)[adapter_name] for name in WEIGHTS)
        return lam, sigma, A, B

    def adapter_offset(self, adapter_name: str) -> Tensor | None:
        """The constant of a calibrated start, ``(r, in)``, or None; see :func:`ridgelora.ridge_offset`."""
        return self.ridgelora_offset[adapter_name] if adapter_name in self.ridgelora_offset else None  # noqa: SIM401 - a BufferDict has no get

    def _move_adapter_to_device_of_base_layer(self, adapter_name: str, device: torch.device | None = None) -> None:
        """As peft's, without the cast to the dtype of the base layer."""
        device = self.weight.device if device is None else device
        for container in self._containers():
            if adapter_name in container and not container[adapter_name].is_meta:
                container[adapter_name] = container[adapter_name].to(device)

    def cast_adapter_to_base_dtype(self, adapter_name: str) -> None:
        """Round an adapter to the dtype of the base layer, as peft does with ``autocast_adapter_dtype=False``."""
        super()._move_adapter_to_device_of_base_layer(adapter_name)

    def _containers(self) -> Iterator[Any]:
        yield from (getattr(self, name) for name in WEIGHTS)
        yield self.ridgelora_offset

    # what the adapters do

    def has_adapter(self, adapter_name: str) -> bool:
        """Whether the layer has an adapter of this name."""
        return adapter_name in self.r

    def transformed(self, adapter_name: str, x: Tensor) -> Tensor:
        """Return x' of a series adapter, ``(..., in)`` in the dtype of x."""
        weights, dropout = self.adapter_weights(adapter_name), self.ridgelora_dropout[adapter_name]
        settings = (self.scaling[adapter_name], self.adapter_offset(adapter_name))
        if isinstance(dropout, nn.Identity) or not dropout.training:
            return ridge_transform(x, *weights, *settings)
        return transform_with_dropout(x, *weights, *settings, dropout)

    def beside(self, adapter_name: str, x: Tensor) -> Tensor:
        """What a parallel adapter adds to the output, s B A dropout(x) + lambda sigma x, ``(..., out)``."""
        lam, sigma, A, B = self.adapter_weights(adapter_name)
        x = self._cast_input_dtype(x, A.dtype)
        low_rank = linear(linear(self.ridgelora_dropout[adapter_name](x), A) * self.scaling[adapter_name], B)
        ridge = x[..., : len(sigma)] * (lam * sigma)
        return low_rank + pad(ridge, (0, self.out_features - len(sigma)))

    def _all_transformed(self, names: list[str], x: Tensor) -> Tensor:
        """Return x plus the sum of what each series adapter changes it by, in the dtype of x."""
        if len(names) == 1:
            return self.transformed(names[0], x)
        full = x.to(work_dtype(x, *(self.ridgelora_A[name] for name in names)))
        out = self.transformed(names[0], full)
        for name in names[1:]:
            out = out + (self.transformed(name, full) - full)
        return out.to(x.dtype)

    @torch.no_grad()
    def added_weight(self, adapter_name: str, weight: Tensor) -> Tensor:
        """What an adapter adds to ``weight``, ``(out, in)`` in at least float32 (paper eq. 2, less the weight)."""
        work = work_dtype(weight, self.ridgelora_A[adapter_name])
        weight = weight.to(work)
        lam, sigma, A, B = (parameter.to(work) for parameter in self.adapter_weights(adapter_name))
        scaling, offset = self.scaling[adapter_name], self.adapter_offset(adapter_name)
        if self.connection[adapter_name] == "parallel":
            added = scaling * (B @ A)
            added.diagonal().add_(lam * sigma)
            return added
        added = (weight * (lam * sigma - 1)).addmm_(weight @ B, A, alpha=scaling)
        return added if offset is None else added.addmm_(weight[:, : len(offset)], offset.to(work))

    @torch.no_grad()
    def get_delta_weight(self, adapter: str) -> Tensor:
        """What merging the adapter adds to the unmerged weight, ``(out, in)`` in the adapter's dtype.

        Of full rank in general, and another one for another weight.
        """
        return self.added_weight(adapter, self.unmerged_weight()).to(self.ridgelora_A[adapter].dtype)

    # loading

    def check_loaded(self, adapter_name: str, found: set[str], place: str) -> None:
        """Raise a ValueError unless a checkpoint has all parts of an adapter, and constants if it is calibrated.

        Args:
            adapter_name: The adapter.
            found: The names of the parts in the checkpoint.
            place: What the layer is called in it.
        """
        wanted = {*WEIGHTS, *([OFFSET] if self._calibrated(adapter_name) else [])}
        init = self.init_weights[adapter_name]
        if OFFSET in found - wanted:
            raise ValueError(
                f"layer {place!r}: the checkpoint holds {OFFSET}, the constants of "
                f"init_weights='gaussian_calibrated', but the config says init_weights={init!r}"
            )
        if missing := wanted - found:
            why = f", which init_weights={init!r} needs" if OFFSET in missing else ""
            raise ValueError(f"layer {place!r}: the checkpoint lacks {', '.join(sorted(missing))}{why}")


class RidgeLoraLinear(nn.Module, RidgeLoraLayer):
    """An ``nn.Linear``, a transformers ``Conv1D`` or a quantised linear layer with RidgeLoRA adapters.

    Args:
        base_layer: The layer to adapt.
        adapter_name: Name of its first adapter.
        r: Rank of that in this layer.
        ridgelora_alpha: Its scale in this layer.
        config: All else.
        kwargs: What peft's quantisation backends need.
    """

    active_adapters: list[str]  # peft's classes carry no types

    def __init__(
        self,
        base_layer: nn.Module,
        adapter_name: str,
        r: int,
        ridgelora_alpha: float,
        config: RidgeLoraConfig,
        **kwargs: Any,
    ) -> None:
        super().__init__()
        RidgeLoraLayer.__init__(self, base_layer, **kwargs)
        self._active_adapter = adapter_name
        self.update_layer(adapter_name, r, ridgelora_alpha, config)

    def forward(self, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        """Return base(x') plus what parallel adapters add, in its dtype; only base(x) if merged or disabled."""
        if self.disable_adapters and self.merged:
            self._set_merge_aside()
        if self.disable_adapters or self.merged:
            return self.base_layer(x, *args, **kwargs)  # type: ignore[no-any-return]
        names: dict[str, list[str]] = {"series": [], "parallel": []}
        for name in self.active_adapters:
            if self.has_adapter(name):
                names[self.connection[name]].append(name)
                self._check_input_dtype(x, name)
        with self._loaded():
            changed = self._all_transformed(names["series"], x) if names["series"] else x
            result: Tensor = self.base_layer(changed, *args, **kwargs)
            if self.quantization_backend is not None:
                result = self.quantization_backend.maybe_clone_base_result(result)
            dtype = result.dtype
            for name in names["parallel"]:
                result = result + self.beside(name, x)
        return result.to(dtype)

    def _loaded(self) -> ExitStack:
        """The adapters' weights where they are computed with: accelerate may keep them elsewhere between calls."""
        stack = ExitStack()
        for container in self._containers():
            if hasattr(container, "_hf_hook"):
                stack.enter_context(align_module_device(container))
        return stack

    def _check_input_dtype(self, x: Tensor, adapter_name: str) -> None:
        dtype = self.ridgelora_A[adapter_name].dtype
        if x.dtype != dtype and not self.cast_input_dtype_enabled:
            raise RuntimeError(f"the input has dtype {x.dtype}, the adapter {dtype}, and casting is switched off")

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        """Check that what is loaded into an adapter is all of it, and of the same kind of start; then as usual."""
        for name in self.r:
            found = {key for key in (*WEIGHTS, OFFSET) if f"{prefix}{key}.{name}" in state_dict}
            if found:
                # peft leaves a key that the model lacks without the adapter's name
                found |= {OFFSET} if prefix + OFFSET in state_dict else set()
                self.check_loaded(name, found, prefix.removesuffix("."))
        super()._load_from_state_dict(state_dict, prefix, *args)

    def extra_repr(self) -> str:
        """Return the quantisation of the base layer, for printing."""
        return str(quantization_extra_repr(self))

    def __repr__(self) -> str:
        return f"ridgelora.{super().__repr__()}"


def named_ridge_layers(model: nn.Module) -> dict[str, RidgeLoraLinear]:
    """The adapted layers of a model, by name."""
    return {name: module for name, module in model.named_modules() if isinstance(module, RidgeLoraLinear)}


def base_of(target: nn.Module) -> nn.Module:
    """The layer below another tuner's layer, or the layer itself."""
    base: nn.Module = target.get_base_layer() if isinstance(target, BaseTunerLayer) else target
    return base
