"""The tuner: which layers get RidgeLoRA, and merges that are checked before any layer is touched; registers it."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar

from peft.tuners.tuners_utils import BaseTuner
from peft.utils import get_quantization_kwargs
from peft.utils.constants import TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING
from peft.utils.other import get_pattern_key
from torch import nn
from transformers.pytorch_utils import Conv1D

from nips_common.peft_methods import register
from ridgelora.config import RidgeLoraConfig
from ridgelora.layer import RidgeLoraLayer, RidgeLoraLinear, base_of, named_ridge_layers
from ridgelora.merging import quantisation_of

# Vision transformers named their projections anew within transformers 5; only names that a model has can match.
_VISION = ["query", "value", "q_proj", "v_proj"]


class RidgeLoraModel(BaseTuner):
    """Puts RidgeLoRA adapters into a model; made by ``peft.get_peft_model(model, RidgeLoraConfig(...))``."""

    prefix = "ridgelora_"
    tuner_layer_cls = RidgeLoraLayer
    target_module_mapping: ClassVar[dict[str, Any]] = {
        **TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING,
        **dict.fromkeys(["vit", "deit", "dinov2", "beit", "clip", "siglip"], _VISION),
    }
    _merge: tuple[list[str] | None, bool] = (None, False)

    def _create_and_replace(
        self,
        peft_config: RidgeLoraConfig,
        adapter_name: str,
        target: nn.Module,
        target_name: str,
        parent: nn.Module,
        current_key: str | None,
        parameter_name: str | None = None,
    ) -> None:
        if current_key is None:
            raise ValueError("the name of the target module must be given, got None")
        peft_config.check()  # it may have been changed since it was made
        r = peft_config.rank_pattern.get(get_pattern_key(list(peft_config.rank_pattern), current_key), peft_config.r)
        alpha_key = get_pattern_key(list(peft_config.alpha_pattern), current_key)
        alpha = peft_config.alpha_pattern.get(alpha_key, peft_config.ridgelora_alpha)
        if isinstance(target, RidgeLoraLayer):
            target.update_layer(adapter_name, r, alpha, peft_config)
            return
        kwargs = get_quantization_kwargs(self)
        _check_target(target, current_key, peft_config, kwargs)
        new_module = RidgeLoraLinear(target, adapter_name, r, alpha, peft_config, **kwargs)
        if adapter_name not in self.active_adapters:
            new_module.requires_grad_(False)  # one more adapter is not trained until it is made active
        self._replace_module(parent, target_name, new_module, target)

    def _replace_module(self, parent: nn.Module, child_name: str, new_module: nn.Module, child: nn.Module) -> None:
        """As peft's, which on unloading takes every module for one with a weight; a head may be of several layers."""
        if hasattr(new_module, "base_layer"):
            super()._replace_module(parent, child_name, new_module, child)
        else:
            setattr(parent, child_name, new_module)

    def _cast_adapter_dtype(self, adapter_name: str, autocast_adapter_dtype: bool = True) -> None:
        super()._cast_adapter_dtype(adapter_name, autocast_adapter_dtype)
        if not autocast_adapter_dtype:
            for layer in named_ridge_layers(self.model).values():
                layer.cast_adapter_to_base_dtype(adapter_name)

    def merge_adapter(self, adapter_names: list[str] | None = None, safe_merge: bool = False) -> None:
        """Merge adapters (None: the active ones) into the base weights; ``unmerge_adapter`` restores them bit for bit.

        Raises:
            ValueError: An unknown adapter; a layer that takes no merge, being quantised or another tuner's; two layers
                that share one weight; ``safe_merge`` found NaN or infinity in any layer's result. Nothing is changed
                then.
        """
        self._merge = (adapter_names, safe_merge)
        super().merge_adapter(adapter_names=adapter_names, safe_merge=safe_merge)

    def merge_and_unload(
        self, progressbar: bool = False, safe_merge: bool = False, adapter_names: list[str] | None = None
    ) -> nn.Module:
        """Return the base model with adapters merged (None: the active ones) and removed; use what is returned.

        Raises:
            ValueError: As :meth:`merge_adapter`.
        """
        self._merge = (adapter_names, safe_merge)
        base: nn.Module = super().merge_and_unload(progressbar, safe_merge, adapter_names)
        return base

    def _check_merge_allowed(self) -> None:
        super()._check_merge_allowed()
        names, safe_merge = self._merge
        layers = named_ridge_layers(self.model)
        known = sorted({name for layer in layers.values() for name in layer.r})
        for name in names or []:
            if name not in known:
                raise ValueError(f"there is no adapter {name!r} to merge, only {', '.join(known)}")
        wanted = list(self.active_adapters if names is None else names)
        _check_weights_are_apart(layers, wanted)
        for layer in layers.values():
            layer.check_merge(wanted, safe_merge)

    @contextmanager
    def _enable_peft_forward_hooks(self, *args: Any, **kwargs: Any) -> Iterator[None]:
        if kwargs.get("adapter_names") is not None:
            raise ValueError(
                "RidgeLoRA does not mix adapters within a batch, but adapter_names was given; choose one by set_adapter"
            )
        yield


def _check_weights_are_apart(layers: Mapping[str, RidgeLoraLinear], adapter_names: list[str]) -> None:
    """Raise a ValueError if two layers to be merged share one weight: it would get the updates of both."""
    owners: dict[int, str] = {}
    for key, layer in layers.items():
        if any(map(layer.has_adapter, adapter_names)):
            owner = owners.setdefault(id(base_of(layer).weight), key)
            if owner != key:
                raise ValueError(f"layers {owner!r} and {key!r} share one weight, so no adapter can be merged into it")


def _check_target(target: nn.Module, name: str, config: RidgeLoraConfig, kwargs: dict[str, Any]) -> None:
    """Raise a TypeError that names the module and its type unless it is linear."""
    base = base_of(target)
    backend = quantisation_of(base, **kwargs)
    if not isinstance(base, nn.Linear | Conv1D) and getattr(backend, "layer_type", None) != "linear":
        raise TypeError(
            f"target module {name!r} is a {type(base).__name__}; RidgeLoRA adapts torch.nn.Linear, transformers' "
            "Conv1D and linear layers that peft knows as quantised"
        )
    if config.fan_in_fan_out and isinstance(base, nn.Linear):
        warnings.warn(f"fan_in_fan_out is True, but {name!r} is a torch.nn.Linear; taken as False for it", stacklevel=2)


RIDGELORA = register("ridgelora", RidgeLoraConfig, RidgeLoraModel)
