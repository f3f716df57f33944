"""Saved adapters: the constants of a calibrated start go with them, and what does not fit is named."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
from peft import PeftModel, get_peft_model, set_peft_model_state_dict
from safetensors.torch import load_file, save_file

import ridgelora.layer
from nips_common.testing.tiny_models import LLAMA, PLAIN, TinyModel
from ridgelora import RidgeLoraConfig

each_loading = pytest.mark.parametrize("low_cpu_mem_usage", [False, True], ids=["", "low-memory"])


def saved(folder: Path, tiny: TinyModel = PLAIN, **options: Any) -> PeftModel:
    torch.manual_seed(0)
    model = get_peft_model(tiny.build(), RidgeLoraConfig(r=3, target_modules=list(tiny.target_modules), **options))
    for name, parameter in model.named_parameters():
        if "ridgelora_" in name:
            parameter.data += 0.1 * torch.randn_like(parameter)
    model.save_pretrained(folder)
    return model.eval()


def edit_config(folder: Path, **changes: Any) -> None:
    path = folder / "adapter_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def edit_weights(folder: Path, *, drop: str = "") -> None:
    path = folder / "adapter_model.safetensors"
    save_file({key: value for key, value in load_file(path).items() if drop not in key}, path)


@each_loading
@pytest.mark.parametrize("tiny", [PLAIN, LLAMA], ids=lambda tiny: tiny.name)
@pytest.mark.parametrize("options", [{"init_weights": "gaussian_calibrated"}, {"connection": "parallel"}], ids=str)
def test_every_kind_of_adapter_survives_its_file(
    tiny: TinyModel, options: dict[str, str], low_cpu_mem_usage: bool, tmp_path: Path
) -> None:
    model = saved(tmp_path, tiny, **options)
    torch.manual_seed(1)
    loaded = PeftModel.from_pretrained(tiny.build(), tmp_path, low_cpu_mem_usage=low_cpu_mem_usage)
    assert (tiny.output(loaded) - tiny.output(model)).abs().max() <= 1e-6


def test_transformers_loads_the_constants_too(tmp_path: Path) -> None:
    model = saved(tmp_path, LLAMA, init_weights="gaussian_calibrated")
    native: Any = LLAMA.build()
    native.load_adapter(str(tmp_path))
    assert (LLAMA.output(native) - LLAMA.output(model)).abs().max() <= 1e-6


@pytest.mark.parametrize("init", ["exact", "gaussian", "gaussian_calibrated"])
def test_loading_with_little_memory_draws_and_decomposes_nothing(init: str, tmp_path: Path) -> None:
    model = saved(tmp_path, init_weights=init)
    state = torch.random.get_rng_state()
    with mock.patch.object(ridgelora.layer, "ridge_init", side_effect=AssertionError("drawn")) as draw:
        loaded = PeftModel.from_pretrained(PLAIN.build(), tmp_path, low_cpu_mem_usage=True)
    assert not draw.called
    assert torch.equal(torch.random.get_rng_state(), state)
    assert (PLAIN.output(loaded) - PLAIN.output(model)).abs().max() <= 1e-6


@each_loading
def test_missing_constants_are_named(low_cpu_mem_usage: bool, tmp_path: Path) -> None:
    saved(tmp_path, init_weights="gaussian_calibrated")
    edit_weights(tmp_path, drop="offset")
    with pytest.raises(
        ValueError, match=r"lin0': the checkpoint lacks ridgelora_offset, which init_weights='gaussian_"
    ):
        PeftModel.from_pretrained(PLAIN.build(), tmp_path, low_cpu_mem_usage=low_cpu_mem_usage)


@each_loading
def test_an_adapter_of_another_start_is_named(low_cpu_mem_usage: bool, tmp_path: Path) -> None:
    saved(tmp_path, init_weights="exact")
    edit_config(tmp_path, init_weights="gaussian_calibrated")
    with pytest.raises(ValueError, match="lacks ridgelora_offset, which init_weights='gaussian_calibrated' needs"):
        PeftModel.from_pretrained(PLAIN.build(), tmp_path, low_cpu_mem_usage=low_cpu_mem_usage)
    saved(tmp_path, init_weights="gaussian_calibrated")
    edit_config(tmp_path, init_weights="exact")
    with pytest.raises(ValueError, match=r"holds ridgelora_offset.*but the config says init_weights='exact'"):
        PeftModel.from_pretrained(PLAIN.build(), tmp_path, low_cpu_mem_usage=low_cpu_mem_usage)


@pytest.mark.parametrize("part", ["ridgelora_sigma", "ridgelora_lambda", "ridgelora_A"])
def test_a_missing_part_is_named(part: str, tmp_path: Path) -> None:
    saved(tmp_path)
    edit_weights(tmp_path, drop=part)
    with pytest.raises(ValueError, match=f"layer 'base_model.model.lin0': the checkpoint lacks {part}"):
        PeftModel.from_pretrained(PLAIN.build(), tmp_path)


def test_a_refused_checkpoint_changes_no_weight() -> None:
    model = get_peft_model(PLAIN.build(), RidgeLoraConfig(r=3, target_modules=["lin0"]))
    before = {key: value.clone() for key, value in model.state_dict().items()}
    weights = {"base_model.model.lin0.ridgelora_A": torch.zeros(3, 12)}
    with pytest.raises(ValueError, match="lacks ridgelora_B, ridgelora_lambda, ridgelora_sigma"):
        set_peft_model_state_dict(model, weights)
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())


def test_one_adapter_may_be_loaded_beside_another(tmp_path: Path) -> None:
    model = saved(tmp_path / "first")
    calibrated = saved(tmp_path / "second", init_weights="gaussian_calibrated")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.load_adapter(tmp_path / "second", "second")
    model.set_adapter("second")
    assert (PLAIN.output(model) - PLAIN.output(calibrated)).abs().max() <= 1e-6
    model.delete_adapter("second")
    assert not any("second" in key for key in model.state_dict())
