"""How bigram-like a subnetwork is: correlations and cross-entropies on held-out text, with controls (paper 3.6)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.func import functional_call

from bigram_subnet.ablation import check_ids, logit_batches
from bigram_subnet.loss import distribution_cross_entropy
from bigram_subnet.mask import SubnetworkMask
from bigram_subnet.masking import masked, masked_weights
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
        ValueError: a mask that does not fit, fewer than two tokens behind others, or ids outside of the vocabulary of
            the model or the counts.
    """
    check_held_out(model, counts, input_ids)
    target = counts.token_surprisal(input_ids)[:, 1:]
    found = _full_and_subnetwork(model, mask, counts, input_ids, batch_size)
    for name, control in {"random": mask.randomize_within_blocks(generator), "empty": mask - mask}.items():
        found[name] = _Measured()
        with masked(model, control):
            for ids, logits in logit_batches(model, input_ids, batch_size):
                found[name].add(logits, ids, counts.dense(ids))
    ours, full = found.pop("subnetwork"), found["full"]
    return {
        "ngram_n": counts.order,
        "ngram_corr_dropinf": surprisal_correlation(ours.surprisal, target),
        "ngram_correlation": surprisal_correlation(ours.surprisal, target, infinite="clamp"),
        "ngram_xent": ours.xent,
        "distill_correlation": surprisal_correlation(ours.surprisal, full.surprisal),
        "distill_xent": ours.distill_xent,
        "controls": {
            name: {"ngram_corr_dropinf": surprisal_correlation(run.surprisal, target), "ngram_xent": run.xent}
            for name, run in found.items()
        },
    }


def check_held_out(model: PreTrainedModel, counts: BigramCounts, input_ids: Tensor) -> None:
    """ValueError unless a subnetwork can be evaluated on these ids, so that it is known before it is trained."""
    check_ids(model, input_ids, least=2)
    counts.check_ids(input_ids)
    if input_ids[:, 1:].numel() < 2:
        raise ValueError(f"evaluation needs at least two tokens behind others, got ids {tuple(input_ids.shape)}")


class _Measured:
    """Surprisals and cross-entropies of one model, batch by batch."""

    def __init__(self) -> None:
        self._bits: list[Tensor] = []
        self._xent = self._distill = 0.0
        self._sequences = 0

    def add(self, logits: Tensor, ids: Tensor, target: Tensor, full: Tensor | None = None) -> None:
        """Adds a batch: logits, the n-gram distribution and, to compare with, the full model's logits."""
        self._bits.append(surprisal(logits, ids).float().cpu())
        self._xent += float(distribution_cross_entropy(logits, target)) * len(ids)
        if full is not None:
            distribution = full.softmax(-1, dtype=torch.float32)
            self._distill += float(distribution_cross_entropy(logits, distribution)) * len(ids)
        self._sequences += len(ids)

    @property
    def surprisal(self) -> Tensor:
        """(sequences, length - 1) bits."""
        return torch.cat(self._bits)

    @property
    def xent(self) -> float:
        """Cross-entropy to the n-gram distribution, in nats."""
        return self._xent / self._sequences

    @property
    def distill_xent(self) -> float:
        """Cross-entropy to the full model's distribution, in nats."""
        return self._distill / self._sequences


@torch.no_grad()
def _full_and_subnetwork(
    model: PreTrainedModel, mask: SubnetworkMask, counts: BigramCounts, input_ids: Tensor, batch_size: int
) -> dict[str, _Measured]:
    """Both in one pass, as a corpus of full distributions would not fit; the masked weights are made once."""
    full, ours = _Measured(), _Measured()
    weights = masked_weights(model, mask)
    for ids, logits in logit_batches(model, input_ids, batch_size):
        target = counts.dense(ids)
        full.add(logits, ids, target)
        subnetwork = functional_call(model, weights, (), {"input_ids": ids, "use_cache": False}).logits
        ours.add(subnetwork, ids, target, logits)
    return {"full": full, "subnetwork": ours}
