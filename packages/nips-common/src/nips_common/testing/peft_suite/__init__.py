"""What every peft method must do, as one class of tests that a package subclasses with its config.

    class TestAurora(PeftSuite):
        config_class, prefix, plugin = AuroraConfig, "aurora_", "lora_anl"
        merging = {"forward_mode": "static"}

It runs on tiny Llama, RoBERTa, ViT, T5 and a plain MLP (``nips_common.testing.tiny_models``), each in float32 and
bfloat16. Needs ``nips-common[peft,torch]`` and pytest.
"""

from __future__ import annotations

from nips_common.testing.peft_suite.adapters import SeveralAdaptersTests
from nips_common.testing.peft_suite.base import tuner_layers
from nips_common.testing.peft_suite.layers import LayersTests
from nips_common.testing.peft_suite.saving import SavingTests
from nips_common.testing.peft_suite.torch_life import TorchLifeTests
from nips_common.testing.peft_suite.training import TrainingTests

__all__ = ["PeftSuite", "tuner_layers"]


class PeftSuite(TrainingTests, SavingTests, SeveralAdaptersTests, LayersTests, TorchLifeTests):
    """All tests; the attributes to set are those of :class:`~nips_common.testing.peft_suite.base.PeftSuiteBase`."""
