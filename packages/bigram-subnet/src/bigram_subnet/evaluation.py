"""How bigram-like a subnetwork is: correlations and cross-entropies on held-out text, with controls (paper 3.6)."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from bigram_subnet.ablation import check_ids, logit_batches
from bigram_subnet.loss import distribution_cross_entropy
from bigram_subnet.mask import SubnetworkMask
from bigram_subnet.masking import masked
from bigram_subnet.ngrams import BigramCounts
from bigram_subnet.surprisal import surprisal, surprisal_correlation

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def evaluate_subnetwork(
    model: PreTrainedModel,
    mask: SubnetworkMask,
    counts: BigramCounts,
    input_ids: Tensor,
    generator: torch.Generator | None = None,
    batch_size: int = 8,
) -> dict[str, Any]:
    """Compares the subnetwork with the n-gram distribution and with the full model, beside three controls.

    Args:
        model: a causal language model; its weights are restored bit for bit.
        mask: the subnetwork.
        counts: of the corpus, in the model's vocabulary.
        input_ids: (sequences, length) held-out token ids.
        generator: of the random mask; default: torch's.
        batch_size: sequences at a time.

    Returns:
        Under the official log's names, for the subnetwork: ``ngram_n``, ``ngram_corr_dropinf`` (r without tokens of
        infinite n-gram surprisal), ``ngram_correlation`` (r with infinite surprisals clamped), ``ngram_xent`` (nats),
        ``distill_correlation`` and ``distill_xent`` (against the full model). Under ``controls``, for the full model,
        a random mask of equal count in every matrix and the empty mask: ``ngram_corr_dropinf`` and ``ngram_xent``.

    Raises:
        ValueError: a mask that does not fit, or ids outside of the vocabulary of the model or the counts.
    """
    check_ids(model, input_ids)
    target = counts.token_surprisal(input_ids.long())[:, 1:]
    empty = mask - mask
    runs: dict[str, AbstractContextManager[Any]] = {
        "full": nullcontext(),
        "subnetwork": masked(model, mask),
        "random": masked(model, mask.randomize_within_blocks(generator)),
        "empty": masked(model, empty),
    }
    found = {}
    for name, context in runs.items():
        with context:
            found[name] = _measure(model, counts, input_ids, batch_size)
    ours, full = found["subnetwork"], found["full"]
    return {
        "ngram_n": counts.order,
        "ngram_corr_dropinf": surprisal_correlation(ours["bits"], target),
        "ngram_correlation": surprisal_correlation(ours["bits"], target, infinite="clamp"),
        "ngram_xent": ours["xent"],
        "distill_correlation": surprisal_correlation(ours["bits"], full["bits"]),
        "distill_xent": _distill_xent(model, mask, input_ids, batch_size),
        "controls": {
            name: {"ngram_corr_dropinf": surprisal_correlation(run["bits"], target), "ngram_xent": run["xent"]}
            for name, run in found.items()
            if name != "subnetwork"
        },
    }


def _measure(model: PreTrainedModel, counts: BigramCounts, input_ids: Tensor, batch_size: int) -> dict[str, Any]:
    bits, xents = [], []
    for ids, logits in logit_batches(model, input_ids, batch_size):
        bits.append(surprisal(logits, ids).float().cpu())
        xents.append(float(distribution_cross_entropy(logits, counts.dense(ids))) * len(ids))
    return {"bits": torch.cat(bits), "xent": sum(xents) / len(input_ids)}


def _distill_xent(model: PreTrainedModel, mask: SubnetworkMask, input_ids: Tensor, batch_size: int) -> float:
    """Cross-entropy to the full model's distribution; batch by batch, as a corpus of distributions would not fit."""
    total = 0.0
    for ids in input_ids.split(batch_size):
        ((_, full),) = logit_batches(model, ids, batch_size)
        with masked(model, mask):
            ((_, ours),) = logit_batches(model, ids, batch_size)
        total += float(distribution_cross_entropy(ours, full.softmax(-1, dtype=torch.float32))) * len(ids)
    return total / len(input_ids)
