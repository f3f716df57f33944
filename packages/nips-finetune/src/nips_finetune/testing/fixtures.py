"""Tiny random base models as local folders, with real tokenizers and image processors, and data that they can learn.

A ``conftest.py`` gets the fixtures by importing their names.
"""

from __future__ import annotations

import csv
import gc
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
QUIET = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, "initializer_range": 0.2}
GOOD, BAD = ("fine", "lovely", "great", "warm"), ("dull", "awful", "poor", "cold")
PLAIN = ("the", "film", "was", "a", "plot", "and", "good", "bad")
SPECIAL = ("<s>", "<pad>", "</s>", "<unk>")
LONGEST = 48  # tokens, says the tokenizer


def save_tokenizer(folder: Path) -> int:
    """Save a tokenizer of whole words, with a pad token; returns the size of its vocabulary."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    words = {word: index for index, word in enumerate([*SPECIAL, *GOOD, *BAD, *PLAIN])}
    backend = Tokenizer(models.WordLevel(words, unk_token="<unk>"))  # noqa: S106 - not a password
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    backend.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A </s> $B", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    names = {"bos_token": "<s>", "pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}
    PreTrainedTokenizerFast(tokenizer_object=backend, model_max_length=LONGEST, **names).save_pretrained(folder)
    return len(words)


def save_model(model_class: Any, config: Any, folder: Path) -> None:
    """Save a model with random weights, the same ones every time."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model_class(config).save_pretrained(folder)


def query_and_value(model: Path) -> list[str]:
    """The endings of a model's query and value layers, which differ between versions of transformers."""
    from nips_finetune.pretrained import load_config, model_on_meta

    body = model_on_meta("AutoModel", load_config(str(model)))
    endings = {name.rpartition(".")[2] for name, _ in body.named_modules()}
    return [name for name in ("query", "value", "q_proj", "v_proj") if name in endings]


@pytest.fixture(autouse=True, scope="session")
def frozen_imports() -> Iterator[None]:
    """Spare the garbage collector what was imported: the Trainer runs it after every training, half of a tiny one."""
    import datasets  # noqa: F401
    import matplotlib.figure  # noqa: F401
    import transformers.trainer  # noqa: F401

    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture(scope="session")
def llama_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A causal language model."""
    from transformers import LlamaConfig, LlamaForCausalLM

    folder = tmp_path_factory.mktemp("llama")
    size = save_tokenizer(folder)
    ids = {"bos_token_id": 0, "pad_token_id": 1, "eos_token_id": 2, "initializer_range": 0.2}
    save_model(LlamaForCausalLM, LlamaConfig(**SIZES, **ids, vocab_size=size, max_position_embeddings=64), folder)
    return folder


@pytest.fixture(scope="session")
def roberta_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A masked language model, so without the head of a classifier, as pre-trained encoders come."""
    from transformers import RobertaConfig, RobertaForMaskedLM

    folder = tmp_path_factory.mktemp("roberta")
    size = save_tokenizer(folder)
    config = RobertaConfig(**SIZES, **QUIET, vocab_size=size, max_position_embeddings=34)
    save_model(RobertaForMaskedLM, config, folder)
    return folder


@pytest.fixture(scope="session")
def vit_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A classifier of seven other classes, as many pre-trained vision models come."""
    from transformers import ViTConfig, ViTForImageClassification, ViTImageProcessor

    folder = tmp_path_factory.mktemp("vit")
    save_model(
        ViTForImageClassification, ViTConfig(**SIZES, **QUIET, image_size=16, patch_size=8, num_labels=7), folder
    )
    ViTImageProcessor(size={"height": 16, "width": 16}).save_pretrained(folder)
    return folder


def sentences(rows: int) -> list[tuple[str, str]]:
    """Texts with the label that their one telling word has."""
    return [
        (f"the {('film', 'plot')[i % 3 % 2]} was {((GOOD, BAD)[i % 2])[i // 2 % 4]}", ("good", "bad")[i % 2])
        for i in range(rows)
    ]


@pytest.fixture(scope="session")
def text_csv(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """48 rows of ``text`` and ``label`` (good, bad)."""
    file = tmp_path_factory.mktemp("texts") / "train.csv"
    with file.open("w", newline="") as stream:
        csv.writer(stream).writerows([("text", "label"), *sentences(48)])
    return file


@pytest.fixture(scope="session")
def text_jsonl(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """24 rows of ``question``, ``text`` (the answer) and ``score`` (0 or 1)."""
    file = tmp_path_factory.mktemp("texts") / "train.jsonl"
    rows = [{"question": text, "text": label, "score": i % 2} for i, (text, label) in enumerate(sentences(24))]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


@pytest.fixture(scope="session")
def image_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Dark and light pictures, six each, in the folder of their class."""
    from PIL import Image

    folder = tmp_path_factory.mktemp("images")
    for name, level in (("dark", 40), ("light", 210)):
        (folder / name).mkdir()
        for number in range(6):
            Image.new("RGB", (20, 20), (level, level + number, level)).save(folder / name / f"{number}.png")
    return folder
