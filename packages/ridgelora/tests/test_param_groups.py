"""Parameter groups: everything that trains once, and no decay on the ridge."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from peft import PeftModel, get_peft_model

from nips_common.testing.tiny_models import LLAMA, PLAIN
from ridgelora import RidgeLoraConfig, ridge_param_groups


def adapted(**options: Any) -> PeftModel:
    return get_peft_model(
        LLAMA.build(), RidgeLoraConfig(r=4, target_modules=["q_proj"], modules_to_save=["lm_head"], **options)
    )


def names(model: PeftModel, group: dict[str, Any]) -> set[str]:
    known = {id(parameter): name for name, parameter in model.named_parameters()}
    return {known[id(parameter)] for parameter in group["params"]}


@pytest.mark.parametrize(("ridge_lr", "expected"), [(None, 0.01), (0.3, 0.3), (0.0, 0.0)])
def test_every_trainable_parameter_is_in_one_group(ridge_lr: float | None, expected: float) -> None:
    model = adapted()
    ridge, rest = ridge_param_groups(model, 0.01, 0.1, ridge_lr)
    assert (ridge["lr"], ridge["weight_decay"]) == (expected, 0.0)
    assert (rest["lr"], rest["weight_decay"]) == (0.01, 0.1)
    assert names(model, ridge) | names(model, rest) == {n for n, p in model.named_parameters() if p.requires_grad}
    assert len(ridge["params"]) + len(rest["params"]) == sum(p.requires_grad for p in model.parameters())
    assert all("ridgelora_sigma" in name or "ridgelora_lambda" in name for name in names(model, ridge))
    assert len(ridge["params"]) == 4
    assert any("lm_head" in name for name in names(model, rest))


def test_decay_leaves_the_ridge_alone() -> None:
    model = adapted()
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    optimizer = torch.optim.AdamW(ridge_param_groups(model, 0.1, 0.5))
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter) if parameter.requires_grad else None
    optimizer.step()
    for name, parameter in model.named_parameters():
        decayed = "ridgelora_A" in name or "ridgelora_B" in name or "modules_to_save" in name
        assert torch.equal(parameter, before[name]) != decayed


def test_a_group_without_parameters_is_left_out() -> None:
    plain = PLAIN.build()
    groups = ridge_param_groups(plain, 0.1, 0.2)
    assert [len(group["params"]) for group in groups] == [6]
    only_ridge = get_peft_model(PLAIN.build(), RidgeLoraConfig(target_modules=["lin0"]))
    for name, parameter in only_ridge.named_parameters():
        parameter.requires_grad_("sigma" in name)
    assert [group["weight_decay"] for group in ridge_param_groups(only_ridge, 0.1, 0.2)] == [0.0]


def test_an_inactive_adapter_is_left_out() -> None:
    model = adapted()
    before = [len(group["params"]) for group in ridge_param_groups(model, 0.1, 0.0)]
    model.add_adapter("other", RidgeLoraConfig(r=2, target_modules=["v_proj"]))
    assert [len(group["params"]) for group in ridge_param_groups(model, 0.1, 0.0)] == before


def test_numbers_out_of_range_are_named() -> None:
    frozen = PLAIN.build().requires_grad_(False)
    for call, words in [
        (lambda: ridge_param_groups(adapted(), -1, 0), "lr must be a finite number of at least 0, got -1"),
        (lambda: ridge_param_groups(adapted(), 1, float("nan")), "weight_decay must be .* got nan"),
        (lambda: ridge_param_groups(adapted(), 1, 0, -2), "ridge_lr must be .* got -2"),
        (lambda: ridge_param_groups(frozen, 1, 0), "a MLP, has no trainable parameter"),
    ]:
        with pytest.raises(ValueError, match=words):
            call()
