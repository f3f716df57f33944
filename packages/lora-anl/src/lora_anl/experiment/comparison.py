"""AuroRA against LoRA, BitFit and the head alone on a real encoder: same steps, each at its own learning rate.

Rates are chosen on the validation documents alone; the test documents are looked at once, at the end.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import nn

from lora_anl.experiment import encoder
from lora_anl.experiment.encoder import AURORA, HEAD, METHODS, Classifier, Encoded
from lora_anl.experiment.training import calibrated_merge, statically_merged
from lora_anl.gap import measure_merge_gap

TUNING_SEED = 100  # none of the seeds that are reported
CALIBRATION_BATCHES = 4

Splits = Mapping[str, Encoded]


@dataclass
class Scores:
    """A method's rate, trained parameters (encoder, head) and test accuracies in per cent, one a seed."""

    rate: float
    validation: dict[float, float] = field(default_factory=dict)
    encoder_parameters: int = 0
    head_parameters: int = 0
    accuracy: list[float] = field(default_factory=list)
    merged: list[float] = field(default_factory=list)
    calibrated: list[float] = field(default_factory=list)
    relative_gap: list[float] = field(default_factory=list)


def compare(
    base: Classifier, splits: Splits, rates: Mapping[str, Sequence[float]], seeds: int, steps: int
) -> dict[str, Scores]:
    """Tunes where there is a choice of rates, then trains on seeds 0 .. seeds - 1 and tests.

    The head's rate is chosen first, with the head alone, and is then every method's.
    """
    scores = {HEAD: _head_alone(base, splits, rates[HEAD], seeds, steps)}
    for method in METHODS:
        scores[method] = _method(base, splits, method, rates[method], scores[HEAD].rate, seeds, steps)
    return scores


def most_frequent(splits: Splits) -> float:
    """Test accuracy in per cent of always giving the topic that is most frequent in training."""
    topic = splits["training"].labels.mode().values
    return 100 * float((splits["test"].labels == topic).double().mean())


def _chosen(validation: Mapping[float, float], rates: Sequence[float]) -> float:
    return max(rates, key=lambda rate: validation.get(rate, 0.0))


def _method(
    base: Classifier, splits: Splits, method: str, rates: Sequence[float], head_rate: float, seeds: int, steps: int
) -> Scores:
    def trained(rate: float, seed: int) -> nn.Module:
        model = encoder.prepared(base, method, seed)
        encoder.train(model, splits["training"], rate, head_rate, steps, seed)
        return model

    validation = {}
    if len(rates) > 1:
        validation = {rate: encoder.accuracy(trained(rate, TUNING_SEED), splits["validation"]) for rate in rates}
    scores = Scores(_chosen(validation, rates), validation)
    for seed in range(seeds):
        model = trained(scores.rate, seed)
        scores.encoder_parameters, scores.head_parameters = encoder.count(model)
        scores.accuracy.append(encoder.accuracy(model, splits["test"]))
        if method == AURORA:
            _merge(model, splits, scores)
    return scores


def _merge(model: nn.Module, splits: Splits, scores: Scores) -> None:
    """Calibrated on training documents; the gap is measured on others, the first of the validation documents."""

    def batches(data: Encoded) -> list[dict[str, torch.Tensor]]:
        return [data.batch(places) for places in encoder.chunks(range(len(data.ids)))][:CALIBRATION_BATCHES]

    scores.relative_gap.append(measure_merge_gap(model, batches(splits["validation"]))["relative_gap"])
    calibrated = calibrated_merge(model, batches(splits["training"]))
    scores.merged.append(encoder.accuracy(statically_merged(model), splits["test"]))
    scores.calibrated.append(encoder.accuracy(calibrated, splits["test"]))


def _head_alone(base: Classifier, splits: Splits, rates: Sequence[float], seeds: int, steps: int) -> Scores:
    """Nothing below the head trains, so the encoder runs once; the batches are those of the other methods."""
    pooled = {name: encoder.pool(base, data) for name, data in splits.items()}

    def trained(rate: float, seed: int) -> nn.Module:
        model = copy.deepcopy(base.head).requires_grad_(True)
        encoder.train(model, pooled["training"], rate, rate, steps, seed)
        return model

    validation = {}
    if len(rates) > 1:
        validation = {rate: encoder.accuracy(trained(rate, TUNING_SEED), pooled["validation"]) for rate in rates}
    scores = Scores(_chosen(validation, rates), validation, 0, sum(map(torch.numel, base.head.parameters())))
    scores.accuracy = [encoder.accuracy(trained(scores.rate, seed), pooled["test"]) for seed in range(seeds)]
    return scores
