"""What is there, what trains, and what is left when adapters are switched off."""

# ruff: noqa: D102 - the names of the tests say what they are about
from __future__ import annotations

from pathlib import Path

import pytest
import torch
from peft import PeftModel, get_peft_model

from nips_common.testing.peft_suite.base import (
    BEFORE_0_21,
    PeftSuiteBase,
    each_dtype,
    each_model,
    same,
    train,
)
from nips_common.testing.tiny_models import LLAMA, ROBERTA, TinyModel


class TrainingTests(PeftSuiteBase):
    """What is there, what trains, and what is left when adapters are switched off."""

    # what is there and what trains

    @each_model
    @each_dtype
    def test_only_the_adapter_and_the_saved_modules_train(self, tiny: TinyModel, dtype: torch.dtype) -> None:
        model = get_peft_model(tiny.build(dtype), self.config(tiny, modules_to_save=[tiny.head]))
        assert isinstance(model.peft_config["default"], self.config_class)
        trainable = [name for name, parameter in model.named_parameters() if parameter.requires_grad]
        adapter = [name for name in trainable if self.prefix in name]
        assert adapter
        assert all("modules_to_save" in name for name in trainable if name not in adapter)
        assert any("modules_to_save" in name for name in trainable)
        assert {name for name, _ in model.named_parameters() if self.prefix in name} == set(adapter)

    def test_the_number_of_trained_parameters_is_printed(self, capsys: pytest.CaptureFixture[str]) -> None:
        model = get_peft_model(LLAMA.build(), self.config(LLAMA))
        count = sum(parameter.numel() for name, parameter in model.named_parameters() if self.prefix in name)
        model.print_trainable_parameters()
        assert f"trainable params: {count:,} " in capsys.readouterr().out

    @each_model
    @each_dtype
    def test_a_new_adapter_changes_nothing(self, tiny: TinyModel, dtype: torch.dtype) -> None:
        base = tiny.output(tiny.build(dtype))
        model = get_peft_model(tiny.build(dtype), self.config(tiny))
        assert same(tiny.output(model), base, self.start_tolerance)

    @each_model
    @each_dtype
    def test_random_weights_change_the_output(self, tiny: TinyModel, dtype: torch.dtype) -> None:
        base = tiny.output(tiny.build(dtype))
        model = get_peft_model(tiny.build(dtype), self.config(tiny, **self.random))
        assert not same(tiny.output(model), base, 1e-4)

    @each_model
    @each_dtype
    def test_a_step_changes_the_adapter_only(self, tiny: TinyModel, dtype: torch.dtype) -> None:
        model = get_peft_model(tiny.build(dtype), self.config(tiny))
        before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
        train(model, tiny)
        for name, parameter in model.named_parameters():
            if self.prefix not in name:
                assert parameter.grad is None
                assert torch.equal(parameter, before[name])
                continue
            assert torch.isfinite(parameter.grad).all()
            still = any(end in name for end in self.still_at_first)
            assert bool((parameter.grad == 0).all()) == still, name
        train(model, tiny, learning_rate=0.01)  # a step of the same size could lead back
        for name, parameter in model.named_parameters():
            assert torch.equal(parameter, before[name]) == (self.prefix not in name), name

    @pytest.mark.parametrize("bias", ["all", "only"])
    @each_dtype
    def test_biases_train_and_are_saved_when_asked_for(self, bias: str, dtype: torch.dtype, tmp_path: Path) -> None:
        if not self.bias_only or BEFORE_0_21:
            pytest.skip("this method has no option bias, or this peft does not save what trained")
        config = self.config(ROBERTA, bias=self.bias_only if bias == "only" else "all")
        model = get_peft_model(ROBERTA.build(dtype), config)
        trained = {name for name, p in model.named_parameters() if p.requires_grad and self.prefix not in name}
        biases = {name for name, _ in model.named_parameters() if name.endswith(".bias")}
        assert trained == {name for name in biases if bias == "all" or "base_layer" in name}
        train(model, ROBERTA, 2)
        model.save_pretrained(tmp_path)
        loaded = PeftModel.from_pretrained(ROBERTA.build(dtype), tmp_path)
        assert same(ROBERTA.output(loaded), ROBERTA.output(model), 1e-6)

    # switching off

    @each_model
    @each_dtype
    def test_disabled_it_is_the_base_model_before_and_after_training(self, tiny: TinyModel, dtype: torch.dtype) -> None:
        base = tiny.output(tiny.build(dtype))
        model = get_peft_model(tiny.build(dtype), self.config(tiny))
        with model.disable_adapter():
            assert same(tiny.output(model), base)
        train(model, tiny, 2)
        trained = tiny.output(model)
        assert not same(trained, base, 1e-4)
        with model.disable_adapter():
            assert same(tiny.output(model), base)
        assert same(tiny.output(model), trained)
        assert any(parameter.requires_grad for parameter in model.parameters())

    @each_model
    @each_dtype
    def test_disabled_it_is_the_base_model_after_a_merge(self, tiny: TinyModel, dtype: torch.dtype) -> None:
        base = tiny.output(tiny.build(dtype))
        model = self.adapted(tiny, dtype, **self.merging)
        model.merge_adapter()
        merged = tiny.output(model)
        with model.disable_adapter():
            assert same(tiny.output(model), base, 2 * self.unmerge_tolerance[dtype])
        assert same(tiny.output(model), merged, self.merge_tolerance[dtype])
