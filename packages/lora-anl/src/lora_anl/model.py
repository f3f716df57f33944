"""The tuner: which layers get AuroRA, and which merges are allowed; registers the method with peft."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar

import torch
from peft.tuners.tuners_utils import BaseTuner, BaseTunerLayer
from peft.utils import get_quantization_kwargs
from peft.utils.constants import TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING
from peft.utils.other import get_pattern_key
from torch import nn
from transformers.pytorch_utils import Conv1D

from lora_anl.config import AuroraConfig
from lora_anl.layer import AuroraLayer, AuroraLinear, StaticMergeWarning, find_backend, warn_of_static_merge
from nips_common.peft_methods import register

# Vision transformers named their projections anew within transformers 5; only names that a model has can match.
_VISION = ["query", "value", "q_proj", "v_proj"]


class AuroraModel(BaseTuner):
    """Puts AuroRA adapters into a model; made by ``peft.get_peft_model(model, AuroraConfig(...))``.

    Merging is allowed or refused for all layers before any is touched; see :class:`AuroraConfig`, ``merge_policy``.
    """

    prefix = "aurora_"
    tuner_layer_cls = AuroraLayer
    target_module_mapping: ClassVar[dict[str, Any]] = {
        **TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING,
        **dict.fromkeys(["vit", "deit", "dinov2", "beit", "clip", "siglip"], _VISION),
    }
    _names_to_merge: list[str] | None = None

    def _create_and_replace(
        self,
        peft_config: AuroraConfig,
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
        alpha = peft_config.alpha_pattern.get(alpha_key, peft_config.aurora_alpha)
        if isinstance(target, AuroraLayer):
            target.update_layer(adapter_name, r, alpha, peft_config)
            return
        kwargs = get_quantization_kwargs(self)
        _check_target(target, current_key, peft_config, kwargs)
        new_module = AuroraLinear(target, adapter_name, r, alpha, peft_config, **kwargs)
        if adapter_name not in self.active_adapters:
            new_module.requires_grad_(False)  # one more adapter is not trained until it is made active
        self._replace_module(parent, target_name, new_module, target)

    def _replace_module(self, parent: nn.Module, child_name: str, new_module: nn.Module, child: nn.Module) -> None:
        """As peft's, which on unloading takes every module for one with a weight; a head may be of several layers."""
        if hasattr(new_module, "base_layer"):
            super()._replace_module(parent, child_name, new_module, child)
        else:
            setattr(parent, child_name, new_module)

    def merge_adapter(self, adapter_names: list[str] | None = None, safe_merge: bool = False) -> None:
        """Merge adapters (None: the active ones) into the base weights; ``unmerge_adapter`` restores them bit for bit.

        Raises:
            ValueError: An adapter is dynamic and ``merge_policy`` is "error", or a quantised layer takes no merge;
                nothing is changed then.
        """
        with self._merging(adapter_names):
            super().merge_adapter(adapter_names=adapter_names, safe_merge=safe_merge)

    def merge_and_unload(
        self, progressbar: bool = False, safe_merge: bool = False, adapter_names: list[str] | None = None
    ) -> nn.Module:
        """Return the base model with adapters merged (None: the active ones) and removed; use what is returned.

        Raises:
            ValueError: As :meth:`merge_adapter`.
        """
        with self._merging(adapter_names):
            base: nn.Module = super().merge_and_unload(progressbar, safe_merge, adapter_names)
        return base

    @contextmanager
    def _enable_peft_forward_hooks(self, *args: Any, **kwargs: Any) -> Iterator[None]:
        if kwargs.get("adapter_names") is not None:
            raise ValueError(
                "adapter_names was given, but AuroRA does not mix adapters within a batch; choose one by set_adapter"
            )
        yield

    @contextmanager
    def _merging(self, adapter_names: list[str] | None) -> Iterator[None]:
        self._names_to_merge = adapter_names
        try:
            with warnings.catch_warnings():
                yield
        finally:
            self._names_to_merge = None

    def _check_merge_allowed(self) -> None:
        super()._check_merge_allowed()
        names = self.active_adapters if self._names_to_merge is None else self._names_to_merge
        layers = {key: module for key, module in self.model.named_modules() if isinstance(module, AuroraLayer)}
        known = {name for layer in layers.values() for name in layer.aurora_A}
        for name in self._names_to_merge or []:
            if name not in known:
                raise ValueError(f"there is no adapter {name!r} to merge, only {', '.join(sorted(known))}")
        _check_own_weights(layers, names)
        dynamic = {name for layer in layers.values() for name in layer.check_mergeable(names)}
        if dynamic:
            warn_of_static_merge(sorted(dynamic))
            warnings.simplefilter("ignore", StaticMergeWarning)  # once is enough; undone by _merging


def _check_own_weights(layers: Mapping[str, AuroraLayer], adapter_names: list[str]) -> None:
    """Raise a ValueError if two layers that are to be merged share one weight, which would get both updates."""
    owners: dict[int, str] = {}
    for key, layer in layers.items():
        weight = getattr(layer.get_base_layer(), "weight", None)
        if weight is None or not any(name in layer.aurora_A for name in adapter_names):
            continue
        other = owners.setdefault(id(weight), key)
        if other != key:
            raise ValueError(
                f"layers {other!r} and {key!r} share one weight, so that adapters cannot be merged into it"
            )


def _check_target(target: nn.Module, name: str, config: AuroraConfig, kwargs: dict[str, Any]) -> None:
    """Raise a TypeError that names the module and its type unless it is linear."""
    base = target.get_base_layer() if isinstance(target, BaseTunerLayer) else target
    backend = find_backend(base, **kwargs)
    if not isinstance(base, nn.Linear | Conv1D) and getattr(backend, "layer_type", None) != "linear":
        raise TypeError(
            f"target module {name!r} is a {type(base).__name__}; AuroRA adapts torch.nn.Linear, transformers' "
            "Conv1D and linear layers that peft knows as quantised"
        )
    if config.fan_in_fan_out and isinstance(base, torch.nn.Linear):
        warnings.warn(f"fan_in_fan_out is True, but {name!r} is a torch.nn.Linear; taken as False for it", stacklevel=2)


AURORA = register("aurora", AuroraConfig, AuroraModel)
