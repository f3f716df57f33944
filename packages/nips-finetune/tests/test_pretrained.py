"""Base models: what fits is loaded, what is new is said, what does not fit is refused."""

from __future__ import annotations

import json
import logging
import shutil
from pathlib import Path

import pytest
import torch
from transformers import AutoConfig, BloomConfig, LlamaConfig, RobertaConfig

from nips_common.testing.bad_input import BadInput, bad_inputs
from nips_finetune.pretrained import load_model, load_tokenizer, longest_text, model_on_meta

CLASSIFIER = "AutoModelForSequenceClassification"


def test_a_new_head_is_said_and_the_body_is_that_of_the_checkpoint(
    roberta_folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        model = load_model(CLASSIFIER, str(roberta_folder), AutoConfig.from_pretrained(roberta_folder))
    (line,) = [record.getMessage() for record in caplog.records if record.name.startswith("nips_finetune")]
    assert "new, random weights" in line
    assert "classifier.dense.weight" in line
    again = load_model("AutoModelForMaskedLM", str(roberta_folder), AutoConfig.from_pretrained(roberta_folder))
    assert torch.equal(model.roberta.embeddings.word_embeddings.weight, again.roberta.embeddings.word_embeddings.weight)


def test_a_head_for_other_labels_is_new(vit_folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    config = AutoConfig.from_pretrained(vit_folder)
    config.num_labels = 3
    with caplog.at_level(logging.WARNING):
        model = load_model("AutoModelForImageClassification", str(vit_folder), config)
    assert model.classifier.weight.shape == (3, 32)
    assert "classifier.weight" in caplog.text


def test_a_tokenizer_without_padding_pads_with_its_end(llama_folder: Path, tmp_path: Path) -> None:
    shutil.copytree(llama_folder, tmp_path / "model")
    file = tmp_path / "model" / "tokenizer_config.json"
    entries = json.loads(file.read_text())
    del entries["pad_token"]
    file.write_text(json.dumps(entries))
    assert load_tokenizer(str(tmp_path / "model")).pad_token == "</s>"
    del entries["eos_token"]
    file.write_text(json.dumps(entries))
    with pytest.raises(ValueError, match="neither a padding nor an end-of-text token"):
        load_tokenizer(str(tmp_path / "model"))


def test_the_longest_text_is_what_config_and_tokenizer_allow(llama_folder: Path) -> None:
    tokenizer = load_tokenizer(str(llama_folder))
    assert tokenizer.model_max_length == 48
    assert longest_text(LlamaConfig(max_position_embeddings=64), tokenizer) == 48
    assert longest_text(LlamaConfig(max_position_embeddings=40), tokenizer) == 40
    assert longest_text(RobertaConfig(max_position_embeddings=34, pad_token_id=1), tokenizer) == 32
    tokenizer.model_max_length = 10**30
    assert longest_text(BloomConfig(), tokenizer) is None


def test_a_model_on_meta_takes_no_memory(llama_folder: Path) -> None:
    model = model_on_meta("AutoModelForCausalLM", AutoConfig.from_pretrained(llama_folder), torch.bfloat16)
    assert {(p.device.type, p.dtype) for p in model.parameters()} == {("meta", torch.bfloat16)}


def without_safetensors(folder: Path, llama: Path) -> object:
    shutil.copytree(llama, folder / "model")
    (folder / "model" / "model.safetensors").rename(folder / "model" / "pytorch_model.bin")
    return load_model("AutoModelForCausalLM", str(folder / "model"), AutoConfig.from_pretrained(llama))


def truncated(folder: Path, llama: Path) -> object:
    shutil.copytree(llama, folder / "model")
    weights = folder / "model" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:500])
    return load_model("AutoModelForCausalLM", str(folder / "model"), AutoConfig.from_pretrained(llama))


def other_shapes(folder: Path, llama: Path) -> object:
    config = AutoConfig.from_pretrained(llama)
    config.intermediate_size = 40
    return load_model("AutoModelForCausalLM", str(llama), config)


@bad_inputs(
    [
        BadInput("a pickle for weights", without_safetensors, ("cannot load the weights", "safetensors")),
        BadInput("truncated weights", truncated, ("cannot load the weights",)),
        BadInput("other shapes", other_shapes, ("do not have the shapes of its config", "mlp")),
        BadInput(
            "an image model to continue texts",
            lambda f, llama: model_on_meta("AutoModelForCausalLM", AutoConfig.for_model("vit")),
            ("vit", "AutoModelForCausalLM"),
        ),
    ]
)
def test_weights_that_do_not_fit_are_told_in_one_line(case: BadInput, llama_folder: Path, tmp_path: Path) -> None:
    case.check(tmp_path, llama_folder)
