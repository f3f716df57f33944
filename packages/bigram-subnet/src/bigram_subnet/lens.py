"""What each layer says through a ridge map, read as the input token or as the next-token prediction (paper 5)."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

import torch
from torch import Tensor, nn

from bigram_subnet.masking import masked
from bigram_subnet.residual import ResidualStates, RidgeSums, residual_states
from bigram_subnet.selection import block_list

if TYPE_CHECKING:
    from transformers import PreTrainedModel

Direction = Literal["input", "output"]
_RECALL_AT = (1, 5, 10)


class LensResult(NamedTuple):
    """One layer seen through its lens.

    Args:
        correlation: mean over positions of Pearson's r between the lens's logits and those that the target state gives.
        recall_at_1: how often the input token has the largest logit.
        recall_at_5: how often it is among the first five.
        recall_at_10: how often it is among the first ten.
    """

    correlation: float
    recall_at_1: float
    recall_at_5: float
    recall_at_10: float


def layer_lens(
    model: PreTrainedModel,
    input_ids: Tensor,
    direction: Direction = "input",
    mask: Mapping[str, Tensor] | None = None,
    alpha: float = 1.0,
    batch_size: int = 8,
) -> list[LensResult]:
    """Maps each layer to the token embeddings or to the last layer, and reads tokens off.

    Args:
        model: a causal language model; its weights are restored if a mask is given.
        input_ids: (sequences, length) token ids; the maps are fitted and judged on the same positions, as in the paper.
        direction: "input" maps to the token embeddings and reads with the input embedding matrix, without a norm;
            "output" maps to the last block's output and reads with the final norm and the head.
        mask: look at the masked model.
        alpha: of the ridge regressions.
        batch_size: sequences at a time.

    Returns:
        Layers + 1 results: the input of the first block, then the output of every block.

    Raises:
        ValueError: an unknown direction, a mask that does not fit, or ids outside of the vocabulary.
    """
    if direction not in get_args(Direction):
        raise ValueError(f"direction must be one of {', '.join(get_args(Direction))}, got {direction!r}")
    read = _reader(model, direction)
    with nullcontext() if mask is None else masked(model, mask):
        fits: list[RidgeSums] = []
        for states in residual_states(model, input_ids, batch_size):
            fits = fits or [RidgeSums(alpha) for _ in states.layers]
            for fit, layer in zip(fits, states.layers, strict=True):
                fit.add(layer, _target(states, direction))
        maps = [tuple(part.float() for part in fit.solve()) for fit in fits]
        sums = [torch.zeros(1 + len(_RECALL_AT), dtype=torch.float64) for _ in maps]
        positions = 0
        for states in residual_states(model, input_ids, batch_size):
            wanted = read(_target(states, direction))
            for total, (coefficient, intercept), layer in zip(sums, maps, states.layers, strict=True):
                logits = read(torch.addmm(intercept, layer, coefficient.T))
                total += _seen(logits, wanted, states.input_ids)
            positions += len(states.input_ids)
    return [LensResult(*(total / positions).tolist()) for total in sums]


def _target(states: ResidualStates, direction: Direction) -> Tensor:
    return states.embeddings if direction == "input" else states.layers[-1]


def _reader(model: PreTrainedModel, direction: Direction) -> Any:
    """What turns a state into logits."""
    if direction == "input":
        matrix = model.get_input_embeddings().weight.detach()
        return lambda state: state @ matrix.float().T
    norm, head = final_norm(model), model.get_output_embeddings()
    dtype = next(head.parameters()).dtype

    @torch.no_grad()
    def read(state: Tensor) -> Tensor:
        logits: Tensor = head(norm(state.to(dtype))).float()
        return logits

    return read


def final_norm(model: PreTrainedModel) -> nn.Module:
    """The norm between the last block and the head: the one that stands behind the block list.

    Raises:
        ValueError: there is none, or there are several.
    """
    prefix, _ = block_list(model)
    parent = model.get_submodule(prefix.rpartition(".")[0])
    names = [name for name, _ in parent.named_children()]
    behind = names[names.index(prefix.rpartition(".")[2]) + 1 :]
    norms: list[nn.Module] = [parent.get_submodule(name) for name in behind if "norm" in name or name.startswith("ln")]
    if len(norms) != 1:
        raise ValueError(f"{type(model).__name__} must have one norm behind its blocks, found {behind}")
    return norms[0]


def _seen(logits: Tensor, wanted: Tensor, input_ids: Tensor) -> Tensor:
    """Sums over positions: correlation, and whether the input token is among the first 1, 5, 10."""
    a, b = (values.double() - values.double().mean(-1, keepdim=True) for values in (logits, wanted))
    scale = a.norm(dim=-1) * b.norm(dim=-1)
    correlation = torch.where(scale > 0, (a * b).sum(-1) / scale, 0.0)
    rank = (logits > logits.gather(-1, input_ids[:, None])).sum(-1)
    return torch.stack([correlation.sum(), *((rank < k).sum().double() for k in _RECALL_AT)]).cpu()
