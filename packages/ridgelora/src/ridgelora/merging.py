"""Merging that starts from the unmerged weight every time, and unmerging that is exact to the bit.

What an adapter adds depends here on the weight it is merged into. Each merged weight is therefore the unmerged one plus
all that the adapters add to that, so the order and the number of steps do not matter.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from typing import Any, NoReturn

import torch
from peft.tuners.tuners_utils import BaseTunerLayer, check_adapters_to_merge
from peft.utils import resolve_quantization_backend
from torch import Tensor, nn

from ridgelora.transform import work_dtype


class MergingLayer(BaseTunerLayer):
    """A tuner layer that keeps the unmerged weight while adapters are merged: in CPU memory, or as the quantised layer.

    A subclass says what an adapter adds (:meth:`added_weight`) and which adapters it has (:meth:`has_adapter`), and
    sets ``quantization_backend`` and ``fan_in_fan_out``.
    """

    quantization_backend: Any
    fan_in_fan_out: bool
    merged_adapters: list[str]

    def _init_merging(self) -> None:
        self._disable_adapters = False
        self.merged_adapters = []
        self._pristine: Tensor | list[nn.Module] | None = None  # a list keeps a module out of the state dict
        self._set_aside: tuple[list[str], list[str]] | None = None

    def has_adapter(self, adapter_name: str) -> bool:
        """Whether the layer has an adapter of this name."""
        raise NotImplementedError

    def added_weight(self, adapter_name: str, weight: Tensor) -> Tensor:
        """What an adapter adds to ``weight``, both ``(out, in)`` in at least float32."""
        raise NotImplementedError

    @torch.no_grad()
    def unmerged_weight(self) -> Tensor:
        """The weight without any adapter, ``(out, in)`` in at least float32, dequantised."""
        pristine = self._stored_pristine()
        full = pristine.to(self.weight.device, work_dtype(pristine))
        return full.T if self.fan_in_fan_out else full

    def check_merge(self, adapter_names: list[str], safe_merge: bool = False) -> None:
        """Raise a ValueError if these adapters cannot be merged; nothing is changed.

        Raises:
            ValueError: The base layer is quantised in a way that takes no merge; it is another tuner's layer, whose
                own update the transform multiplies too; or ``safe_merge`` is set and the merged weight would hold NaN
                or infinity.
        """
        names = [name for name in adapter_names if self.has_adapter(name) and name not in self.merged_adapters]
        backend = self.quantization_backend
        if names and backend is not None and not backend.supports_merge:
            raise ValueError(
                f"a base layer quantised by {backend.backend_name} takes no merge; load the base model unquantised"
            )
        if names and isinstance(self.base_layer, BaseTunerLayer):
            raise ValueError(
                f"adapter {names[0]!r} sits over another tuner's layer, a {type(self.base_layer).__name__}, and their "
                "merges do not add up; merge and unload that tuner's adapter before adding this one"
            )
        if names and safe_merge:
            self._check_finite(self._merged_weight([*self.merged_adapters, *names]), names)

    def merge(self, safe_merge: bool = False, adapter_names: list[str] | None = None) -> None:
        """Set the weight to the unmerged one plus what the adapters add to that, computed in at least float32.

        Args:
            safe_merge: Refuse a result that is not finite, before anything is changed.
            adapter_names: Which adapters; None: the active ones.

        Raises:
            ValueError: See :meth:`check_merge`.
        """
        names = [name for name in check_adapters_to_merge(self, adapter_names) if self.has_adapter(name)]
        if names:
            self.check_merge(names)
            self._set_merged([*self.merged_adapters, *names], safe_merge)

    def unmerge(self) -> None:
        """Put the weight from before the first merge back."""
        self._set_aside = None
        if not self.merged:
            warnings.warn("Already unmerged. Nothing to do.", stacklevel=2)
            return
        if isinstance(self._pristine, Tensor):
            self.set_base_weight(self._pristine.to(self.weight.device, self.weight.dtype))
        elif self._pristine is not None:
            self.base_layer = self._pristine[0]
        self._pristine, self.merged_adapters = None, []

    def enable_adapters(self, enabled: bool) -> None:
        """Switch all adapters on or off; a merge is undone while they are off and comes back when they are on again."""
        if not enabled and self.merged:
            self._set_merge_aside()
        super().enable_adapters(enabled)
        if enabled and self._set_aside is not None:
            (active, merged), self._set_aside = self._set_aside, None
            if active == list(self.active_adapters):
                merged = _together(merged, self.merged_adapters)
                self._set_merged([name for name in merged if self.has_adapter(name)], safe_merge=False)

    def _set_merge_aside(self) -> None:
        before = [] if self._set_aside is None else self._set_aside[1]
        aside = (list(self.active_adapters), _together(before, self.merged_adapters))
        self.unmerge()
        self._set_aside = aside

    @torch.no_grad()
    def _set_merged(self, names: list[str], safe_merge: bool) -> None:
        merged, pristine = self._merged_weight(names), self._stored_pristine()
        if safe_merge:
            self._check_finite(merged, names)
        if self._pristine is None:
            quantised = self.quantization_backend is not None
            self._pristine = [copy.deepcopy(self.base_layer)] if quantised else pristine.detach().cpu().clone()
        self.set_base_weight(merged)
        self.merged_adapters = names

    @torch.no_grad()
    def _merged_weight(self, names: list[str]) -> Tensor:
        """As it will be stored."""
        weight, pristine = self.unmerged_weight(), self._stored_pristine()
        merged = weight
        for name in names:
            merged = merged + self.added_weight(name, weight)
        return (merged.T if self.fan_in_fan_out else merged).to(pristine.dtype)

    def _check_finite(self, merged: Tensor, names: list[str]) -> None:
        if not torch.isfinite(merged).all():
            raise ValueError(f"merging adapter {', '.join(map(repr, names))} would make the weight NaN or infinite")

    def _stored_pristine(self) -> Tensor:
        if isinstance(self._pristine, Tensor):
            return self._pristine
        weight: Tensor
        if self._pristine is None:
            weight = self.get_base_weight()
        else:
            weight = self.quantization_backend.get_base_weight(self._pristine[0])
        return weight


def _together(first: list[str], second: list[str]) -> list[str]:
    return [*first, *(name for name in second if name not in first)]


def quantisation_of(layer: nn.Module, get_apply_tensor_subclass: Callable[[], Any] | None = None) -> Any:
    """Peft's backend of a quantised layer, or None.

    A layer that ``torchao.quantize_`` made, without transformers, can be adapted but takes no merge: how to quantise
    the merged weight again is then not known.
    """
    backend = resolve_quantization_backend(layer, get_apply_tensor_subclass=get_apply_tensor_subclass or _unknown)
    if get_apply_tensor_subclass is None and getattr(backend, "backend_name", None) == "torchao":
        backend.supports_merge = False
    return backend


def _unknown() -> NoReturn:
    raise ValueError("the layer was quantised by torchao itself, so its settings are not known")
