"""The model the benchmarks adapt, and the table of ratios they print at the end."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM

from lora_anl import AuroraConfig

BATCH, LENGTH = 4, 512
TARGETS = ["q_proj", "v_proj"]
LINES: list[str] = []


@pytest.fixture(scope="session")
def report() -> list[str]:
    """Lines to print after the run."""
    return LINES


@pytest.fixture(scope="session")
def base() -> LlamaForCausalLM:
    """A random Llama of hidden size 1024 with 4 layers; its narrow feed-forward part leaves adapters a larger share."""
    torch.manual_seed(0)
    sizes: dict[str, Any] = {"hidden_size": 1024, "num_hidden_layers": 4, "num_attention_heads": 16}
    return LlamaForCausalLM(
        LlamaConfig(**sizes, intermediate_size=1024, vocab_size=1024, max_position_embeddings=LENGTH)
    )


@pytest.fixture(scope="session")
def tokens() -> torch.Tensor:
    """(B, L) random tokens, 2,048 in all."""
    return torch.randint(1024, (BATCH, LENGTH), generator=torch.Generator().manual_seed(1))


@pytest.fixture(scope="session")
def adapted(base: LlamaForCausalLM) -> Callable[..., PeftModel]:
    """Makes a model with LoRA ("lora") or AuroRA (its spline mode) of the same targets and rank; weights are shared."""
    shared = {id(parameter): parameter for parameter in base.parameters()}

    def make(method: str, rank: int) -> PeftModel:
        config = (
            LoraConfig(r=rank, target_modules=TARGETS)
            if method == "lora"
            else AuroraConfig(r=rank, target_modules=TARGETS, spline_mode=method)
        )
        torch.manual_seed(0)
        return get_peft_model(copy.deepcopy(base, dict(shared)), config)

    return make


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter: Any) -> Iterator[None] | None:
    if LINES:
        what = f"Llama of hidden size 1024, 4 layers, {BATCH * LENGTH} tokens, {' and '.join(TARGETS)}, float32"
        terminalreporter.section(f"lora-anl: {what}, {torch.get_num_threads()} threads")
        for line in LINES:
            terminalreporter.write_line(line)
    return None
