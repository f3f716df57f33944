"""Models and tokenizers by name: what is none, is damaged or looks ahead is refused in one line that names it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import BertConfig, BertLMHeadModel, PreTrainedModel, T5Config, T5ForConditionalGeneration
from transformers.utils import logging as hf_logging

from bigram_subnet.pretrained import load_config, load_model, load_tokenizer

_SMALL: dict[str, Any] = {
    "vocab_size": 40, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 24,
    "max_position_embeddings": 32,
}  # fmt: skip


def test_a_model_of_any_family_loads_without_a_word(
    any_model: PreTrainedModel, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    any_model.save_pretrained(tmp_path)
    capfd.readouterr()
    loaded = load_model(str(tmp_path))
    assert capfd.readouterr().err == ""
    ids = torch.arange(8)[None]
    assert torch.equal(loaded(ids).logits, any_model(ids).logits)
    assert load_model(str(tmp_path), torch.bfloat16).dtype == torch.bfloat16


@pytest.mark.parametrize("is_decoder", [False, True])
def test_an_encoder_is_no_causal_language_model(is_decoder: bool, tmp_path: Path) -> None:
    torch.manual_seed(0)
    BertLMHeadModel(BertConfig(**_SMALL, is_decoder=is_decoder)).save_pretrained(tmp_path)
    if is_decoder:
        assert load_model(str(tmp_path)).config.is_decoder
    else:
        with pytest.raises(ValueError, match=r"bert is no causal language model: .* depends on later tokens"):
            load_model(str(tmp_path))


def test_a_model_of_another_task_is_named_by_its_family(tmp_path: Path) -> None:
    config = T5Config(vocab_size=40, d_model=16, d_kv=4, d_ff=24, num_layers=1, num_heads=4)
    T5ForConditionalGeneration(config).save_pretrained(tmp_path)
    for load in (load_config, load_model):
        with pytest.raises(ValueError, match=f"^{tmp_path}: t5 is no causal language model$"):
            load(str(tmp_path))


@pytest.mark.parametrize("name", ["nomodel", "nosuch/model"])
def test_a_name_that_is_nowhere_is_told(name: str) -> None:
    for load in (load_config, load_model):
        with pytest.raises(OSError, match=f"^{name}: no such folder, and no model of that id on the hub or in its c"):
            load(name)
    with pytest.raises(OSError, match="and no model of that id, revision step4, on the hub"):
        load_model(name, revision="step4")
    with pytest.raises(OSError, match=f"^{name}: no such folder, and no tokenizer of that id on the hub"):
        load_tokenizer(name)


def test_a_revision_of_a_folder_is_refused(model_folder: Path) -> None:
    with pytest.raises(ValueError, match=r"--revision step400 is for hub ids, but .* is a local folder"):
        load_model(str(model_folder), revision="step400")


def test_damaged_and_incomplete_models_are_refused(model_folder: Path, tmp_path: Path) -> None:
    for name in ("config.json", "model.safetensors"):
        (tmp_path / name).write_bytes((model_folder / name).read_bytes())
    weights = tmp_path / "model.safetensors"
    tensors = load_file(model_folder / "model.safetensors")  # mapped, so never the file that is written
    first = next(name for name in tensors if name.endswith("dense_4h_to_h.weight"))
    save_file({name: each for name, each in tensors.items() if name != first}, weights, metadata={"format": "pt"})
    with pytest.raises(ValueError, match=f"weights are missing and would be random: 1, among them {first}"):
        load_model(str(tmp_path))
    save_file(tensors | {first: torch.zeros(3, 3)}, weights, metadata={"format": "pt"})
    with pytest.raises(ValueError, match=f"^{tmp_path}: the model in this folder cannot be loaded"):
        load_model(str(tmp_path))
    weights.write_bytes(weights.read_bytes()[:1000])
    with pytest.raises(ValueError, match=f"^{tmp_path}: the model in this folder cannot be loaded"):
        load_model(str(tmp_path))
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(ValueError, match=f"^{tmp_path}: the model in this folder cannot be loaded"):
        load_model(str(tmp_path))


def test_loading_leaves_the_librarys_settings_as_they_were(model_folder: Path) -> None:
    before = hf_logging.get_verbosity(), hf_logging.is_progress_bar_enabled()
    load_model(str(model_folder))
    with pytest.raises(OSError, match="nomodel"):
        load_model("nomodel")
    assert (hf_logging.get_verbosity(), hf_logging.is_progress_bar_enabled()) == before
