"""The adapted linear layer: base(x) + scaling B sigma(A dropout(x)) (paper eq. 4), as a peft tuner layer."""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NoReturn

import torch
from accelerate.utils import align_module_device
from peft.tuners.tuners_utils import BaseTunerLayer, _get_in_out_features, check_adapters_to_merge
from peft.utils import quantization_extra_repr, resolve_quantization_backend
from torch import Tensor, nn
from torch.nn.functional import linear
from transformers.pytorch_utils import Conv1D

from lora_anl.config import AuroraConfig
from lora_anl.nonlinear import AdaptiveNonlinearLayer, check_rank


class StaticMergeWarning(UserWarning):
    """A dynamic adapter is merged by the paper's static policy, which changes what the model computes."""


def warn_of_static_merge(adapter_names: list[str]) -> None:
    """Warn that these dynamic adapters are merged by the static policy."""
    warnings.warn(
        f"static merge of the dynamic adapter {', '.join(map(repr, adapter_names))}: B sigma(A) x replaces "
        "B sigma(A x), which is another function and can ruin the model; compare with lora_anl.measure_merge_gap",
        StaticMergeWarning,
        stacklevel=3,
    )


def find_backend(layer: nn.Module, get_apply_tensor_subclass: Callable[[], Any] | None = None) -> Any:
    """Find peft's backend for a quantised layer, or None; without torchao's settings its layers take no merge."""
    backend = resolve_quantization_backend(
        layer, get_apply_tensor_subclass=get_apply_tensor_subclass or _unknown_settings
    )
    if get_apply_tensor_subclass is None and getattr(backend, "backend_name", None) == "torchao":
        backend.supports_merge = False
    return backend


def _unknown_settings() -> NoReturn:
    raise ValueError("the layer was quantised by torchao itself, so that its settings are not known")


class AuroraLayer(BaseTunerLayer):
    """What every adapted layer holds, by adapter name: the projections A and B, the nonlinear layer, dropout, settings.

    While adapters are merged, the unmerged weight is kept (in CPU memory; a quantised layer as a copy where it is), so
    that unmerging restores it bit for bit. Over another tuner's layer, whose merges go into the same weight, unmerging
    subtracts instead.

    Args:
        base_layer: The layer to adapt, or another tuner's layer around it.
        get_apply_tensor_subclass: What peft needs to quantise torchao layers again; see ``peft.utils``.
    """

    adapter_layer_names = ("aurora_A", "aurora_B", "aurora_anl")
    other_param_names = ("r", "aurora_alpha", "scaling", "aurora_dropout", "forward_mode", "merge_policy")

    def __init__(self, base_layer: nn.Module, **kwargs: Any) -> None:
        self.base_layer = base_layer
        self.aurora_A = nn.ModuleDict()
        self.aurora_B = nn.ModuleDict()
        self.aurora_anl = nn.ModuleDict()
        self.aurora_dropout = nn.ModuleDict()
        self.r: dict[str, int] = {}
        self.aurora_alpha: dict[str, float] = {}
        self.scaling: dict[str, float] = {}
        self.forward_mode: dict[str, str] = {}
        self.merge_policy: dict[str, str] = {}
        self._disable_adapters = False
        self.merged_adapters: list[str] = []
        self.cast_input_dtype_enabled = True
        self._pristine: Tensor | list[nn.Module] | None = None  # a list keeps a module out of the state dict
        self._added: dict[str, Tensor] = {}  # what is merged over another tuner's layer
        self._given: dict[str, Tensor] = {}  # weights merged instead of get_delta_weight
        self._set_aside: tuple[list[str], list[str]] | None = None
        target = self.get_base_layer()
        self.quantization_backend = find_backend(target, kwargs.get("get_apply_tensor_subclass"))
        self.in_features, self.out_features = _get_in_out_features(target)
        if not self.in_features or not self.out_features:
            raise ValueError(
                f"a layer must have inputs and outputs to adapt, got in_features={self.in_features}, "
                f"out_features={self.out_features}"
            )
        self.fan_in_fan_out = isinstance(target, Conv1D)

    def update_layer(self, adapter_name: str, r: int, aurora_alpha: float, config: AuroraConfig) -> None:
        """Add an adapter.

        Args:
            adapter_name: Its name.
            r: Its rank in this layer.
            aurora_alpha: Its scale in this layer.
            config: All else.

        Raises:
            ValueError: A rank below 1.
        """
        check_rank("r", r)
        self.r[adapter_name], self.aurora_alpha[adapter_name] = r, aurora_alpha
        self.scaling[adapter_name] = aurora_alpha / r
        self.forward_mode[adapter_name], self.merge_policy[adapter_name] = config.forward_mode, config.merge_policy
        dropout = nn.Dropout(config.aurora_dropout) if config.aurora_dropout else nn.Identity()
        self.aurora_dropout[adapter_name] = dropout
        self.aurora_A[adapter_name] = nn.Linear(self.in_features, r, bias=False)
        self.aurora_B[adapter_name] = nn.Linear(r, self.out_features, bias=False)
        self.aurora_anl[adapter_name] = AdaptiveNonlinearLayer(
            r,
            config.grid_size,
            config.spline_order,
            config.grid_range,
            config.spline_mode,
            config.activation,
            config.use_fixed,
            config.use_spline,
            config.spline_init_scale,
        )
        self.reset_aurora_parameters(adapter_name, config.init_weights)
        self._move_adapter_to_device_of_base_layer(adapter_name)
        self.set_adapter(self.active_adapters, inference_mode=config.inference_mode)

    def reset_aurora_parameters(self, adapter_name: str, init_weights: bool | str) -> None:
        """Draw an adapter's weights anew; ``init_weights`` as in :class:`AuroraConfig` (not in the paper)."""
        down, up, sigma = self.adapter_weights(adapter_name)
        if init_weights == "kaiming_uniform":
            nn.init.kaiming_uniform_(down, a=math.sqrt(5))
        else:
            nn.init.normal_(down, std=self.in_features**-0.5)
        if init_weights is False:
            nn.init.kaiming_uniform_(up, a=math.sqrt(5))
        else:
            nn.init.zeros_(up)
        sigma.reset_parameters()

    def adapter_weights(self, adapter_name: str) -> tuple[Tensor, Tensor, AdaptiveNonlinearLayer]:
        """A ``(r, in)``, B ``(out, r)`` and sigma of an adapter."""
        down, up, sigma = (container[adapter_name] for container in (self.aurora_A, self.aurora_B, self.aurora_anl))
        return down.weight, up.weight, sigma  # type: ignore[return-value] # a ModuleDict does not know its values

    def hidden(self, adapter_name: str, x: Tensor) -> Tensor:
        """What enters B, ``(..., r)``: sigma(A x) in dynamic mode, sigma(A) x in static mode, for x ``(..., in)``."""
        if self.forward_mode[adapter_name] == "static":
            with self._loaded(adapter_name):
                down, _, sigma = self.adapter_weights(adapter_name)
                columns: Tensor = sigma(down.T).T  # on each column of A: paper algorithm 1, step 2
                return linear(x, columns)
        sigma_of_z: Tensor = self.aurora_anl[adapter_name](self.aurora_A[adapter_name](x))
        return sigma_of_z

    def _loaded(self, adapter_name: str) -> AbstractContextManager[None]:
        """A's weight where it is computed with, even if accelerate keeps it elsewhere outside of A's own forward."""
        down = self.aurora_A[adapter_name]
        return align_module_device(down) if hasattr(down, "_hf_hook") else nullcontext()

    def adapter_output(self, adapter_name: str, x: Tensor) -> Tensor:
        """What an adapter adds, scaling B hidden(dropout(x)), ``(..., out)``."""
        x = self._cast_input_dtype(x, self.adapter_weights(adapter_name)[0].dtype)
        hidden = self.hidden(adapter_name, self.aurora_dropout[adapter_name](x))
        output: Tensor = self.aurora_B[adapter_name](hidden * self.scaling[adapter_name])
        return output

    @torch.no_grad()
    def get_delta_weight(self, adapter: str) -> Tensor:
        """Scaling B sigma(columns of A), ``(out, in)`` in the adapter's dtype: what the static merge adds.

        In static mode the layer computes exactly base(x) + delta x; in dynamic mode that is another function.
        """
        return self._delta(adapter).to(self.adapter_weights(adapter)[1].dtype)

    def supports_lora_conversion(self, adapter_name: str = "default") -> bool:
        """Whether a LoRA adapter can compute the same, for peft's conversion: in static mode, with the same rank."""
        return self.forward_mode.get(adapter_name) == "static"

    @torch.no_grad()
    def _delta(self, adapter_name: str) -> Tensor:
        """:meth:`get_delta_weight` in at least float32."""
        down, up, sigma = self.adapter_weights(adapter_name)
        work = torch.promote_types(down.dtype, torch.float32)
        columns: Tensor = sigma(down.T.to(work)).T
        return self.scaling[adapter_name] * (up.to(work) @ columns)

    def check_mergeable(self, adapter_names: list[str]) -> list[str]:
        """Return those of the adapters that are still to be merged by the static policy.

        Raises:
            ValueError: An adapter is dynamic and its policy is "error", or the quantised base cannot take a merge.
        """
        here = [name for name in adapter_names if name in self.aurora_A and name not in self.merged_adapters]
        dynamic = [name for name in here if self.forward_mode[name] != "static"]
        for name in dynamic:
            if self.merge_policy[name] != "static":
                raise ValueError(
                    f"adapter {name!r} is dynamic, B sigma(A x): no weight computes that, so merging is refused; train "
                    "with forward_mode='static', or accept another function by merge_policy='static' or "
                    "lora_anl.merge_calibrated"
                )
        if here:
            self.check_quantisation()
        return dynamic

    def check_quantisation(self) -> None:
        """Raise a ValueError if the base layer is quantised in a way that takes no merge."""
        backend = self.quantization_backend
        if backend is not None and not backend.supports_merge:
            raise ValueError(
                f"a base layer quantised by {backend.backend_name} takes no merge; load the base model unquantised"
            )

    def merge(self, safe_merge: bool = False, adapter_names: list[str] | None = None) -> None:
        """Add the adapters' :meth:`get_delta_weight` to the weight of the base layer, in at least float32.

        Args:
            safe_merge: Refuse a result that is not finite, before anything is changed.
            adapter_names: Which adapters; None: the active ones.

        Raises:
            ValueError: See :meth:`check_mergeable`; or ``safe_merge`` found NaN or infinity.
        """
        names = [name for name in check_adapters_to_merge(self, adapter_names) if name in self.aurora_A]
        if not names:
            return
        if dynamic := self.check_mergeable(names):
            warn_of_static_merge(dynamic)
        # all at once from the unmerged weight, so that it does not matter in how many steps they are merged
        self._set_merged(self._deltas([*self.merged_adapters, *names]), safe_merge)

    def _deltas(self, adapter_names: list[str]) -> dict[str, Tensor]:
        """What is merged for each adapter."""
        return {name: self._given[name] if name in self._given else self._delta(name) for name in adapter_names}

    def merge_delta(self, adapter_name: str, delta: Tensor) -> None:
        """Merge an adapter as ``delta``, ``(out, in)``, instead of its :meth:`get_delta_weight`, until it is unmerged.

        Raises:
            ValueError: The result would be NaN or infinite.
        """
        self._set_merged({adapter_name: delta}, safe_merge=True)
        self._given[adapter_name] = delta

    @torch.no_grad()
    def check_finite(self, deltas: dict[str, Tensor]) -> Tensor:
        """Return the weight with the deltas merged; ValueError if it would be NaN or infinite."""
        merged = self._merged_weight(deltas)
        if not torch.isfinite(merged).all():
            raise ValueError(f"merging adapter {', '.join(map(repr, deltas))} would make the weight NaN or infinite")
        return merged

    def _merged_weight(self, deltas: dict[str, Tensor]) -> Tensor:
        """The unmerged weight plus the deltas, by adapter, added in at least float32."""
        pristine = self._pristine_weight()
        merged = pristine.to(torch.promote_types(pristine.dtype, torch.float32))
        for delta in deltas.values():
            merged = merged + (delta.T if self.fan_in_fan_out else delta).to(merged.device)
        return merged.to(pristine.dtype)

    @torch.no_grad()
    def _set_merged(self, deltas: dict[str, Tensor], safe_merge: bool) -> None:
        """Set the weight to the unmerged one plus the deltas."""
        merged = self.check_finite(deltas) if safe_merge else self._merged_weight(deltas)
        if isinstance(self.base_layer, BaseTunerLayer):
            self._added = deltas
        elif self._pristine is None:
            quantised = self.quantization_backend is not None
            weight = self.get_base_weight()
            self._pristine = [copy.deepcopy(self.base_layer)] if quantised else weight.detach().cpu().clone()
        self.set_base_weight(merged.to(self.weight.device))
        self.merged_adapters = list(deltas)

    def _pristine_weight(self) -> Tensor:
        if isinstance(self._pristine, Tensor):
            return self._pristine
        if self._pristine is not None:
            weight: Tensor = self.quantization_backend.get_base_weight(self._pristine[0])
            return weight
        weight = self.get_base_weight()
        work = torch.promote_types(weight.dtype, torch.float32)
        for delta in self._added.values():
            weight = weight.to(work) - (delta.T if self.fan_in_fan_out else delta).to(weight.device)
        return weight

    def unmerge(self) -> None:
        """Restore the weight from before the first merge."""
        self._set_aside = None
        if not self.merged:
            warnings.warn("Already unmerged. Nothing to do.", stacklevel=2)
            return
        self._restore()
        self._given = {}

    @torch.no_grad()
    def _restore(self) -> None:
        if self._added:
            self.set_base_weight(self._pristine_weight().to(self.weight.dtype))
        elif isinstance(self._pristine, Tensor):
            self.set_base_weight(self._pristine.to(self.weight.device, self.weight.dtype))
        elif self._pristine is not None:
            self.base_layer = self._pristine[0]
        self._pristine, self._added, self.merged_adapters = None, {}, []

    def enable_adapters(self, enabled: bool) -> None:
        """Switch all adapters on or off; a merge is undone while they are off and comes back when they are on again."""
        if not enabled and self.merged:
            self._set_merge_aside()
        super().enable_adapters(enabled)
        if enabled and self._set_aside is not None:
            (active, merged), self._set_aside = self._set_aside, None
            if active == list(self.active_adapters):
                merged += [name for name in self.merged_adapters if name not in merged]
                here = [name for name in merged if name in self.aurora_A]
                self._set_merged(self._deltas(here), safe_merge=False)

    def _set_merge_aside(self) -> None:
        before = [] if self._set_aside is None else self._set_aside[1]
        merged = [*before, *(name for name in self.merged_adapters if name not in before)]
        self._set_aside = (list(self.active_adapters), merged)
        self._restore()


class AuroraLinear(nn.Module, AuroraLayer):
    """An ``nn.Linear``, a transformers ``Conv1D`` or a quantised linear layer with AuroRA adapters.

    Args:
        base_layer: The layer to adapt.
        adapter_name: Name of its first adapter.
        r: Rank of that in this layer.
        aurora_alpha: Its scale in this layer.
        config: All else.
        kwargs: What peft's quantisation backends need.
    """

    active_adapters: list[str]  # peft's classes carry no types

    def __init__(
        self, base_layer: nn.Module, adapter_name: str, r: int, aurora_alpha: float, config: AuroraConfig, **kwargs: Any
    ) -> None:
        super().__init__()
        AuroraLayer.__init__(self, base_layer, **kwargs)
        self._active_adapter = adapter_name
        self.update_layer(adapter_name, r, aurora_alpha, config)

    def forward(self, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        """Return base(x) plus what the active adapters add, in its dtype; only base(x) if merged or disabled."""
        if self.disable_adapters and self.merged:
            self._set_merge_aside()
        result: Tensor = self.base_layer(x, *args, **kwargs)
        if self.disable_adapters or self.merged:
            return result
        dtype = result.dtype
        if self.quantization_backend is not None:
            result = self.quantization_backend.maybe_clone_base_result(result)
        for name in self.active_adapters:
            if name in self.aurora_A:
                result = result + self.adapter_output(name, x)
        return result.to(dtype)

    def extra_repr(self) -> str:
        """Return the quantisation of the base layer, for printing."""
        return str(quantization_extra_repr(self))

    def __repr__(self) -> str:
        return f"aurora.{super().__repr__()}"
