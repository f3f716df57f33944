"""The suite for peft methods holds for peft's own LoRA, so that what it asks is what peft does."""

from __future__ import annotations

from typing import Any, ClassVar

from peft import LoraConfig

from nips_common.testing.peft_suite import PeftSuite


class TestLora(PeftSuite):
    config_class, prefix = LoraConfig, "lora_"
    random: ClassVar[dict[str, Any]] = {"init_lora_weights": False}
    bias_only = "lora_only"
    still_at_first = ("lora_A",)
