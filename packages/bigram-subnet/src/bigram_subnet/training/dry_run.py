"""What a training run would need: parameters, steps, memory."""

from __future__ import annotations

from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from bigram_subnet.pretrained import where
from bigram_subnet.selection import maskable_weights
from bigram_subnet.training.arguments import TrainArguments
from nips_common.runtime import resolve_device, resolve_dtype

_FLOAT32 = 4


def plan(arguments: TrainArguments) -> dict[str, Any]:
    """The numbers of a run, from the model's config alone; no weights are read.

    Memory counts the frozen weights, four float32 numbers a maskable weight (score, gradient, two moments of AdamW),
    one float32 soft mask and one masked weight each while a step runs, and target, log-probabilities and their
    gradient; activations come on top.

    Raises:
        OSError: there is no such model.
        ValueError: a model that cannot be masked.
    """
    config = AutoConfig.from_pretrained(**where(arguments.model), revision=arguments.revision or "main")
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    device = resolve_device(arguments.device)
    size = resolve_dtype(arguments.dtype, device).itemsize
    total = sum(weight.numel() for weight in model.parameters())
    maskable = sum(weight.numel() for weight in maskable_weights(model).values())
    positions = arguments.batch_size * arguments.sequence_length
    logits = positions * model.get_input_embeddings().num_embeddings
    memory = {
        "frozen weights": total * size,
        "scores, gradients, AdamW": 4 * maskable * _FLOAT32,
        "soft masks and masked weights": maskable * (_FLOAT32 + size),
        "target and logits": 3 * logits * _FLOAT32 + logits * size,
    }
    settings = arguments.config(arguments.l0_lambda[0])
    return {
        "model": arguments.model,
        "device": str(device),
        "parameters": {"total": total, "maskable": maskable},
        "masks": len(arguments.l0_lambda),
        "optimizer_steps_at_most": settings.optimizer_steps,
        "sequences_read_at_most": settings.max_steps * settings.batch_size,
        "memory_bytes": memory | {"together, without activations": sum(memory.values())},
    }
