"""Quantised base models for tests of peft methods: torchao's int8 Llama, and a stand-in for backends that need a GPU.

Needs ``nips-common[peft,torch]``, transformers and pytest; torchao for its part.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftConfig, PeftModel, get_peft_model
from peft.utils.quantization_utils import QuantizationBackend
from torch import Tensor, nn

from nips_common.runtime import require
from nips_common.testing.tiny_models import LLAMA, PLAIN


def torchao_llama(folder: Path) -> nn.Module:
    """The tiny Llama with int8 weights, saved in and loaded from ``folder``."""
    from transformers import LlamaForCausalLM, TorchAoConfig

    quantization = require("torchao.quantization", "torchao")

    plain: Any = LLAMA.build()
    plain.save_pretrained(folder / "base")
    config = TorchAoConfig(quantization.Int8WeightOnlyConfig())
    model: nn.Module = LlamaForCausalLM.from_pretrained(folder / "base", quantization_config=config, dtype="float32")
    return model.eval()


class RoundedLinear(nn.Module):
    """Weights rounded to 8 bits, in a module that is no ``nn.Linear``."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.in_features, self.out_features, self.bias = linear.in_features, linear.out_features, linear.bias
        self.set(linear.weight)

    def set(self, weight: Tensor) -> None:
        """Round and keep a weight, ``(out, in)``."""
        self.scale = weight.detach().abs().max() / 127
        self.weight = nn.Parameter((weight.detach() / self.scale).round().to(torch.int8), requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        """``(..., in) -> (..., out)``."""
        return nn.functional.linear(x, self.weight * self.scale, self.bias)


class RoundedBackend(QuantizationBackend):
    """What peft needs to know of :class:`RoundedLinear`; ``clones`` counts the results that it was asked to clone."""

    supports_merge, backend_name, layer_type = True, "rounded", "linear"
    clones = 0

    def get_base_weight(self, base_layer: nn.Module) -> Tensor:
        """The weight, ``(out, in)`` in float32."""
        return base_layer.weight * base_layer.scale  # type: ignore[operator]

    def set_base_weight(self, peft_layer: Any, weight_data: Tensor) -> None:
        """Round a weight into a new base layer, as HQQ does."""
        peft_layer.base_layer = copy.deepcopy(peft_layer.base_layer)
        peft_layer.base_layer.set(weight_data)

    def maybe_clone_base_result(self, x: Tensor) -> Tensor:
        """A clone."""
        self.clones += 1
        return x.clone()


def rounded_model(
    monkeypatch: pytest.MonkeyPatch, modules: Sequence[str], backend: QuantizationBackend, config: PeftConfig
) -> PeftModel:
    """The tiny MLP with rounded ``lin0`` and ``lin1`` and an adapter.

    Args:
        monkeypatch: pytest's.
        modules: The modules in which the method under test has imported ``resolve_quantization_backend``; peft has no
            way to add a backend.
        backend: What they find for a rounded layer.
        config: Of the adapter.
    """

    def resolve(base_layer: nn.Module, **_: object) -> QuantizationBackend | None:
        return backend if isinstance(base_layer, RoundedLinear) else None

    for module in modules:
        monkeypatch.setattr(f"{module}.resolve_quantization_backend", resolve)
    model: Any = PLAIN.build()
    model.lin0, model.lin1 = RoundedLinear(model.lin0), RoundedLinear(model.lin1)
    torch.manual_seed(0)
    return get_peft_model(model, config)
