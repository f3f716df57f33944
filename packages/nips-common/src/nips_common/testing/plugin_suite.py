"""What a method must do that plugs into peft from outside, beyond :class:`nips_common.testing.peft_suite.PeftSuite`.

    class TestAurora(PluginSuite):
        config_class, model_class, prefix, plugin = AuroraConfig, AuroraModel, "aurora_", "lora_anl"

Such a method registers itself, and refuses in words what peft would leave to an accident. Needs
``nips-common[peft,torch]`` and pytest.
"""

# ruff: noqa: D102 - the names of the tests say what they are about
from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path
from typing import Any, ClassVar

import peft
import pytest
import torch
from peft import PeftModel, get_peft_model
from peft.tuners.tuners_utils import BaseTuner
from torch import nn

from nips_common.testing.peft_suite import PeftSuite, tuner_layers
from nips_common.testing.tiny_models import PLAIN, ROBERTA

NOT_LINEAR = (
    nn.Embedding(4, 4),
    nn.Conv1d(4, 4, 1),
    nn.Conv2d(4, 4, 1),
    nn.MultiheadAttention(4, 2),
    nn.Bilinear(4, 4, 4),
    nn.LayerNorm(4),
)


class _Net(nn.Module):
    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.part = module


class PluginSuite(PeftSuite):
    """The tests; see the module's text.

    Attributes:
        model_class: The method's tuner.
    """

    model_class: ClassVar[type[BaseTuner]]

    def on_part(self, module: nn.Module) -> PeftModel:
        """A net of one module with an adapter on it."""
        return get_peft_model(_Net(module), self.config_class(target_modules=["part"], r=1))

    # registration

    def test_importing_it_registers_the_method(self) -> None:
        name = self.prefix.removesuffix("_").upper()
        member, mapping = peft.PeftType(name), peft.mapping
        assert mapping.PEFT_TYPE_TO_CONFIG_MAPPING[member] is self.config_class
        assert mapping.PEFT_TYPE_TO_TUNER_MAPPING[member] is self.model_class
        assert mapping.PEFT_TYPE_TO_PREFIX_MAPPING[member] == self.model_class.prefix == self.prefix
        assert member not in mapping.PEFT_TYPE_TO_MIXED_MODEL_MAPPING

    def test_it_can_be_imported_once_more(self) -> None:
        name, tuners = self.prefix.removesuffix("_").upper(), peft.mapping.PEFT_TYPE_TO_TUNER_MAPPING
        try:
            importlib.reload(importlib.import_module(self.model_class.__module__))
            assert tuners[name].__name__ == self.model_class.__name__
        finally:
            tuners[name] = self.model_class

    @pytest.mark.slow
    def test_without_the_import_a_checkpoint_is_an_unknown_type(self, tmp_path: Path) -> None:
        self.config(PLAIN).save_pretrained(tmp_path)
        program = f"from peft import PeftConfig; PeftConfig.from_pretrained({str(tmp_path)!r})"
        command = [sys.executable, "-c", program]
        run = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - our own program
        name = self.prefix.removesuffix("_").upper()
        assert run.stderr.strip().splitlines()[-1] == f"KeyError: '{name}'"

    # what is refused

    @pytest.mark.parametrize("module", NOT_LINEAR, ids=lambda module: type(module).__name__)
    def test_a_target_of_another_type_is_named_with_its_type(self, module: nn.Module) -> None:
        net = _Net(module)
        with pytest.raises(TypeError) as caught:
            get_peft_model(net, self.config_class(target_modules=["part"]))
        assert "'part'" in str(caught.value)
        assert type(module).__name__ in str(caught.value)
        assert "torch.nn.Linear" in str(caught.value)
        assert net.part is module

    @pytest.mark.filterwarnings("ignore:Initializing zero-element tensors")
    @pytest.mark.parametrize("inputs", [None, 4], ids=["lazy", "no outputs"])
    def test_a_layer_without_inputs_or_outputs_is_refused(self, inputs: int | None) -> None:
        module: Any = nn.LazyLinear(3) if inputs is None else nn.Linear(inputs, 0)
        with pytest.raises(
            ValueError, match=r"must have inputs and outputs to adapt, got in_features=\d(,| and) out_features=\d"
        ):
            self.on_part(module)

    def test_adapters_mixed_within_a_batch_are_refused(self) -> None:
        model = self.adapted(PLAIN)
        with pytest.raises(ValueError, match=r"adapter_names was given.*set_adapter"):
            model(**PLAIN.inputs, adapter_names=["default"])

    def test_an_unknown_adapter_is_not_merged_in_silence(self) -> None:
        model = self.adapted(PLAIN, **self.merging)
        for call in (model.merge_adapter, model.merge_and_unload):
            with pytest.raises(ValueError, match="no adapter 'typo' to merge, only default"):
                call(adapter_names=["typo"])
        assert not any(layer.merged for layer in tuner_layers(model))

    # merging

    def test_a_head_of_several_layers_that_is_trained_in_full_survives_merging(self) -> None:
        model = self.adapted(ROBERTA, modules_to_save=["classifier"], **self.merging)
        with torch.no_grad():
            model.base_model.model.classifier.modules_to_save["default"].dense.weight.mul_(2)
        expected = ROBERTA.output(model)
        merged = model.merge_and_unload()
        assert type(merged.classifier).__name__ == "RobertaClassificationHead"
        assert (ROBERTA.output(merged) - expected).abs().max() <= 1e-5
