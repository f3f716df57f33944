"""Merging: refused, static with a warning, exact in static mode, calibrated; and the gap the static merge makes."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from peft import PeftModel, get_peft_model
from torch import Tensor, nn

from lora_anl import (
    AuroraConfig,
    AuroraLinear,
    StaticMergeWarning,
    calibrated_delta_weight,
    measure_merge_gap,
    merge_calibrated,
)
from nips_common.testing.tiny_models import LLAMA, PLAIN, TINY_MODELS, TinyModel

STATIC: dict[str, Any] = {"merge_policy": "static"}


def adapted(tiny: TinyModel = PLAIN, **options: Any) -> PeftModel:
    torch.manual_seed(0)
    config = AuroraConfig(target_modules=list(tiny.target_modules), **{"init_weights": False, **options})
    return get_peft_model(tiny.build(), config)


def layers(model: nn.Module) -> list[AuroraLinear]:
    return [module for module in model.modules() if isinstance(module, AuroraLinear)]


def state(model: nn.Module) -> dict[str, Tensor]:
    return {key: value.clone() for key, value in model.state_dict().items()}


def unchanged(model: nn.Module, before: dict[str, Tensor]) -> bool:
    return all(torch.equal(value, before[key]) for key, value in model.state_dict().items())


# refusal


@pytest.mark.parametrize("call", ["merge_adapter", "merge_and_unload"])
@pytest.mark.parametrize("tiny", TINY_MODELS, ids=lambda tiny: tiny.name)
def test_merging_a_dynamic_adapter_is_refused_before_any_layer_is_touched(tiny: TinyModel, call: str) -> None:
    model = adapted(tiny)
    before = state(model)
    with pytest.raises(
        ValueError, match=r"adapter 'default' is dynamic.*merge_policy='static'.*merge_calibrated"
    ) as caught:
        getattr(model, call)()
    assert "\n" not in str(caught.value)
    assert unchanged(model, before)
    assert not any(layer.merged for layer in layers(model))
    with pytest.raises(ValueError, match="is dynamic"):
        layers(model)[0].merge()
    assert unchanged(model, before)


def test_of_several_adapters_those_to_be_merged_decide() -> None:
    model = adapted()
    model.add_adapter("flat", AuroraConfig(target_modules=["lin0"], init_weights=False, forward_mode="static"))
    before = state(model)
    with pytest.raises(ValueError, match="'default' is dynamic"):
        model.merge_adapter(["flat", "default"])
    assert unchanged(model, before)
    model.merge_adapter(["flat"])
    assert [layer.merged_adapters for layer in layers(model)] == [["flat"], []]


# the paper's merge


def test_the_static_merge_of_a_dynamic_adapter_warns_once_and_changes_the_function() -> None:
    model = adapted(LLAMA, **STATIC)
    apart = LLAMA.output(model)
    clean = [layer.weight.clone() for layer in layers(model)]
    deltas = [layer.get_delta_weight("default") for layer in layers(model)]
    with pytest.warns(StaticMergeWarning, match="'default'.*another function.*measure_merge_gap") as caught:
        model.merge_adapter()
    assert len(caught) == 1
    for layer, weight, delta in zip(layers(model), clean, deltas, strict=True):
        assert (layer.weight - (weight + delta)).abs().max() <= 1e-7
    assert (LLAMA.output(model) - apart).abs().max() > 1e-2
    model.unmerge_adapter()
    assert all(torch.equal(layer.weight, weight) for layer, weight in zip(layers(model), clean, strict=True))
    with pytest.warns(StaticMergeWarning):
        layers(model)[0].merge()


def test_the_static_merge_applies_sigma_to_columns_not_rows() -> None:
    layer = layers(adapted(r=3, **STATIC))[0]
    down, up, sigma = layer.adapter_weights("default")
    columns = torch.stack([sigma(down[:, i]) for i in range(12)], dim=1)
    expected = layer.scaling["default"] * up @ columns
    assert (layer.get_delta_weight("default") - expected).abs().max() <= 1e-6


def test_a_static_adapter_merges_silently_and_exactly() -> None:
    model = adapted(LLAMA, forward_mode="static")
    apart = LLAMA.output(model)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        merged = model.merge_and_unload(safe_merge=True)
    assert (LLAMA.output(merged) - apart).abs().max() <= 1e-5


def test_a_merge_that_was_switched_off_comes_back_as_it_was() -> None:
    model = adapted(**STATIC)
    clean = PLAIN.output(PLAIN.build())
    with pytest.warns(StaticMergeWarning):
        model.merge_adapter()
    merged = PLAIN.output(model)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with model.disable_adapter():
            assert torch.equal(PLAIN.output(model), clean)
        assert all(layer.merged for layer in layers(model))
        assert torch.equal(PLAIN.output(model), merged)
        model.unmerge_adapter()
    assert not torch.equal(PLAIN.output(model), merged)


def test_a_merge_does_not_come_back_for_another_adapter() -> None:
    model = adapted(**STATIC)
    model.add_adapter("other", AuroraConfig(target_modules=["lin0"], init_weights=False))
    with pytest.warns(StaticMergeWarning):
        model.merge_adapter()
    model.base_model.disable_adapter_layers()
    model.set_adapter("other")
    model.base_model.enable_adapter_layers()
    assert not any(layer.merged for layer in layers(model))


# the calibrated merge


@pytest.mark.parametrize("options", [{}, {"spline_mode": "per_channel", "r": 4}], ids=["pooled", "per-channel"])
def test_the_calibrated_weight_is_the_ridge_solution(options: dict[str, Any]) -> None:
    model = adapted(**options).double()
    layer, eps = layers(model)[0], 0.3
    before, x = state(model), torch.randn(40, 12, dtype=torch.float64)
    delta = calibrated_delta_weight(layer, x, eps)
    assert unchanged(model, before)
    # the same ridge regression by least squares on inputs extended by sqrt(eps) I
    y = layer.adapter_output("default", x)
    rows = torch.cat([x, eps**0.5 * torch.eye(12, dtype=torch.float64)])
    targets = torch.cat([y, torch.zeros(12, 24, dtype=torch.float64)])
    expected = torch.linalg.lstsq(rows, targets).solution.T
    assert (delta - expected).abs().max() <= 1e-9
    assert calibrated_delta_weight(layer, x.view(4, 10, 12), eps, "default").equal(delta)


def test_no_linear_map_is_nearer_than_the_calibrated_one() -> None:
    layer, x = layers(adapted())[0], torch.randn(300, 12)
    y = layer.adapter_output("default", x).detach()
    error = lambda delta: float((y - x @ delta.T).square().sum())
    best = calibrated_delta_weight(layer, x)
    assert error(best) < error(layer.get_delta_weight("default"))
    for seed in range(5):
        nudge = torch.randn(best.shape, generator=torch.Generator().manual_seed(seed))
        assert error(best) < error(best + 0.01 * nudge)


def test_a_static_adapter_is_calibrated_to_itself() -> None:
    layer = layers(adapted(forward_mode="static").double())[0]
    x = torch.randn(50, 12, dtype=torch.float64)
    assert (calibrated_delta_weight(layer, x, 0) - layer.get_delta_weight("default")).abs().max() <= 1e-10


@pytest.mark.parametrize("tiny", TINY_MODELS, ids=lambda tiny: tiny.name)
def test_a_calibrated_merge_is_nearer_than_the_static_one(tiny: TinyModel) -> None:
    apart = tiny.output(adapted(tiny))
    with pytest.warns(StaticMergeWarning):
        static = adapted(tiny, **STATIC).merge_and_unload()
    batches: list[Any] = [dict(tiny.inputs)]
    model = adapted(tiny).train()
    calibrated = merge_calibrated(model, batches)
    assert not layers(calibrated)
    assert calibrated.state_dict().keys() == tiny.build().state_dict().keys()
    error = lambda merged: float((tiny.output(merged.eval()) - apart).norm())
    assert error(calibrated) < error(static)


def test_a_calibrated_merge_of_conv1d_and_of_a_saved_head() -> None:
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    base = GPT2LMHeadModel(GPT2Config(n_embd=8, n_layer=1, n_head=2, vocab_size=64, n_positions=32)).eval()
    config = AuroraConfig(target_modules=["c_attn"], modules_to_save=["ln_f"], init_weights=False)
    model = get_peft_model(base, config)
    model.base_model.model.transformer.ln_f.modules_to_save["default"].bias.data += 1
    ids = torch.randint(64, (8, 16))
    apart = model(ids).logits
    merged = merge_calibrated(model, [{"input_ids": ids}])
    assert (merged.transformer.ln_f.bias == 1).all()
    assert (merged(ids).logits - apart).norm() < 0.5 * (apart - apart.mean()).norm()


def test_the_named_adapter_is_calibrated_as_it_runs_alone() -> None:
    alone = merge_calibrated(adapted(), [PLAIN.inputs["x"]])
    model = adapted()
    model.add_adapter("other", AuroraConfig(target_modules=["lin0"], init_weights=False))
    model.base_model.set_adapter(["default", "other"])
    with pytest.raises(ValueError, match=r"adapter_name must say.*default, other"):
        merge_calibrated(model, [PLAIN.inputs["x"]])
    merged = merge_calibrated(model, [PLAIN.inputs["x"]], adapter_name="default")
    assert torch.equal(merged.lin0.weight, alone.lin0.weight)
    assert torch.equal(merged.lin1.weight, alone.lin1.weight)


def test_calibration_refuses_what_it_cannot_use() -> None:
    model = adapted()
    layer, before = layers(model)[0], state(model)
    for call, words in [
        (lambda: calibrated_delta_weight(layer, torch.zeros(0, 12)), "at least one row"),
        (lambda: calibrated_delta_weight(layer, torch.zeros(3, 11)), r"in_features=12\), got shape \(3, 11\)"),
        (lambda: calibrated_delta_weight(layer, torch.zeros(12)), r"got shape \(12,\)"),
        (lambda: calibrated_delta_weight(layer, torch.randn(5, 12), 0), "5 inputs do not span in_features=12"),
        (lambda: calibrated_delta_weight(layer, torch.randn(5, 12), -1), "eps.*at least 0, got -1"),
        (lambda: calibrated_delta_weight(layer, torch.randn(5, 12), adapter_name="x"), "no adapter 'x', only default"),
        (lambda: merge_calibrated(model, []), "at least one row"),
        (lambda: merge_calibrated(model, [PLAIN.inputs["x"]], adapter_name="x"), "no adapter 'x', only default"),
        (lambda: merge_calibrated(model, [PLAIN.inputs["x"]], float("nan")), "eps.*nan"),
        (lambda: merge_calibrated(PLAIN.build(), [PLAIN.inputs["x"]]), "AuroraConfig, got a MLP"),
    ]:
        with pytest.raises(ValueError, match=words):
            call()
    assert unchanged(model, before)
    assert not any(layer._forward_pre_hooks for layer in layers(model))


# the gap


def test_the_gap_is_what_the_merge_changes() -> None:
    for tiny in TINY_MODELS:
        model = adapted(tiny, **STATIC)
        before, modes = state(model), [module.training for module in model.modules()]
        gap = measure_merge_gap(model, [dict(tiny.inputs), dict(tiny.inputs)])
        assert unchanged(model, before)
        assert [module.training for module in model.modules()] == modes
        assert not any(layer.merged or layer.disable_adapters for layer in layers(model))
        apart, base = tiny.output(model.eval()).double(), tiny.output(tiny.build()).double()
        with pytest.warns(StaticMergeWarning):
            merged = tiny.output(model.merge_and_unload()).double()
        change = (apart - merged).norm()
        assert gap.keys() == {"relative_gap", "relative_output_change", "max_abs_change"}
        assert gap["relative_gap"] == pytest.approx(float(change / (apart - base).norm()), rel=1e-3)
        assert gap["relative_output_change"] == pytest.approx(float(change / apart.norm()), rel=1e-3)
        assert gap["max_abs_change"] == pytest.approx(float((apart - merged).abs().max()), rel=1e-3)


def test_a_static_or_untrained_adapter_has_no_gap() -> None:
    x = PLAIN.inputs["x"]
    assert set(measure_merge_gap(adapted(forward_mode="static"), [x]).values()) == {0.0}
    assert set(measure_merge_gap(adapted(init_weights=True), [x]).values()) == {0.0}


def test_batches_may_be_tensors_tuples_or_mappings_and_the_model_a_layer() -> None:
    x, model = PLAIN.inputs["x"], adapted()
    gaps = [measure_merge_gap(model, batches) for batches in ([x], [(x, 1)], [[x]], [{"x": x}], x.split(1))]
    assert all(gap == pytest.approx(gaps[0], rel=1e-6) for gap in gaps)
    assert measure_merge_gap(layers(model)[0], [x])["relative_gap"] > 0


def test_the_gap_of_a_model_without_a_head_is_that_of_its_hidden_states() -> None:
    from transformers import RobertaConfig, RobertaModel

    torch.manual_seed(0)
    base = RobertaModel(RobertaConfig(hidden_size=16, num_hidden_layers=1, num_attention_heads=2, vocab_size=64))
    model = get_peft_model(base, AuroraConfig(init_weights=False))
    assert measure_merge_gap(model, [{"input_ids": torch.tensor([[5, 6, 7]])}])["relative_gap"] > 0


def test_the_gap_of_a_named_adapter_is_the_one_it_has_alone() -> None:
    model, x = adapted(), PLAIN.inputs["x"]
    alone = measure_merge_gap(model, [x])
    model.add_adapter("other", AuroraConfig(target_modules=["lin1"], init_weights=False))
    model.base_model.set_adapter(["default", "other"])
    assert measure_merge_gap(model, [x]) != pytest.approx(alone)
    assert measure_merge_gap(model, [x], "default") == pytest.approx(alone)
    assert layers(model)[1].active_adapters == ["default", "other"]


def test_the_gap_refuses_what_it_cannot_measure() -> None:
    model, x = adapted(**STATIC), PLAIN.inputs["x"]
    for call, words in [
        (lambda: measure_merge_gap(PLAIN.build(), [x]), "MLP has no AuroRA layer"),
        (lambda: measure_merge_gap(model, [x], "nobody"), "no adapter 'nobody', only default"),
        (lambda: measure_merge_gap(model, []), "no batch"),
        (lambda: measure_merge_gap(model, ["text"]), "tensor, a tuple of tensors or a mapping, got str"),
    ]:
        with pytest.raises(ValueError, match=words):
            call()
    with pytest.warns(StaticMergeWarning):
        model.merge_adapter()
    with pytest.raises(ValueError, match="merged adapters default; unmerge"):
        measure_merge_gap(model, [x])
