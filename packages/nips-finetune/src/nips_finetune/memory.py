"""The memory of a training step, estimated on meta tensors."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

GIB = 2**30


def estimate_memory(model: nn.Module, batch: dict[str, Tensor], gradient_checkpointing: bool) -> dict[str, Any]:
    """Estimate the memory of a training step on one device, in bytes.

    Weights count as they are, what trains 16 bytes a parameter (float32 weight, gradient, two moments of AdamW), and
    activations as what a forward pass of a whole batch keeps for its backward pass; with gradient checkpointing, one
    layer's share of that and the input of each layer. Fused attention keeps no (length, length) weights, as on
    CUDA (a CPU does, where there is attention dropout). The allocator, temporary buffers and copies of DDP come on top.

    Args:
        model: A peft model of meta tensors, in the dtype that it computes in.
        batch: A batch of meta tensors with ``labels``.
        gradient_checkpointing: Whether layers are computed again in the backward pass.

    Returns:
        ``weights_bytes``, ``trained_bytes``, ``activations_bytes`` (None with ``activations_unknown``, where the model
        does not run on meta tensors), and their sum ``total_gib``.
    """
    weights = sum(p.numel() * p.element_size() for p in model.parameters() if not p.requires_grad)
    trained = 16 * sum(p.numel() for p in model.parameters() if p.requires_grad)
    activations, reason = None, None
    try:
        activations = _kept_for_backward(model, batch, gradient_checkpointing)
    except (RuntimeError, NotImplementedError, ValueError, TypeError) as error:
        reason = " ".join(str(error).split())[:200]
    known = {"weights_bytes": weights, "trained_bytes": trained, "activations_bytes": activations}
    unknown = {} if reason is None else {"activations_unknown": reason}
    return {**known, **unknown, "total_gib": round(sum(filter(None, known.values())) / GIB, 3)}


def _kept_for_backward(model: nn.Module, batch: dict[str, Tensor], gradient_checkpointing: bool) -> int:
    weights = {parameter.untyped_storage()._cdata for parameter in model.parameters()}
    kept: dict[int, Tensor] = {}  # holds them, so that no two storages share an address
    heads = _fused_heads(model) * len(batch["labels"])

    def keep(tensor: Tensor) -> Tensor:
        square = tensor.dim() > 2 and tensor.shape[-1] == tensor.shape[-2]
        if square and heads and tensor.numel() == heads * tensor.shape[-1] ** 2:
            return tensor  # attention weights, which fused kernels do not keep; meta tensors have none of these kernels
        if tensor.untyped_storage()._cdata not in weights:
            kept[tensor.untyped_storage()._cdata] = tensor
        return tensor

    model.train()
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        output = model(**batch, output_hidden_states=gradient_checkpointing)
    size = sum(tensor.untyped_storage().nbytes() for tensor in kept.values())
    if not gradient_checkpointing:
        return size
    states: tuple[Tensor, ...] = output.hidden_states
    return size // max(len(states) - 1, 1) + sum(state.numel() * state.element_size() for state in states)


def _fused_heads(model: nn.Module) -> int:
    """The attention heads of a transformers model that computes attention in one kernel; 0 for others."""
    config = getattr(model, "config", None)
    if config is None or getattr(config, "_attn_implementation", "eager") == "eager":
        return 0
    return int(getattr(config, "num_attention_heads", 0))
