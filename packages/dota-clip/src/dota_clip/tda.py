"""TDA, the training-free cache baseline (Karmanov et al., CVPR 2024) that DOTA is compared with."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from dota_clip.config import TDAConfig
from dota_clip.inputs import check_class_weights, check_config, check_features, check_scale
from dota_clip.storage import AdapterState, on_state
from dota_clip.views import entropy


class TDAOutput(NamedTuple):
    """What one `TDAAdapter.step` returns: adapted and zero-shot logits, each (K,)."""

    logits: Tensor
    zero_shot_logits: Tensor


class TDAAdapter(AdapterState):
    """Keeps, per class, the most confident features seen so far and lets them vote; all classes are handled at once.

    Args:
        class_weights: (D, K) unit-norm zero-shot class weights.
        config: hyperparameters.
        logit_scale: multiplies the cosines.

    Raises:
        ValueError: class weights that are not a finite (D, K) matrix, or a logit scale that is not above 0.
    """

    kind = "dota-clip/tda"
    config_class = TDAConfig
    config: TDAConfig
    positive_features: Tensor
    positive_entropy: Tensor
    negative_features: Tensor
    negative_entropy: Tensor
    negative_mask: Tensor

    @on_state
    def __init__(self, class_weights: Tensor, config: TDAConfig | None = None, logit_scale: float = 100.0) -> None:
        super().__init__()
        self.config = config if config is not None else TDAConfig()
        check_config(self.config, TDAConfig)
        self.logit_scale = check_scale(logit_scale)
        self.register_buffer("class_weights", check_class_weights(class_weights))
        dimension, classes = self.class_weights.shape
        empty = self.class_weights.new_empty
        shots = {"positive": self.config.positive_shot_capacity}
        if self.config.negative:
            shots["negative"] = self.config.negative_shot_capacity
        for cache, capacity in shots.items():
            self.register_buffer(f"{cache}_features", empty(classes, capacity, dimension))
            self.register_buffer(f"{cache}_entropy", empty(classes, capacity))
        if self.config.negative:
            mask_shape = (classes, self.config.negative_shot_capacity, classes)
            self.register_buffer(
                "negative_mask", torch.empty(mask_shape, dtype=torch.bool, device=self.class_weights.device)
            )
        self.reset()

    @on_state
    def reset(self) -> None:
        """Empties the caches. A free place has infinite entropy, so that every entry is better than it."""
        self.positive_features.zero_()
        self.positive_entropy.fill_(math.inf)
        if self.config.negative:
            self.negative_features.zero_()
            self.negative_entropy.fill_(math.inf)
            self.negative_mask.zero_()

    @property
    def num_classes(self) -> int:
        """K."""
        return self.class_weights.shape[1]

    @on_state
    def step(self, view: Tensor) -> TDAOutput:
        """Caches one image if it is confident enough, then adds the caches' votes to its zero-shot logits.

        Args:
            view: (D,) or (1, D) unit-norm image feature.

        Raises:
            ValueError: a feature that is not finite, of wrong width, or more than one; the caches are unchanged.
        """
        rows = check_features(view, self.class_weights, what="view")
        if len(rows) != 1:
            raise ValueError(f"TDA takes one view an image, got {len(rows)}; pass the mean of the selected views")
        feature = rows[0]
        zero_shot = (feature * self.logit_scale) @ self.class_weights
        probs = zero_shot.softmax(0)
        uncertainty = entropy(probs)
        predicted = int(zero_shot.argmax())
        _insert_(self.positive_entropy[predicted], uncertainty, (self.positive_features[predicted], feature))
        logits = zero_shot + self._positive_votes(feature)
        if self.config.negative:
            low, high = self.config.negative_entropy
            # nats over log2(K), as the official code normalises; one class has no entropy to speak of
            if self.num_classes > 1 and low < float(uncertainty) / math.log2(self.num_classes) < high:
                least, most = self.config.negative_mask
                mask = (probs > least) & (probs < most)
                entries = (self.negative_features[predicted], feature), (self.negative_mask[predicted], mask)
                _insert_(self.negative_entropy[predicted], uncertainty, *entries)
            logits -= self._negative_votes(feature)
        return TDAOutput(logits, zero_shot)

    def _positive_votes(self, feature: Tensor) -> Tensor:
        votes = _affinity(self.positive_features @ feature, self.config.positive_alpha, self.config.positive_beta)
        return votes.masked_fill_(self.positive_entropy.isinf(), 0).sum(1)

    def _negative_votes(self, feature: Tensor) -> Tensor:
        held = ~self.negative_entropy.isinf()
        votes = _affinity(self.negative_features[held] @ feature, self.config.negative_alpha, self.config.negative_beta)
        return votes @ self.negative_mask[held].to(votes)


def _affinity(similarity: Tensor, alpha: float, beta: float) -> Tensor:
    """Alpha exp(-beta (1 - x.x_i))."""
    return similarity.sub_(1).mul_(beta).exp_().mul_(alpha)


def _insert_(entropies: Tensor, value: Tensor, *entries: tuple[Tensor, Tensor]) -> None:
    """Inserts an entry into one class's sorted cache, in place; a full cache loses its entry of largest entropy."""
    position = int((entropies <= value).sum())  # behind equals: the earlier entry stays first
    if position == len(entropies):
        return
    for cache, entry in ((entropies, value), *entries):
        cache[position + 1 :] = cache[position:-1].clone()
        cache[position] = entry
