"""Tiny real models of every family, made once."""

from __future__ import annotations

from collections.abc import Callable
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
