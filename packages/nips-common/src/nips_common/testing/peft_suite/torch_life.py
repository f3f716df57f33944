"""Life with PyTorch: copies, checkpointing, generation, compilation."""

# ruff: noqa: D102 - the names of the tests say what they are about
from __future__ import annotations

import copy
import inspect
import io
import warnings
from typing import Any

import pytest
import torch
from peft import get_peft_model

from nips_common.testing.peft_suite.base import (
    PeftSuiteBase,
    each_dtype,
    each_layered_model,
    each_model,
    same,
    train,
)
from nips_common.testing.tiny_models import LLAMA, PLAIN, T5, VIT, TinyModel


class TorchLifeTests(PeftSuiteBase):
    """Life with PyTorch: copies, checkpointing, generation, compilation."""

    # life with PyTorch

    @each_model
    @each_dtype
    def test_a_copy_is_equal_and_apart(self, tiny: TinyModel, dtype: torch.dtype) -> None:
        model = self.adapted(tiny, dtype)
        expected = tiny.output(model)
        copied = copy.deepcopy(model)
        assert same(tiny.output(copied), expected)
        train(copied, tiny)
        assert not same(tiny.output(copied), expected, 1e-6)
        assert same(tiny.output(model), expected)

    @each_dtype
    def test_the_state_dict_survives_torch_save(self, dtype: torch.dtype) -> None:
        model, buffer = self.adapted(LLAMA, dtype), io.BytesIO()
        torch.save(model.state_dict(), buffer)
        buffer.seek(0)
        fresh = get_peft_model(LLAMA.build(dtype), self.config(LLAMA))
        fresh.load_state_dict(torch.load(buffer, weights_only=True))
        assert same(LLAMA.output(fresh), LLAMA.output(model))

    @pytest.mark.parametrize("use_reentrant", [True, False], ids=["reentrant", "non-reentrant"])
    @each_layered_model
    @each_dtype
    def test_gradient_checkpointing_gives_the_same_gradients(
        self, tiny: TinyModel, dtype: torch.dtype, use_reentrant: bool
    ) -> None:
        if tiny is VIT and use_reentrant:
            pytest.skip("pixels ask for no gradient, which the reentrant form needs")
        gradients = []
        for checkpointing in (False, True):
            model = self.adapted(tiny, dtype).train()
            if tiny is not VIT:
                model.enable_input_require_grads()
            if checkpointing:
                model.gradient_checkpointing_enable({"use_reentrant": use_reentrant})
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # about caches
                tiny.logits(model).float().square().mean().backward()
            named = [(name, p.grad) for name, p in model.named_parameters() if self.prefix in name]
            assert all(grad is not None for _, grad in named)
            gradients.append([grad for _, grad in named])
        for plain, checkpointed in zip(*gradients, strict=True):
            # T5 adds up gradients of its encoder in another order; both are that far from exact ones
            assert same(checkpointed, plain, 1e-5 if dtype == torch.float32 else 0.25)

    @pytest.mark.parametrize("tiny", [LLAMA, T5], ids=lambda tiny: tiny.name)
    @each_dtype
    def test_it_generates(self, tiny: TinyModel, dtype: torch.dtype) -> None:
        model = self.adapted(tiny, dtype)
        tokens = model.generate(input_ids=tiny.inputs["input_ids"], max_new_tokens=3, do_sample=False, pad_token_id=0)
        if tiny is LLAMA:
            assert torch.equal(tokens[:, 7], tiny.output(model)[:, -1].argmax(-1))
        with model.disable_adapter():
            plain = model.generate(
                input_ids=tiny.inputs["input_ids"], max_new_tokens=3, do_sample=False, pad_token_id=0
            )
        assert tokens.shape == plain.shape

    @pytest.mark.slow
    @pytest.mark.parametrize("tiny", [LLAMA, PLAIN], ids=lambda tiny: tiny.name)
    @each_dtype
    def test_it_compiles_and_trains_the_same(self, tiny: TinyModel, dtype: torch.dtype) -> None:
        models = [self.adapted(tiny, dtype).train() for _ in range(2)]
        compiled: Any = torch.compile(models[1])
        tolerance = 1e-5 if dtype == torch.float32 else 0.05
        assert same(tiny.output(compiled), tiny.output(models[0]), tolerance)
        for model in (models[0], compiled):
            train(model, tiny)
        parameters = zip(models[0].named_parameters(), models[1].named_parameters(), strict=True)
        for (name, eager), (_, traced) in parameters:
            if eager.requires_grad:
                assert same(traced.grad, eager.grad, tolerance), name

    def test_the_config_takes_no_arbitrary_keywords(self) -> None:
        kinds = {parameter.kind for parameter in inspect.signature(self.config_class).parameters.values()}
        assert inspect.Parameter.VAR_KEYWORD not in kinds
