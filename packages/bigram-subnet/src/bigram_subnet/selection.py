"""Which weights of a model a mask covers: the matrices of attention and MLP in its blocks (paper 3.1).

Weights are chosen by module, not by name. The official rule (every name with "weight" and without "embed" or
"layernorm") takes the output head of GPT-NeoX along since transformers 5 calls it ``lm_head``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from torch import nn
from transformers.pytorch_utils import Conv1D

if TYPE_CHECKING:
    from transformers import PreTrainedModel

LINEAR = (nn.Linear, Conv1D)


def block_list(model: PreTrainedModel) -> tuple[str, nn.ModuleList]:
    """The model's list of transformer blocks and its dotted name, found by its length.

    Raises:
        ValueError: not a transformers model, adapters of peft that are not merged, or no list or several lists of
            ``num_hidden_layers`` blocks.
    """
    config: Any = getattr(model, "config", None)
    if config is None or not hasattr(config, "get_text_config"):
        raise ValueError(f"expected a transformers causal language model, got {type(model).__name__}")
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
            stacked into one tensor), or weights that are not floating-point (quantised); all are named.
    """
    prefix, blocks = block_list(model)
    stray: list[str] = []
    for name, module in blocks.named_modules(prefix=prefix):
        if isinstance(module, LINEAR):
            if not module.weight.is_floating_point():
                raise ValueError(f"{name}.weight is {module.weight.dtype}: a mask needs floating-point weights")
            yield name, module
        else:
            stray += [f"{name}.{key}" for key, value in module.named_parameters(recurse=False) if value.ndim > 1]
    if stray:
        raise ValueError(
            f"{type(model).__name__}: masks cover linear layers only, and its blocks hold other matrices: "
            + ", ".join(stray)
        )


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
