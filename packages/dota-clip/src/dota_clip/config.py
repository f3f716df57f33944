"""Hyperparameters of DOTA (arXiv 2409.19375) and of the cache baseline TDA, validated on construction."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, Literal, get_args

MeanInit = Literal["constant", "text"]
Covariance = Literal["full", "pooled", "diagonal", "fixed"]
Count = Literal["mean", "samples"]


def _require(holds: bool, name: str, value: object, accepted: str) -> None:
    if not holds:
        raise ValueError(f"{name} must be {accepted}, got {value!r}")


def _number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


@dataclasses.dataclass(frozen=True)
class DotaConfig:
    """Hyperparameters of DOTA; the defaults are a general setting, not tuned for any data set.

    Args:
        epsilon: shrinkage of the mean covariance towards the identity, in (0, 1] (paper and code: 1e-4).
        sigma2: initial variance of every class in every direction (the official configuration key ``sigma`` is this
            variance, not its root).
        eta: upper bound of the fusion weight; 0 returns the zero-shot logits.
        rho: growth of the fusion weight per unit of count.
        mean_init: "constant" starts every coordinate of every mean at 0.001 (official code), "text" at class weights.
        covariance: "full" keeps one D x D matrix per class (the paper); "pooled" keeps one matrix, the count-weighted
            mean of all (a different estimator, not in the paper); "diagonal" keeps variances only (not in the paper);
            "fixed" never updates the covariance (the paper's ablation).
        update_first: fit the current image before scoring it (the paper's Algorithm 1), not after (official code).
        count: what grows the fusion weight: "mean" is mean_k c_k / V (official code), "samples" the number of images
            seen before (paper).
        prob_threshold: an update leaves the covariances of classes with at most this probability alone and accounts for
            all of them together; 0 is exact, 1e-4 is much faster. Means and counts are always updated. Without effect
            on "diagonal", which is always exact.
        initial_count: weight of the initial mean and covariance in images (official code 1, paper 0).

    Raises:
        ValueError: a value outside its range, or an unknown option; the message names field, value and range.
    """

    epsilon: float = 1e-4
    sigma2: float = 0.002
    eta: float = 0.3
    rho: float = 0.02
    mean_init: MeanInit = "constant"
    covariance: Covariance = "full"
    update_first: bool = False
    count: Count = "mean"
    prob_threshold: float = 0.0
    initial_count: float = 1.0

    def __post_init__(self) -> None:
        _require(_number(self.epsilon) and 0 < self.epsilon <= 1, "epsilon", self.epsilon, "in (0, 1]")
        _require(_number(self.sigma2) and self.sigma2 > 0, "sigma2", self.sigma2, "a variance above 0")
        _require(_number(self.eta) and self.eta >= 0, "eta", self.eta, "at least 0")
        _require(_number(self.rho) and self.rho >= 0, "rho", self.rho, "at least 0")
        for name, options in (("mean_init", MeanInit), ("covariance", Covariance), ("count", Count)):
            value = getattr(self, name)
            _require(value in get_args(options), name, value, "one of " + ", ".join(get_args(options)))
        _require(isinstance(self.update_first, bool), "update_first", self.update_first, "True or False")
        threshold = self.prob_threshold
        _require(_number(threshold) and 0 <= threshold < 1, "prob_threshold", threshold, "in [0, 1)")
        _require(
            _number(self.initial_count) and self.initial_count >= 0, "initial_count", self.initial_count, "at least 0"
        )


def _interval(name: str, value: Any) -> None:
    ok = isinstance(value, (tuple, list)) and len(value) == 2 and all(map(_number, value)) and value[0] < value[1]
    _require(ok, name, value, "a pair (low, high) with low < high")


@dataclasses.dataclass(frozen=True)
class TDAConfig:
    """Hyperparameters of the cache baseline TDA (Karmanov et al., CVPR 2024).

    Args:
        positive_shot_capacity: entries kept per class in the positive cache.
        positive_alpha: weight of the positive cache in the logits.
        positive_beta: sharpness of the similarity in the positive cache.
        negative: use the negative cache as well.
        negative_shot_capacity: entries kept per class in the negative cache.
        negative_alpha: weight of the negative cache.
        negative_beta: sharpness of the similarity in the negative cache.
        negative_entropy: only images whose normalised entropy h / log2(K) (h in nats) lies strictly between these two
            enter the negative cache.
        negative_mask: a class counts against an entry if its probability lies strictly between these two.

    Raises:
        ValueError: a value outside its range; the message names field, value and range.
    """

    positive_shot_capacity: int = 3
    positive_alpha: float = 2.0
    positive_beta: float = 5.0
    negative: bool = True
    negative_shot_capacity: int = 2
    negative_alpha: float = 0.117
    negative_beta: float = 1.0
    negative_entropy: tuple[float, float] = (0.2, 0.5)
    negative_mask: tuple[float, float] = (0.03, 1.0)

    def __post_init__(self) -> None:
        for name in ("positive_shot_capacity", "negative_shot_capacity"):
            value = getattr(self, name)
            _require(
                isinstance(value, int) and not isinstance(value, bool) and value >= 1,
                name,
                value,
                "a whole number of at least 1",
            )
        for name in ("positive_alpha", "positive_beta", "negative_alpha", "negative_beta"):
            value = getattr(self, name)
            _require(_number(value) and value >= 0, name, value, "at least 0")
        _require(isinstance(self.negative, bool), "negative", self.negative, "True or False")
        for name in ("negative_entropy", "negative_mask"):
            _interval(name, getattr(self, name))
            object.__setattr__(self, name, tuple(getattr(self, name)))  # JSON gives lists back
