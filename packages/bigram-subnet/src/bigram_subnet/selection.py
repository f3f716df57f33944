"""Which weights of a model a mask covers: the matrices of attention and MLP in its blocks (paper 3.1).

Weights are chosen by module, not by name. The official rule (every name with "weight" and without "embed" or
"layernorm") takes the output head of GPT-NeoX along since transformers 5 calls it ``lm_head``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from transformers.pytorch_utils import Conv1D

if TYPE_CHECKING:
    from transformers import PreTrainedModel

LINEAR = (nn.Linear, Conv1D)
_DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)  # not those of eight bits, which are quantised


def block_list(model: PreTrainedModel) -> tuple[str, nn.ModuleList]:
    """The model's list of transformer blocks and its dotted name, found by its length.

    Raises:
        ValueError: not a transformers model, a wrapper of torch.compile, adapters of peft that are not merged, or no
            list or several lists of ``num_hidden_layers`` blocks.
    """
    config: Any = getattr(model, "config", None)
    if config is None or not hasattr(config, "get_text_config"):
        raise ValueError(f"expected a transformers causal language model, got {type(model).__name__}")
    if hasattr(model, "_orig_mod"):
        raise ValueError(
            "the model is wrapped by torch.compile, which renames its weights: pass the model itself, "
            "and compile it in place with model.compile()"
        )
    if hasattr(model, "peft_config"):
        raise ValueError(
            "the model carries peft adapters, whose weights are no part of it: call merge_and_unload first"
        )
    layers = config.get_text_config(decoder=True).num_hidden_layers
    found: dict[str, nn.ModuleList] = {}
    for name, module in model.named_modules():
        inside = any(name.startswith(f"{outer}.") for outer in found)
        if isinstance(module, nn.ModuleList) and len(module) == layers and not inside and _has_linear(module):
            found[name] = module
    if len(found) != 1:
        several = f"several: {', '.join(found)}" if found else "none"
        raise ValueError(
            f"{type(model).__name__} must hold one list of {layers} blocks (config.num_hidden_layers), found {several}"
        )
    return next(iter(found.items()))


def _has_linear(module: nn.Module) -> bool:
    return any(isinstance(inner, LINEAR) for inner in module.modules())


def maskable_modules(model: PreTrainedModel) -> Iterator[tuple[str, nn.Module]]:
    """Name and module of every linear layer inside the blocks, in model order.

    Raises:
        ValueError: as :func:`block_list`; a block holds weight matrices outside of linear layers (experts that are
            stacked into one tensor), or weights that are no plain floating-point parameters (quantised, pruned or
            parametrised); all are named.
    """
    prefix, blocks = block_list(model)
    stray: list[str] = []
    unfit: list[str] = []
    for name, module in blocks.named_modules(prefix=prefix):
        if isinstance(module, LINEAR):
            problem = _unfit(module)
            if problem:
                unfit.append(f"{name}.weight is {problem}")
            yield name, module
        else:
            stray += [f"{name}.{key}" for key, value in module.named_parameters(recurse=False) if value.ndim > 1]
    if unfit:
        raise ValueError(
            "a mask needs plain floating-point weights (load the model de-quantised; remove pruning and "
            f"parametrisations): {'; '.join(unfit)}"
        )
    if stray:
        raise ValueError(
            f"{type(model).__name__}: masks cover linear layers only, and its blocks hold other matrices: "
            + ", ".join(stray)
        )


def _unfit(module: nn.Module) -> str:
    """What keeps a linear layer's weight from being masked; empty if nothing does."""
    weight = module._parameters.get("weight")
    if weight is None:
        return "no parameter of its own"
    if type(weight) is not nn.Parameter:
        return f"a {type(weight).__name__}"
    return "" if weight.dtype in _DTYPES else str(weight.dtype)


def loaded_weights(model: PreTrainedModel) -> dict[str, nn.Parameter]:
    """:func:`maskable_weights`, whose values are in memory.

    Raises:
        ValueError: as there; weights on the meta device (not loaded yet, or offloaded), all of which are named.
    """
    weights = maskable_weights(model)
    if absent := [name for name, weight in weights.items() if weight.is_meta]:
        raise ValueError(f"weights that are not in memory (on the meta device) cannot be masked: {', '.join(absent)}")
    return weights


def maskable_weights(model: PreTrainedModel) -> dict[str, nn.Parameter]:
    """The weights that a mask covers: every matrix of attention and MLP in every block [paper, code].

    Never among them: embeddings, output head, norms and all biases.

    Args:
        model: a causal language model of transformers.

    Returns:
        The parameters by name (as in ``model.named_parameters()``), in model order.

    Raises:
        ValueError: as :func:`maskable_modules`.
    """
    weights = {f"{name}.weight": module.weight for name, module in maskable_modules(model)}
    return {name: parameter for name, parameter in model.named_parameters() if name in weights}
