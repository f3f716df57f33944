"""Tiny real models of every family, made once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    Gemma2Config,
    GemmaConfig,
    GPT2Config,
    GPTNeoXConfig,
    LlamaConfig,
    MistralConfig,
    Olmo2Config,
    OlmoConfig,
    PreTrainedModel,
    Qwen2Config,
    Qwen3Config,
)

VOCABULARY = 40
_IDS: dict[str, Any] = {"bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 0}
_SEPARATE: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 4,
    "max_position_embeddings": 32,
    **_IDS,
}
CONFIGS: dict[str, Any] = {
    "gpt2": GPT2Config(vocab_size=VOCABULARY, n_positions=32, n_embd=16, n_layer=2, n_head=4, **_IDS),
    "gpt_neox": GPTNeoXConfig(
        vocab_size=VOCABULARY,
        hidden_size=16,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=32,
        **_IDS,
    ),
    "llama": LlamaConfig(**_SEPARATE),
    "qwen2": Qwen2Config(**_SEPARATE),
    "qwen3": Qwen3Config(**_SEPARATE),
    "mistral": MistralConfig(**_SEPARATE),
    "olmo": OlmoConfig(**_SEPARATE),
    "olmo2": Olmo2Config(**_SEPARATE),
    "gemma": GemmaConfig(**_SEPARATE),
    "gemma2": Gemma2Config(**_SEPARATE),
}
FUSED = ("gpt2", "gpt_neox")
GROUPED = tuple(family for family in CONFIGS if family not in FUSED)

MakeModel = Callable[..., PreTrainedModel]


def tiny_model(family: str, seed: int = 0) -> PreTrainedModel:
    """A model with weights large enough that every head and unit matters."""
    torch.manual_seed(seed)
    model: PreTrainedModel = AutoModelForCausalLM.from_config(CONFIGS[family]).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.ndim > 1:
                parameter.normal_(0, 0.3)
            elif name.endswith("bias"):
                parameter.normal_(0, 0.1)
    return model


@pytest.fixture
def make_model() -> MakeModel:
    return tiny_model


@pytest.fixture(params=list(CONFIGS))
def any_model(request: pytest.FixtureRequest) -> PreTrainedModel:
    return tiny_model(request.param)


@pytest.fixture(params=FUSED)
def fused_model(request: pytest.FixtureRequest) -> PreTrainedModel:
    return tiny_model(request.param)


@pytest.fixture
def ids() -> torch.Tensor:
    return torch.randint(0, VOCABULARY, (3, 9), generator=torch.Generator().manual_seed(1))


@pytest.fixture(scope="session")
def text_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Some 60 kB of English: docstrings of the standard library."""
    import argparse
    import asyncio
    import collections
    import decimal
    import doctest
    import pathlib
    import statistics
    import string
    import subprocess
    import tarfile
    import textwrap
    import unittest

    modules = (
        argparse, asyncio, collections, decimal, doctest, pathlib, statistics, string, subprocess, tarfile, textwrap,
        unittest,
    )  # fmt: skip
    found: dict[str, None] = {}
    for module in modules:
        for each in (module, *vars(module).values()):
            for documented in (each, *vars(each).values()) if isinstance(each, type) else (each,):
                if isinstance(text := getattr(documented, "__doc__", None), str):
                    found[text] = None
    path = tmp_path_factory.mktemp("text") / "docs.txt"
    path.write_text("\n".join(found), "utf-8")
    return path


@pytest.fixture(scope="session")
def model_folder(text_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny GPT-NeoX with a byte-level BPE of 300 tokens, saved as any model is."""
    from tokenizers import ByteLevelBPETokenizer
    from transformers import PreTrainedTokenizerFast

    trained = ByteLevelBPETokenizer()
    trained.train([str(text_file)], vocab_size=300, show_progress=False)
    folder = tmp_path_factory.mktemp("model")
    PreTrainedTokenizerFast(tokenizer_object=trained._tokenizer).save_pretrained(folder)
    torch.manual_seed(0)
    config = GPTNeoXConfig(
        vocab_size=304, hidden_size=16, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        max_position_embeddings=64, **_IDS,
    )  # fmt: skip
    model = AutoModelForCausalLM.from_config(config)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.normal_(0, 0.2)
    model.save_pretrained(folder)
    return folder
