"""RidgeLoRA behaves as a method of peft's own: the shared suites."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import nn

from nips_common.testing.plugin_suite import PluginSuite
from ridgelora import RidgeLoraConfig, RidgeLoraModel


class TestRidgeLora(PluginSuite):
    config_class, model_class, prefix, plugin = RidgeLoraConfig, RidgeLoraModel, "ridgelora_", "ridgelora"
    options: ClassVar[dict[str, Any]] = {"r": 4}
    random: ClassVar[dict[str, Any]] = {"init_weights": "gaussian"}
    bias_only = "ridgelora_only"
    # the cancellation of the ridge's noise and of B A is exact up to rounding only
    start_tolerance = 1e-6
    unmerge_tolerance: ClassVar[dict[torch.dtype, float]] = {torch.float32: 0.0, torch.bfloat16: 0.0}

    def strengthen(self, model: nn.Module, seed: int = 2) -> None:
        """Sigma and lambda around 1: what is near 0 would pass nothing on."""
        super().strengthen(model, seed)
        for name, parameter in model.named_parameters():
            if "ridgelora_sigma" in name or "ridgelora_lambda" in name:
                parameter.data += 1
