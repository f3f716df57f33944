"""The small language model of the experiment: a GPT-NeoX over characters, trained here on docstrings."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers import GPTNeoXConfig, GPTNeoXForCausalLM, PreTrainedModel

from bigram_subnet.experiment.docstrings import SYMBOLS

WIDTH, LAYERS, HEADS, LENGTH = 96, 3, 4, 64
BATCH, RATE, WARM_UP = 32, 6e-3, 0.1


def trained_model(training: Tensor, steps: int, seed: int = 0) -> PreTrainedModel:
    """Trains the model from random weights.

    Args:
        training: (sequences, LENGTH) ids of characters.
        steps: of AdamW, with a one-cycle rate.
        seed: of the weights and of the batches.

    Returns:
        The model, in eval mode, on the CPU.
    """
    torch.manual_seed(seed)
    config = GPTNeoXConfig(
        vocab_size=len(SYMBOLS),
        hidden_size=WIDTH,
        intermediate_size=4 * WIDTH,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        max_position_embeddings=LENGTH,
        bos_token_id=0,
        eos_token_id=0,
    )
    model: Any = GPTNeoXForCausalLM(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=0.01, fused=True)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, RATE, total_steps=steps, pct_start=WARM_UP)
    generator = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        batch = training[torch.randint(0, len(training), (BATCH,), generator=generator)]
        logits = model(input_ids=batch, use_cache=False).logits[:, :-1]
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
    trained: PreTrainedModel = model.eval()
    return trained
