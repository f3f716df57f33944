"""Tiny models with random weights, built the same every time and without a download: what the peft suite runs on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

SIZES: dict[str, Any] = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
VOCABULARY = 64


class MLP(nn.Module):
    """Three linear layers, as a model that is not from transformers."""

    def __init__(self) -> None:
        super().__init__()
        self.lin0, self.lin1, self.head = nn.Linear(12, 24), nn.Linear(24, 24), nn.Linear(24, 5)

    def forward(self, x: Tensor) -> Tensor:
        """``(..., 12) -> (..., 5)``."""
        logits: Tensor = self.head(torch.relu(self.lin1(torch.relu(self.lin0(x)))))
        return logits


def _llama() -> nn.Module:
    from transformers import LlamaConfig, LlamaForCausalLM

    model: nn.Module = LlamaForCausalLM(LlamaConfig(**SIZES, vocab_size=VOCABULARY, max_position_embeddings=64))
    return model


def _roberta() -> nn.Module:
    from transformers import RobertaConfig, RobertaForSequenceClassification

    quiet = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, "initializer_range": 0.1}
    config = RobertaConfig(**SIZES, **quiet, vocab_size=VOCABULARY, max_position_embeddings=64, num_labels=3)
    model: nn.Module = RobertaForSequenceClassification(config)
    return model


def _vit() -> nn.Module:
    from transformers import ViTConfig, ViTForImageClassification

    quiet = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, "initializer_range": 0.1}
    model: nn.Module = ViTForImageClassification(ViTConfig(**SIZES, **quiet, image_size=16, patch_size=8, num_labels=3))
    return model


def _t5() -> nn.Module:
    from transformers import T5Config, T5ForConditionalGeneration

    sizes = {"d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_heads": 4}
    model: nn.Module = T5ForConditionalGeneration(
        T5Config(**sizes, vocab_size=VOCABULARY, dropout_rate=0.0, decoder_start_token_id=0)
    )
    return model


def _tokens(seed: int) -> Tensor:
    return torch.randint(2, VOCABULARY, (2, 7), generator=torch.Generator().manual_seed(seed))


def _normal(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(5))


@dataclass(frozen=True)
class TinyModel:
    """How to build a model, what to feed it, and what its parts are called.

    Args:
        name: What it is called in test ids.
        make: Makes it, with random weights.
        inputs: Keyword arguments of one forward pass over a batch of two; floating inputs in float32.
        target_modules: The linear layers to adapt; the names of several versions of transformers, of which one matches.
        head: A module to train in full.
        task_type: What peft calls its task.
        auto_class: The class of peft that loads an adapter together with this model.
        layers_pattern: What the list of its layers is called; empty without one.
    """

    name: str
    make: Callable[[], nn.Module]
    inputs: Mapping[str, Tensor]
    target_modules: tuple[str, ...]
    head: str
    task_type: str | None = None
    auto_class: str = ""
    layers_pattern: tuple[str, ...] = field(default=())

    def build(self, dtype: torch.dtype = torch.float32) -> nn.Module:
        """Build it, with the same weights every time, in evaluation mode."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            return self.make().to(dtype).eval()

    @torch.no_grad()
    def output(self, model: nn.Module) -> Tensor:
        """Its :meth:`logits` without a graph; attention may round differently with one."""
        return self.logits(model)

    def logits(self, model: nn.Module) -> Tensor:
        """Its logits, or for a plain module its output, on :attr:`inputs`."""
        dtype = next(model.parameters()).dtype
        inputs = {key: value.to(dtype) if value.is_floating_point() else value for key, value in self.inputs.items()}
        result = model(**inputs)
        logits: Tensor = getattr(result, "logits", result)
        return logits


LLAMA = TinyModel(
    "llama",
    _llama,
    {"input_ids": _tokens(1)},
    ("q_proj", "v_proj"),
    "lm_head",
    "CAUSAL_LM",
    "AutoPeftModelForCausalLM",
    ("layers",),
)
ROBERTA = TinyModel(
    "roberta",
    _roberta,
    {"input_ids": _tokens(2)},
    ("query", "value", "q_proj", "v_proj"),
    "classifier",
    "SEQ_CLS",
    "AutoPeftModelForSequenceClassification",
    ("layer", "layers"),
)
VIT = TinyModel(
    "vit",
    _vit,
    {"pixel_values": _normal(2, 3, 16, 16)},
    ("query", "value", "q_proj", "v_proj"),
    "classifier",
    None,
    "",
    ("layer", "layers"),
)
T5 = TinyModel(
    "t5",
    _t5,
    {"input_ids": _tokens(3), "decoder_input_ids": _tokens(4)},
    ("q", "v"),
    "lm_head",
    "SEQ_2_SEQ_LM",
    "AutoPeftModelForSeq2SeqLM",
    ("block",),
)
PLAIN = TinyModel("mlp", MLP, {"x": _normal(2, 12)}, ("lin0", "lin1"), "head")
TINY_MODELS = (LLAMA, ROBERTA, VIT, T5, PLAIN)
