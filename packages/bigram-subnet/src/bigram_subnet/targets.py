"""What a subnetwork is trained towards: n-gram distributions, or the full model's own (paper 3.3, 3.5)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from bigram_subnet.ngrams import BigramCounts

if TYPE_CHECKING:
    from transformers import PreTrainedModel


class NgramTarget:
    """P(next token | last n - 1 tokens) of a corpus: the target of bigram subnetworks.

    At position t it conditions on the token at t (not on the next one).

    Args:
        counts: of the corpus.

    Example:
        >>> import torch
        >>> from bigram_subnet import BigramCounts, NgramTarget
        >>> target = NgramTarget(BigramCounts.from_sequences([[0, 1, 0, 1, 1]], vocab_size=2))
        >>> target(torch.tensor([[0]])).tolist()
        [[[0.0, 1.0]]]
    """

    def __init__(self, counts: BigramCounts) -> None:
        self.counts = counts

    def __repr__(self) -> str:
        return f"NgramTarget({self.counts!r})"

    @property
    def vocab_size(self) -> int:
        """V: logits behind it are cut off."""
        return self.counts.vocab_size

    def __call__(self, input_ids: Tensor) -> Tensor:
        """(batch, sequence) ids -> (batch, sequence, V) float32 probabilities, on the ids' device."""
        return self.counts.dense(input_ids)


class SelfTarget:
    """The full model's own next-token distribution: the target of "optimal" (pruning) subnetworks.

    Args:
        model: the model; a sparsifier leaves its weights as they are. Inside of `masked` this is the masked model's.
    """

    def __init__(self, model: PreTrainedModel) -> None:
        self.model = model

    def __repr__(self) -> str:
        return "SelfTarget()"

    @torch.no_grad()
    def __call__(self, input_ids: Tensor) -> Tensor:
        """(batch, sequence) ids -> (batch, sequence, vocabulary) float32 probabilities."""
        logits = self.model(input_ids=input_ids, use_cache=False).logits
        return torch.softmax(logits, dim=-1, dtype=torch.float32)
