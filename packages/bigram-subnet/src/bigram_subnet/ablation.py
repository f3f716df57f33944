"""Necessity and sufficiency: losses of model, subnetwork, what is left without it, and random controls (paper 3.6)."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import mean, stdev
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from bigram_subnet.mask import SubnetworkMask
from bigram_subnet.masking import masked
from bigram_subnet.surprisal import surprisal
from bigram_subnet.token_ids import id_range, whole_numbers

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_LN2 = 0.6931471805599453


@torch.no_grad()
def logit_batches(model: PreTrainedModel, input_ids: Tensor, batch_size: int = 8) -> Iterator[tuple[Tensor, Tensor]]:
    """Ids and logits of ``batch_size`` sequences at a time, in eval mode, on the model's device.

    Args:
        model: a causal language model; its mode is restored.
        input_ids: (sequences, length) token ids.
        batch_size: sequences at a time.

    Raises:
        ValueError: as :func:`check_ids`.
    """
    check_ids(model, input_ids)
    training = model.training
    model.eval()
    try:
        for ids in input_ids.split(batch_size):
            placed = ids.long().to(model.device)
            yield placed, model(input_ids=placed, use_cache=False).logits
    finally:
        model.train(training)


def check_ids(model: PreTrainedModel, input_ids: Tensor, least: int = 1, more: int = 0) -> None:
    """Refuses ids that a model cannot be asked about.

    Args:
        model: whose ``max_position_embeddings`` is the most tokens; without one any length will do.
        input_ids: (sequences, length) token ids.
        least: tokens that a sequence must have; 2 where the next token is predicted.
        more: tokens that the model is to add.

    Raises:
        ValueError: ids that are no (sequences, length) whole numbers, lie outside of the model's vocabulary, or are too
            short or longer than the model was made for.
    """
    ids = whole_numbers(input_ids)
    if not ids.numel():
        raise ValueError(f"input_ids must hold at least one token, got {tuple(ids.shape)}")
    vocabulary = model.get_input_embeddings().num_embeddings
    low, high = id_range(ids)
    if low < 0 or high >= vocabulary:
        raise ValueError(f"input_ids must lie in the model's vocabulary, 0 to {vocabulary - 1}, got {low} to {high}")
    length, most = ids.shape[1], getattr(model.config, "max_position_embeddings", None)
    if length < least:
        raise ValueError(f"a sequence must have at least {least} tokens, so that one is predicted; got {length}")
    if most is not None and length + more > most:
        told = f"{length} tokens and {more} new ones" if more else f"sequences of {length} tokens"
        raise ValueError(f"{told} are too long: the model takes at most {most} (max_position_embeddings)")


def model_surprisal(model: PreTrainedModel, input_ids: Tensor, batch_size: int = 8) -> Tensor:
    """Surprisal of the tokens 1, ..., S - 1 under a model, (sequences, length - 1) bits, float32 on the CPU.

    Raises:
        ValueError: as :func:`check_ids`; also sequences of one token, which predict none.
    """
    check_ids(model, input_ids, least=2)
    batches = logit_batches(model, input_ids, batch_size)
    return torch.cat([surprisal(logits, ids).float().cpu() for ids, logits in batches])


def language_model_loss(model: PreTrainedModel, input_ids: Tensor, batch_size: int = 8) -> float:
    """Mean cross-entropy of the next token, in nats."""
    return float(model_surprisal(model, input_ids, batch_size).double().mean()) * _LN2


def ablation_report(
    model: PreTrainedModel,
    mask: SubnetworkMask,
    input_ids: Tensor,
    generator: torch.Generator | None = None,
    batch_size: int = 8,
    draws: int = 1,
) -> dict[str, float]:
    """Next-token losses under a mask, its complement, and those of a random mask of equal count in every matrix.

    A subnetwork is sufficient for what ``subnetwork`` still predicts, and needed for what ``ablated`` loses beyond
    ``random_ablated``.

    Args:
        model: a causal language model; its weights are restored bit for bit.
        mask: the subnetwork.
        input_ids: (sequences, length) held-out token ids.
        generator: of the random masks; default: torch's.
        batch_size: sequences at a time.
        draws: how many random masks.

    Returns:
        Losses in nats: ``full``, ``subnetwork``, ``random``, ``ablated``, ``random_ablated``, those of random masks as
        means; with more than one draw also their standard deviations ``random_std`` and ``random_ablated_std``.

    Raises:
        ValueError: no draw, a mask that does not fit, or ids as in :func:`check_ids`.
    """
    check_ids(model, input_ids, least=2)
    if draws < 1:
        raise ValueError(f"draws must be at least 1, got {draws}")

    def loss(of: SubnetworkMask) -> float:
        with masked(model, of):
            return language_model_loss(model, input_ids, batch_size)

    report = {"full": language_model_loss(model, input_ids, batch_size), "subnetwork": loss(mask)}
    randoms = [mask.randomize_within_blocks(generator) for _ in range(draws)]
    alone, without = [loss(each) for each in randoms], [loss(each.complement()) for each in randoms]
    report |= {"random": mean(alone), "ablated": loss(mask.complement()), "random_ablated": mean(without)}
    return report if draws == 1 else {**report, "random_std": stdev(alone), "random_ablated_std": stdev(without)}
