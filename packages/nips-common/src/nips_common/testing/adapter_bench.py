"""What a peft method costs beside LoRA: time, peak memory and what is kept for the backward, on one random Llama.

Needs ``nips-common[peft,torch]`` and transformers. Figures are taken in turns and in processor time, so that what
else runs on the machine counts little.
"""

from __future__ import annotations

import copy
import ctypes
import gc
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import torch
from peft import LoraConfig, PeftConfig, PeftModel, get_peft_model
from torch import Tensor, nn

BATCH, LENGTH = 4, 512
TARGETS = ["q_proj", "v_proj"]
DESCRIPTION = f"Llama of hidden size 1024, 4 layers, {BATCH * LENGTH} tokens, {' and '.join(TARGETS)}, float32"


def llama() -> nn.Module:
    """A random Llama of hidden size 1024 with 4 layers; its narrow feed-forward part leaves adapters a larger share."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    sizes: dict[str, Any] = {"hidden_size": 1024, "num_hidden_layers": 4, "num_attention_heads": 16}
    model: nn.Module = LlamaForCausalLM(
        LlamaConfig(**sizes, intermediate_size=1024, vocab_size=1024, max_position_embeddings=LENGTH)
    )
    return model


def tokens() -> Tensor:
    """``(batch, length)`` random tokens, 2,048 in all."""
    return torch.randint(1024, (BATCH, LENGTH), generator=torch.Generator().manual_seed(1))


def beside_lora(base: nn.Module, rank: int, config_class: type[PeftConfig], **options: Any) -> dict[str, PeftModel]:
    """Models "lora" and "ours" with the same targets, rank and base weights, which they share."""
    shared = {id(parameter): parameter for parameter in base.parameters()}
    configs = {"lora": LoraConfig(r=rank, target_modules=TARGETS)}
    configs["ours"] = config_class(r=rank, target_modules=TARGETS, **options)
    models = {}
    for name, config in configs.items():
        torch.manual_seed(0)
        models[name] = get_peft_model(copy.deepcopy(base, dict(shared)), config)
    return models


def training_step(model: PeftModel, ids: Tensor) -> None:
    """Forward and backward."""
    model(input_ids=ids, labels=ids).loss.backward()
    model.zero_grad()


@torch.no_grad()
def forward(model: PeftModel, ids: Tensor) -> None:
    """Forward without a graph."""
    model(input_ids=ids)


def in_turns(benchmark: Any, slow: Callable[[], Any], fast: Callable[[], Any], rounds: int = 3) -> dict[str, float]:
    """Time ``fast`` by pytest-benchmark, with ``slow`` in front of each round.

    Returns:
        The median seconds of processor time of "slow" and "fast", and the median of fast / slow as "ratio".
    """
    seconds: dict[str, list[float]] = {"slow": [], "fast": []}

    def timed(name: str, function: Callable[[], Any]) -> None:
        start = time.process_time()
        function()
        seconds[name].append(time.process_time() - start)

    for warm_up in (slow, fast):
        warm_up()
    benchmark.pedantic(lambda: timed("fast", fast), setup=lambda: timed("slow", slow), rounds=rounds)
    ratios = [ours / theirs for ours, theirs in zip(seconds["fast"], seconds["slow"], strict=True)]
    return {name: median(values) for name, values in (seconds | {"ratio": ratios}).items()}


def peak(model: PeftModel, ids: Tensor) -> float:
    """Bytes that a training step needs beyond the model; on Linux only, where the peak can be reset."""
    training_step(model, ids)
    found, libc = [], ctypes.CDLL(None)
    for _ in range(2):
        gc.collect()
        libc.malloc_trim(0)  # freed memory that the process still holds would hide the peak
        Path("/proc/self/clear_refs").write_text("5")  # resets the peak
        before = _kilobytes("VmRSS")
        training_step(model, ids)
        found.append(1024 * (_kilobytes("VmHWM") - before))
    return median(found)


def kept_bytes(model: PeftModel, ids: Tensor) -> int:
    """Bytes of all storages that a forward pass keeps for its backward, without parameters."""
    known = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    kept: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in known:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        output = model(input_ids=ids, labels=ids)
    if not output.loss.requires_grad:
        raise AssertionError("the loss has no graph")
    return sum(kept.values())


def _kilobytes(field: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1])
    raise AssertionError(f"no {field} in /proc/self/status")
