"""Dtypes, and which layers are adapted."""

# ruff: noqa: D102 - the names of the tests say what they are about
from __future__ import annotations

import peft
import pytest
import torch
from peft import get_peft_model
from peft.helpers import disable_input_dtype_casting
from peft.tuners.tuners_utils import BaseTunerLayer
from torch import nn

from nips_common.testing.peft_suite.base import (
    PeftSuiteBase,
    each_dtype,
    each_layered_model,
    each_model,
    same,
    train,
    tuner_layers,
)
from nips_common.testing.tiny_models import LLAMA, PLAIN, ROBERTA, T5, TinyModel


class LayersTests(PeftSuiteBase):
    """Dtypes, and which layers are adapted."""

    # dtypes

    @each_model
    @pytest.mark.parametrize("autocast", [True, False], ids=["float32-adapter", "same-dtype-adapter"])
    @each_dtype
    def test_the_adapter_and_the_output_have_the_right_dtype(
        self, tiny: TinyModel, autocast: bool, dtype: torch.dtype
    ) -> None:
        model = get_peft_model(tiny.build(dtype), self.config(tiny), autocast_adapter_dtype=autocast)
        dtypes = {parameter.dtype for name, parameter in model.named_parameters() if self.prefix in name}
        assert dtypes == {torch.float32 if autocast else dtype}
        assert tiny.output(model).dtype == dtype
        train(model, tiny)
        assert tiny.output(model).dtype == dtype

    def test_the_cast_of_the_input_can_be_switched_off(self) -> None:
        model = self.adapted(PLAIN, torch.bfloat16)
        with disable_input_dtype_casting(model), pytest.raises(RuntimeError, match="dtype"):
            PLAIN.output(model)
        assert PLAIN.output(model).dtype == torch.bfloat16

    def test_autocast_keeps_the_output_close(self) -> None:
        model = self.adapted(LLAMA)
        full = LLAMA.output(model)
        with torch.autocast("cpu", torch.bfloat16):
            half = LLAMA.output(model)
        assert same(half.float(), full, 0.05)

    # which layers

    @each_layered_model
    @each_dtype
    def test_only_the_chosen_layers_are_adapted(self, tiny: TinyModel, dtype: torch.dtype) -> None:
        everywhere = len(tuner_layers(get_peft_model(tiny.build(dtype), self.config(tiny))))
        for pattern in (None, list(tiny.layers_pattern)):
            config = self.config(tiny, layers_to_transform=[1], layers_pattern=pattern)
            model = get_peft_model(tiny.build(dtype), config)
            names = [name for name, module in model.named_modules() if isinstance(module, BaseTunerLayer)]
            assert len(names) == everywhere / 2
            assert all(".1." in name for name in names)

    @each_model
    def test_excluded_modules_are_left_alone(self, tiny: TinyModel) -> None:
        model = get_peft_model(tiny.build(), self.config(tiny, exclude_modules=[tiny.target_modules[-1], "value"]))
        names = [name for name, module in model.named_modules() if isinstance(module, BaseTunerLayer)]
        assert names
        assert not any(name.rpartition(".")[2] in (tiny.target_modules[-1], "value") for name in names)

    def test_all_linear_leaves_the_output_layer_alone(self) -> None:
        model = get_peft_model(LLAMA.build(), self.config(LLAMA, target_modules="all-linear"))
        linear = {name for name, module in LLAMA.build().named_modules() if isinstance(module, nn.Linear)}
        assert set(model.base_model.targeted_module_names) == linear - {"lm_head"}

    def test_usual_targets_are_known(self) -> None:
        for tiny in (LLAMA, ROBERTA, T5):
            assert tuner_layers(get_peft_model(tiny.build(), self.config(tiny, target_modules=None)))
        with pytest.raises(ValueError, match="target_modules"):
            get_peft_model(PLAIN.build(), self.config(PLAIN, target_modules=None))

    def test_targets_that_match_nothing_are_an_error(self) -> None:
        error = getattr(getattr(peft.utils, "error", None), "NoMatchingPeftModuleError", ValueError)
        with pytest.raises(error, match="nowhere"):
            get_peft_model(PLAIN.build(), self.config(PLAIN, target_modules=["nowhere"]))

    def test_another_kind_of_layer_is_refused_by_its_type(self) -> None:
        with pytest.raises((ValueError, TypeError), match=r"LayerNorm|RMSNorm"):
            get_peft_model(LLAMA.build(), self.config(LLAMA, target_modules=["input_layernorm"]))
