"""The ridge-squashing loss over a model: its mean, its subsets, and what it refuses."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest
import torch
from peft import PeftModel, get_peft_model
from torch import nn

from nips_common.testing.tiny_models import LLAMA, PLAIN, TinyModel
from ridgelora import RidgeLoraConfig, RidgeLoraLinear, ridge_squashing_loss, ridge_squashing_terms


def adapted(tiny: TinyModel = LLAMA, moved: bool = True, **options: Any) -> PeftModel:
    torch.manual_seed(0)
    model = get_peft_model(tiny.build(), RidgeLoraConfig(r=4, target_modules=list(tiny.target_modules), **options))
    if moved:
        move(model)
    return model


def move(model: nn.Module) -> None:
    for name, parameter in model.named_parameters():
        if "ridgelora_" in name:
            parameter.data += 0.1 * torch.randn_like(parameter)


def norms(model: nn.Module, adapter: str = "default") -> list[float]:
    found = []
    for layer in model.modules():
        if isinstance(layer, RidgeLoraLinear) and layer.has_adapter(adapter):
            lam, sigma, A, B = (weight.detach().double() for weight in layer.adapter_weights(adapter))
            X = torch.diag(lam * sigma - 1) + layer.scaling[adapter] * B @ A
            if (offset := layer.adapter_offset(adapter)) is not None:
                X[: len(offset)] += offset
            found.append(float(torch.linalg.svdvals(X).sum()))
    return found


@pytest.mark.parametrize("init", ["exact", "gaussian", "gaussian_calibrated"])
def test_it_is_the_mean_over_the_adapted_matrices(init: str) -> None:
    model = adapted(init_weights=init)
    loss = ridge_squashing_loss(model)
    assert loss.shape == ()
    assert float(loss) == pytest.approx(sum(norms(model)) / 4, rel=1e-5)
    loss.backward()
    for name, parameter in model.named_parameters():
        assert (parameter.grad is not None) == ("ridgelora_" in name)


@pytest.mark.parametrize("init", ["exact", "diagonal", "gaussian_calibrated"])
def test_it_is_zero_with_zero_gradients_where_the_adapter_is_the_identity(init: str) -> None:
    model = adapted(moved=False, init_weights=init)
    loss = ridge_squashing_loss(model)
    loss.backward()
    assert loss == 0
    assert not any(parameter.grad.any() for name, parameter in model.named_parameters() if "ridgelora_" in name)


def test_subsets_are_unbiased() -> None:
    model = adapted()
    whole = float(ridge_squashing_loss(model))
    seen: dict[tuple[str, str], float] = {}
    for seed in count():
        generator = torch.Generator().manual_seed(seed)
        terms = ridge_squashing_terms(model, max_modules=1, generator=generator)
        seen |= {key: float(norm.value) for key, norm in terms.items()}
        generator.manual_seed(seed)
        loss = ridge_squashing_loss(model, max_modules=1, generator=generator)
        assert float(loss) == pytest.approx(next(iter(seen[key] for key in terms)))
        if len(seen) == 4:
            break
    assert sum(seen.values()) / 4 == pytest.approx(whole)


def test_a_subset_holds_so_many_different_matrices() -> None:
    model = adapted()
    names = set(ridge_squashing_terms(model))
    for seed in range(10):
        drawn = ridge_squashing_terms(model, max_modules=3, generator=torch.Generator().manual_seed(seed))
        assert len(drawn) == 3
        assert set(drawn) < names
    assert set(ridge_squashing_terms(model, max_modules=9)) == names
    torch.manual_seed(3)
    first = list(ridge_squashing_terms(model, max_modules=2))
    torch.manual_seed(3)
    assert list(ridge_squashing_terms(model, max_modules=2)) == first


def test_each_term_says_how_it_was_computed() -> None:
    terms = ridge_squashing_terms(adapted())
    assert len(terms) == 4
    assert all(name.endswith(("q_proj", "v_proj")) and adapter == "default" for name, adapter in terms)
    assert {norm.route for norm in terms.values()} == {"svd"}
    assert {norm.route for norm in ridge_squashing_terms(adapted(), route="rational").values()} == {"rational"}
    assert {norm.route for norm in ridge_squashing_terms(adapted(moved=False)).values()} == {"low_rank"}


def test_adapters_are_chosen_by_name_or_by_being_active() -> None:
    model = adapted(PLAIN)
    model.add_adapter("other", RidgeLoraConfig(r=2, target_modules=["lin1"], init_weights="gaussian"))
    move(model)
    own, other = norms(model), norms(model, "other")
    assert float(ridge_squashing_loss(model)) == pytest.approx(sum(own) / 2, rel=1e-5)
    assert float(ridge_squashing_loss(model, "other")) == pytest.approx(other[0], rel=1e-5)
    model.base_model.set_adapter(["default", "other"])
    assert float(ridge_squashing_loss(model)) == pytest.approx((sum(own) + other[0]) / 3, rel=1e-5)


def test_a_merged_adapter_still_has_its_loss() -> None:
    model = adapted(PLAIN)
    loss = float(ridge_squashing_loss(model))
    model.merge_adapter()
    assert float(ridge_squashing_loss(model)) == loss


def test_what_has_no_loss_is_named() -> None:
    for call, words in [
        (lambda: ridge_squashing_loss(PLAIN.build()), "the model, a MLP, has no RidgeLoRA layer"),
        (lambda: ridge_squashing_loss(adapted(), "nobody"), "has the adapter 'nobody', only default"),
        (lambda: ridge_squashing_loss(adapted(), max_modules=0), "max_modules must be .* at least 1, got 0"),
        (lambda: ridge_squashing_loss(adapted(), max_modules=1.5), "max_modules must be a whole number.*1.5"),
        (lambda: ridge_squashing_loss(adapted(connection="parallel")), "q_proj' is parallel; the ridge-squashing"),
        (lambda: ridge_squashing_loss(adapted(), route="fast"), "route must be one of auto, svd.*'fast'"),
    ]:
        with pytest.raises(ValueError, match=words):
            call()


def test_a_layer_whose_adapter_is_not_finite_is_named() -> None:
    model = adapted(PLAIN)
    model.base_model.model.lin1.ridgelora_sigma["default"].data[0] = float("nan")
    with pytest.raises(ValueError, match=r"adapter 'default' of layer '.*lin1': the transform holds NaN"):
        ridge_squashing_loss(model)
