"""Several adapters on one model, and merging."""

# ruff: noqa: D102 - the names of the tests say what they are about
from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from peft import LoHaConfig, LoraConfig, get_peft_model
from torch import Tensor

from nips_common.testing.peft_suite.base import (
    BEFORE_0_21,
    PeftSuiteBase,
    each_dtype,
    each_model,
    same,
    tuner_layers,
)
from nips_common.testing.tiny_models import PLAIN, TinyModel


class SeveralAdaptersTests(PeftSuiteBase):
    """Several adapters on one model, and merging."""

    # several adapters

    @each_model
    @each_dtype
    def test_one_of_two_adapters_is_active(self, tiny: TinyModel, dtype: torch.dtype, tmp_path: Path) -> None:
        model = self.adapted(tiny, dtype)
        first = tiny.output(model)
        other = self.adapted(tiny, dtype, name="other")
        self.strengthen(other, seed=3)
        other.save_pretrained(tmp_path)
        model.load_adapter(tmp_path / "other", "other")
        assert same(tiny.output(model), first)
        model.set_adapter("other")
        assert same(tiny.output(model), tiny.output(other), 1e-6)
        assert not same(tiny.output(model), first, 1e-3)
        trainable = [name for name, parameter in model.named_parameters() if parameter.requires_grad]
        assert trainable
        assert all(".other" in name for name in trainable)
        model.set_adapter("default")
        assert same(tiny.output(model), first)

    @each_model
    @each_dtype
    def test_adapters_may_target_different_layers(self, tiny: TinyModel, dtype: torch.dtype) -> None:
        base = tiny.output(tiny.build(dtype))
        model = self.adapted(tiny, dtype, exclude_modules=[tiny.target_modules[0], "q_proj"])
        first, layers = tiny.output(model), len(tuner_layers(model))
        model.add_adapter("other", self.config(tiny, **self.random, exclude_modules=[tiny.target_modules[1], "v_proj"]))
        assert len(tuner_layers(model)) == 2 * layers
        assert same(tiny.output(model), first)
        model.set_adapter("other")
        second = tiny.output(model)
        assert not same(second, base, 1e-5)
        assert not same(second, first, 1e-5)

    @each_model
    @each_dtype
    def test_adapters_are_deleted(self, tiny: TinyModel, dtype: torch.dtype) -> None:
        model = self.adapted(tiny, dtype)
        first = tiny.output(model)
        model.add_adapter("other", self.config(tiny))
        model.delete_adapter("other")
        assert same(tiny.output(model), first)
        assert not any(".other" in name for name, _ in model.named_parameters())
        assert list(model.peft_config) == ["default"]
        model.add_adapter("third", self.config(tiny))
        model.delete_adapter("default")
        assert model.active_adapters == ["third"]
        assert same(tiny.output(model), tiny.output(tiny.build(dtype)), self.start_tolerance)

    def test_what_is_no_adapter_or_is_merged_is_not_deleted(self) -> None:
        model = self.adapted(PLAIN, **self.merging)
        with pytest.raises(ValueError, match="nobody"):
            model.delete_adapter("nobody")
        model.merge_adapter()
        if not BEFORE_0_21:  # which deletes a merged adapter without a word
            with pytest.raises(ValueError, match="default"):
                model.delete_adapter("default")

    def test_gradients_are_switched_by_adapter(self) -> None:
        model = self.adapted(PLAIN)
        model.add_adapter("other", self.config(PLAIN))
        model.set_requires_grad("default", requires_grad=False)
        assert not any(parameter.requires_grad for parameter in model.parameters())
        model.set_requires_grad("other")
        assert all(parameter.requires_grad == (".other" in name) for name, parameter in model.named_parameters())

    def test_another_method_does_not_mix_with_it(self) -> None:
        model = self.adapted(PLAIN)
        other = LoHaConfig if self.config_class is LoraConfig else LoraConfig
        with pytest.raises(ValueError, match="different peft types"):
            model.add_adapter("other", other(target_modules=["lin0"]))
        if self.plugin:
            with pytest.raises(ValueError, match="PeftMixedModel"):
                get_peft_model(PLAIN.build(), self.config(PLAIN), mixed=True)

    # merging

    @each_model
    @each_dtype
    def test_a_merge_keeps_the_output_and_is_undone(self, tiny: TinyModel, dtype: torch.dtype) -> None:
        model = self.adapted(tiny, dtype, **self.merging)
        base, apart = tiny.output(tiny.build(dtype)), tiny.output(model)
        weights = [layer.weight.detach().clone() for layer in tuner_layers(model)]
        model.merge_adapter()
        assert all(layer.merged for layer in tuner_layers(model))
        assert not any(torch.equal(layer.weight, w) for layer, w in zip(tuner_layers(model), weights, strict=True))
        assert not same(apart, base, 2 * self.merge_tolerance[dtype])
        assert same(tiny.output(model), apart, self.merge_tolerance[dtype])
        with pytest.warns(UserWarning, match="already merged"):
            model.merge_adapter()
        assert same(tiny.output(model), apart, self.merge_tolerance[dtype])
        model.unmerge_adapter()
        for layer, weight in zip(tuner_layers(model), weights, strict=True):
            assert not layer.merged
            assert same(layer.weight, weight, self.unmerge_tolerance[dtype])
        with pytest.warns(UserWarning, match="unmerged"):
            model.unmerge_adapter()

    @each_model
    @each_dtype
    def test_a_merged_model_is_unloaded(self, tiny: TinyModel, dtype: torch.dtype) -> None:
        model = self.adapted(tiny, dtype, **self.merging)
        apart = tiny.output(model)
        merged = model.merge_and_unload(safe_merge=True)
        assert not tuner_layers(merged)
        assert merged.state_dict().keys() == tiny.build(dtype).state_dict().keys()
        assert same(tiny.output(merged), apart, self.merge_tolerance[dtype])

    @each_model
    @each_dtype
    def test_merging_one_by_one_is_merging_all_at_once(self, tiny: TinyModel, dtype: torch.dtype) -> None:
        models = [self.adapted(tiny, dtype, **self.merging) for _ in range(2)]
        for model in models:
            model.add_adapter("other", self.config(tiny, **self.random, **self.merging))
            self.strengthen(model)
        models[0].merge_adapter(["default", "other"])
        models[1].merge_adapter(["default"])
        with pytest.warns(UserWarning, match="additionally merging"):
            models[1].merge_adapter(["other"])
        assert same(tiny.output(models[1]), tiny.output(models[0]), self.merge_tolerance[dtype])
        for model in models:
            model.unmerge_adapter()
            for layer, clean in zip(tuner_layers(model), self.pristine(tiny, dtype), strict=True):
                assert same(layer.weight, clean, self.unmerge_tolerance[dtype])

    def pristine(self, tiny: TinyModel, dtype: torch.dtype) -> Iterator[Tensor]:
        """The weights that the targets have without an adapter."""
        for layer in tuner_layers(get_peft_model(tiny.build(dtype), self.config(tiny))):
            yield layer.weight

    @pytest.mark.parametrize("number", [float("nan"), float("inf")])
    @each_dtype
    def test_a_safe_merge_of_a_broken_adapter_changes_nothing(self, number: float, dtype: torch.dtype) -> None:
        model = self.adapted(PLAIN, dtype, **self.merging)
        weight = tuner_layers(model)[0].weight.detach().clone()
        for name, parameter in model.named_parameters():
            if self.prefix in name:
                parameter.data.view(-1)[0] = number
        with pytest.raises(ValueError, match="NaN"):
            model.merge_adapter(safe_merge=True)
        assert torch.equal(tuner_layers(model)[0].weight, weight)
        assert not tuner_layers(model)[0].merged

    def test_choosing_an_adapter_unmerges_with_a_warning(self) -> None:
        model = self.adapted(PLAIN, **self.merging)
        apart = PLAIN.output(model)
        model.merge_adapter()
        with pytest.warns(UserWarning, match="[Uu]nmerg"):
            model.set_adapter("default")
        assert same(PLAIN.output(model), apart, 1e-6)
