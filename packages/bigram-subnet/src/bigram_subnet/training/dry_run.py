"""What a training run would need: parameters, steps, memory."""

from __future__ import annotations

from typing import Any

import torch
from transformers import AutoModelForCausalLM

from bigram_subnet.pretrained import load_config
from bigram_subnet.selection import maskable_weights
from bigram_subnet.training.arguments import TrainArguments
from bigram_subnet.training.run_data import read_run_data
from nips_common.runtime import resolve_device, resolve_dtype

_FLOAT32 = 4


def plan(arguments: TrainArguments) -> dict[str, Any]:
    """The numbers of a run, from its data and the model's config; no weights are read, nothing is written.

    What a run refuses before it reads the weights is refused here too.

    Memory counts the frozen weights, four float32 numbers a maskable weight (score, gradient, two moments of AdamW),
    one float32 soft mask and one masked weight each while a step runs, and target, log-probabilities and their
    gradient; activations come on top.

    Raises:
        OSError: a model or file that cannot be found.
        ValueError: a model that cannot be masked, or data, counts and model that do not fit.
    """
    run = read_run_data(arguments)
    config = load_config(arguments.model, arguments.revision)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    run.check(arguments, model)
    sequences, length = run.data.shape
    device = resolve_device(arguments.device)
    size = resolve_dtype(arguments.dtype, device).itemsize
    total = sum(weight.numel() for weight in model.parameters())
    maskable = sum(weight.numel() for weight in maskable_weights(model).values())
    positions = arguments.batch_size * length
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
        "training_data": {"sequences": sequences, "length": length},
        "masks": len(arguments.l0_lambda),
        "attempts_per_mask_at_most": settings.attempts,
        "per_mask_and_attempt_at_most": {
            "optimizer_steps": settings.optimizer_steps,
            "sequences_read": settings.max_steps * settings.batch_size,
        },
        "memory_bytes": memory | {"together, without activations": sum(memory.values())},
    }
