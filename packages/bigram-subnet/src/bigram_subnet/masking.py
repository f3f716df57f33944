"""Applying a mask: the weights that it drops become zero, everything else stays (paper 3.2)."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from bigram_subnet.mismatch import mismatch
from bigram_subnet.selection import loaded_weights, maskable_weights

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def fitting_weights(model: PreTrainedModel, mask: Mapping[str, Tensor]) -> dict[str, nn.Parameter]:
    """The model's maskable weights, if the mask is one for them.

    Raises:
        ValueError: it is not (all unknown, missing and mis-shaped names are in the one message), it holds something
            else than bool tensors, or the model's weights are not in memory.
    """
    weights = loaded_weights(model)
    if differences := mismatch(mask, weights, ("unknown", "missing", ", must be ")):
        raise ValueError(f"the mask does not fit {model.name_or_path or type(model).__name__}: {differences}")
    no_masks = [name for name, value in mask.items() if getattr(value, "dtype", None) is not torch.bool]
    if no_masks:
        raise ValueError(
            f"a mask must hold bool tensors, got {getattr(mask[no_masks[0]], 'dtype', type(mask[no_masks[0]]))} "
            f"for {', '.join(no_masks)}"
        )
    return weights


def apply_mask(model: PreTrainedModel, mask: Mapping[str, Tensor], inplace: bool = False) -> PreTrainedModel:
    """Sets the weights that a mask drops to zero.

    Args:
        model: a causal language model.
        mask: bool tensors by parameter name, one for every maskable weight.
        inplace: change the model itself; default: a copy.

    Returns:
        The masked model: a copy, or the model itself.

    Raises:
        ValueError: a mask that does not fit; all unknown, missing and mis-shaped names are in the one message.
    """
    fitting_weights(model, mask)  # before the copy
    masked_model = model if inplace else copy.deepcopy(model)
    _zero(maskable_weights(masked_model), mask)
    return masked_model


def _zero(weights: Mapping[str, nn.Parameter], mask: Mapping[str, Tensor]) -> None:
    with torch.no_grad():
        for name, weight in weights.items():
            # masked_fill and not a product: a weight that is infinite or NaN is dropped too
            weight.masked_fill_(~mask[name].to(weight.device), 0)


@torch.no_grad()
def masked_weights(model: PreTrainedModel, mask: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Masked copies of the model's weights by name, for `torch.func.functional_call`; the model stays as it is.

    Raises:
        ValueError: as :func:`apply_mask`.
    """
    weights = fitting_weights(model, mask)
    return {name: weight.masked_fill(~mask[name].to(weight.device), 0) for name, weight in weights.items()}


@contextmanager
def masked(model: PreTrainedModel, mask: Mapping[str, Tensor]) -> Iterator[PreTrainedModel]:
    """Masks the model itself inside a ``with`` block and restores its weights, bit for bit, behind it.

    Blocks nest, the inner one masking what the outer one left; leave them in reverse order.

    Args:
        model: a causal language model.
        mask: bool tensors by parameter name, one for every maskable weight.

    Yields:
        The model.

    Raises:
        ValueError: as :func:`apply_mask`.
    """
    weights = fitting_weights(model, mask)
    before = {name: weight.detach().clone() for name, weight in weights.items()}
    try:
        _zero(weights, mask)
        yield model
    finally:
        with torch.no_grad():
            for name, weight in weights.items():
                weight.copy_(before[name])
