"""AuroRA behaves as a method of peft's own: the shared suites."""

from __future__ import annotations

from typing import Any, ClassVar

import torch

from lora_anl import AuroraConfig, AuroraModel
from nips_common.testing.plugin_suite import PluginSuite


class TestAurora(PluginSuite):
    config_class, model_class, prefix, plugin = AuroraConfig, AuroraModel, "aurora_", "lora_anl"
    merging: ClassVar[dict[str, Any]] = {"forward_mode": "static"}
    bias_only = "aurora_only"
    # B is 0 at the start, and nothing in front of it learns before it has moved
    still_at_first = ("aurora_A", "aurora_anl")
    unmerge_tolerance: ClassVar[dict[torch.dtype, float]] = {torch.float32: 0.0, torch.bfloat16: 0.0}
