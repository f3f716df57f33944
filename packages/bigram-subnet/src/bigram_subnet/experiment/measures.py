"""What is measured of each subnetwork of the experiment."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from bigram_subnet.ablation import ablation_report, logit_batches
from bigram_subnet.config import SparsifyConfig
from bigram_subnet.evaluation import evaluate_subnetwork
from bigram_subnet.mask import SubnetworkMask
from bigram_subnet.masking import masked
from bigram_subnet.ngrams import BigramCounts
from bigram_subnet.shares import block_shares
from bigram_subnet.targets import NgramTarget
from bigram_subnet.training.log import TrainLog
from bigram_subnet.training.subnetwork import train_subnetwork

_CONTEXTS = 256


@dataclasses.dataclass(frozen=True)
class Run:
    """One trained subnetwork.

    Args:
        mask: the subnetwork.
        log: of its training.
        correlations: r of the surprisal with the bigram's, held-out, of subnetwork, full, random and empty mask.
        xent: cross-entropy of the subnetwork to the bigram, held-out, in nats.
        losses: from `ablation_report`, on held-out text, in nats.
        variation: mean total-variation distance between the predictions for one token in two random contexts.
        shares: from `block_shares`.
    """

    mask: SubnetworkMask
    log: TrainLog
    correlations: dict[str, float]
    xent: float
    losses: dict[str, float]
    variation: float
    shares: list[dict[str, Any]]

    @property
    def correlation(self) -> float:
        """R of the subnetwork's surprisal with the bigram's."""
        return self.correlations["subnetwork"]

    def increase(self, name: str) -> float:
        """By how much the model's loss rises: ablated, random_ablated."""
        return self.losses[name] - self.losses["full"]


def measure(
    model: PreTrainedModel, mask: SubnetworkMask, log: TrainLog, counts: BigramCounts, held_out: Tensor, seed: int
) -> Run:
    """Measures a subnetwork on held-out sequences; the seed draws the random masks and contexts."""
    evaluation = evaluate_subnetwork(model, mask, counts, held_out, torch.Generator().manual_seed(seed))
    losses = ablation_report(model, mask, held_out, torch.Generator().manual_seed(seed))
    with masked(model, mask):
        variation = context_variation(model, held_out, seed)
    correlations = {name: each["ngram_corr_dropinf"] for name, each in evaluation["controls"].items()}
    correlations["subnetwork"] = evaluation["ngram_corr_dropinf"]
    return Run(mask, log, correlations, evaluation["ngram_xent"], losses, variation, block_shares(mask))


def small_budget(steps: int, seed: int, l0_lambda: float = 10.0) -> SparsifyConfig:
    """The settings of a mask that is trained in few steps: a rate and growth for 250 to 300 of them."""
    return SparsifyConfig(
        l0_lambda=l0_lambda, learning_rate=2e-3, temperature_factor=1.02, batch_size=8, max_steps=steps, attempts=1,
        seed=seed,
    )  # fmt: skip


def runs_by_seed(
    model: PreTrainedModel,
    counts: BigramCounts,
    training: Tensor,
    held_out: Tensor,
    configs: Sequence[SparsifyConfig],
) -> tuple[Run, ...]:
    """Trains one bigram subnetwork for each of the settings and measures it."""
    runs = []
    for config in configs:
        mask, log = train_subnetwork(model, NgramTarget(counts), training, config)
        runs.append(measure(model, mask, log, counts, held_out, config.seed))
    return tuple(runs)


def context_variation(model: PreTrainedModel, input_ids: Tensor, seed: int) -> float:
    """How much a prediction hangs on the context: total variation between two contexts that end in the same token.

    Args:
        model: a causal language model.
        input_ids: (sequences, length) ids that contexts are drawn from.
        seed: of the draws.

    Returns:
        The mean over pairs of ``0.5 * sum |p - q|``, in [0, 1]; 0 if only the current token counts.
    """
    generator = torch.Generator().manual_seed(seed)
    size = min(_CONTEXTS, len(input_ids))
    first, second = (input_ids[torch.randperm(len(input_ids), generator=generator)[:size]].clone() for _ in range(2))
    second[:, -1] = first[:, -1]
    p, q = (
        torch.cat([logits[:, -1].double().softmax(-1) for _, logits in logit_batches(model, ids, 64)])
        for ids in (first, second)
    )
    return float((p - q).abs().sum(-1).mean()) / 2
