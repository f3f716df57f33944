"""The training script with peft's LoRA as the method."""

from __future__ import annotations

import sys
from pathlib import Path

from nips_finetune.testing.method_suite import MethodSuite

sys.path.insert(0, str(Path(__file__).parent))
import lora_program


class TestLora(MethodSuite):
    """All that every method must do."""

    method = lora_program.METHOD
    program = lora_program.__file__
