"""Model folders: both namings, strictness, and what is told of a folder that does not fit."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from toto_ts import Toto


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("labels", [False, True])
def test_a_saved_model_is_loaded_as_it_was(
    make_model: Any, series: Tensor, tmp_path: Path, fused: bool, labels: bool
) -> None:
    model = make_model(labels=labels)
    model.save_pretrained(tmp_path / "model", fused_names=fused)
    loaded = Toto.from_pretrained(tmp_path / "model")
    assert loaded.config == model.config
    assert not loaded.training
    assert loaded.state_dict().keys() == model.state_dict().keys()
    assert all(parameter.requires_grad for parameter in loaded.parameters())
    assert torch.equal(loaded(series).distribution.mean, model(series).distribution.mean)


def test_fused_names_are_those_of_the_fused_kernels(make_model: Any, tmp_path: Path) -> None:
    make_model().save_pretrained(tmp_path, fused_names=True)
    names = set(load_file(tmp_path / "model.safetensors"))
    layer = "model.transformer.layers.0.mlp"
    assert {f"{layer}.0.w12.weight", f"{layer}.0.w3.bias"} <= names
    assert not {f"{layer}.0.weight", f"{layer}.2.bias"} & names


def test_saving_keeps_what_else_lies_in_the_folder(make_model: Any, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    make_model().save_pretrained(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["config.json", "model.safetensors", "notes.txt"]


def test_a_dtype_can_be_chosen_and_is_else_the_stored_one(make_model: Any, tmp_path: Path) -> None:
    make_model().to(torch.bfloat16).save_pretrained(tmp_path)
    assert {p.dtype for p in Toto.from_pretrained(tmp_path).parameters()} == {torch.bfloat16}
    assert {p.dtype for p in Toto.from_pretrained(tmp_path, dtype=torch.float32).parameters()} == {torch.float32}


@pytest.fixture
def wrong_folder(make_model: Any, tmp_path: Path) -> Path:
    """A missing, an unknown and a wrongly shaped tensor."""
    make_model().save_pretrained(tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    del tensors["model.unembed.bias"]
    tensors["model.surplus"] = torch.zeros(1)
    tensors["model.patch_embed.projection.bias"] = torch.zeros(31)
    save_file(tensors, tmp_path / "model.safetensors")
    return tmp_path


def test_every_tensor_that_does_not_fit_is_named_at_once(wrong_folder: Path) -> None:
    with pytest.raises(ValueError) as caught:
        Toto.from_pretrained(wrong_folder)
    for word in ("model.unembed.bias", "model.surplus", "projection.bias is (31,), must be (32,)", "model.safetensors"):
        assert word in str(caught.value)


def test_a_lenient_load_says_what_it_left_out(
    wrong_folder: Path, make_model: Any, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "toto_ts"):
        loaded = Toto.from_pretrained(wrong_folder, strict=False)
    assert "model.unembed.bias" in caplog.text
    assert "model.surplus" in caplog.text
    assert torch.equal(loaded.model.unembed.weight, make_model().model.unembed.weight)
    assert loaded.model.unembed.bias.isfinite().all()


def test_one_label_alone_is_a_missing_tensor(make_model: Any, tmp_path: Path) -> None:
    make_model(labels=True).save_pretrained(tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    del tensors["model.exogenous_variate_label"]
    save_file(tensors, tmp_path / "model.safetensors")
    with pytest.raises(ValueError, match=r"missing: model\.exogenous_variate_label"):
        Toto.from_pretrained(tmp_path)


def test_a_tensor_under_both_names_is_refused(make_model: Any, tmp_path: Path) -> None:
    make_model().save_pretrained(tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    layer = "model.transformer.layers.0.mlp.0"
    tensors[f"{layer}.w12.bias"] = tensors[f"{layer}.bias"].clone()
    save_file(tensors, tmp_path / "model.safetensors")
    with pytest.raises(ValueError, match="both its plain and its fused name"):
        Toto.from_pretrained(tmp_path)


def test_a_truncated_file_is_named(make_model: Any, tmp_path: Path) -> None:
    make_model().save_pretrained(tmp_path)
    file = tmp_path / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-20])
    with pytest.raises(ValueError, match=r"model\.safetensors: truncated or damaged"):
        Toto.from_pretrained(tmp_path)


def test_pickles_are_never_loaded(make_model: Any, tmp_path: Path) -> None:
    make_model().save_pretrained(tmp_path)
    (tmp_path / "model.safetensors").rename(tmp_path / "best.ckpt")
    with pytest.raises(FileNotFoundError, match=r"best\.ckpt could run code"):
        Toto.from_pretrained(tmp_path)


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no such folder"):
        Toto.from_pretrained(tmp_path / "nothing")
    with pytest.raises(FileNotFoundError, match=r"config\.json"):
        Toto.from_pretrained(tmp_path)


def test_a_hub_id_that_cannot_be_had_offline_is_told_in_one_line() -> None:
    pytest.importorskip("huggingface_hub")
    with pytest.raises(FileNotFoundError) as caught:
        Toto.from_pretrained("nobody/nothing")
    assert str(caught.value).startswith("nobody/nothing: no such folder, and not to be had as a hub id")
    assert "\n" not in str(caught.value)
