"""DOTA's adapter (arXiv 2409.19375): class Gaussians estimated on an unlabelled stream, fused with zero-shot logits."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple, Self, SupportsIndex

import torch
from torch import Tensor

from dota_clip.config import DotaConfig
from dota_clip.discriminant import Discriminant, Whitening, whiten_matrix, whiten_variance
from dota_clip.distribution import average_, update_diagonal_, update_full_, update_mean_, update_pooled_
from dota_clip.inputs import (
    check_class_weights,
    check_config,
    check_features,
    check_label,
    check_probs,
    check_scale,
    unit_norm,
)
from dota_clip.storage import AdapterState, on_state

# The value the official code fills every coordinate of every mean with.
MEAN_FILL = 0.001
# With a probability threshold S is moved by differences; after this many fits it is summed anew against rounding.
AVERAGE_EVERY = 1000


class DotaOutput(NamedTuple):
    """What one `DotaAdapter.step` returns.

    Attributes:
        logits: (K,) fused logits z + lambda f.
        zero_shot_logits: (K,) z, the mean over the views.
        dota_logits: (K,) discriminant scores f at the mean view.
        fusion_weight: 0-d, lambda.
    """

    logits: Tensor
    zero_shot_logits: Tensor
    dota_logits: Tensor
    fusion_weight: Tensor


class DotaAdapter(AdapterState):
    """Adapts a frozen CLIP-like classifier to an unlabelled stream, one image at a time, without gradients.

    The state is float64 if ``class_weights`` is, else float32 (also after ``.half()`` or ``.to(torch.bfloat16)`` of an
    enclosing module); features of other types are converted. Attributes `mean`, `covariance` and `count` are the live
    state and change with the next update; `state_dict` returns copies.

    Args:
        class_weights: (D, K) unit-norm zero-shot class weights, one column per class.
        config: hyperparameters.
        logit_scale: s = 1 / temperature that multiplies the cosines (100 for CLIP).

    Raises:
        ValueError: class weights that are not a finite (D, K) matrix, or a logit scale that is not above 0.
    """

    kind = "dota-clip/dota"
    config_class = DotaConfig
    config: DotaConfig
    mean: Tensor
    covariance: Tensor
    count: Tensor
    num_samples: Tensor
    num_updates: Tensor
    class_mean_covariance: Tensor
    tail_covariance: Tensor | None

    @on_state
    def __init__(self, class_weights: Tensor, config: DotaConfig | None = None, logit_scale: float = 100.0) -> None:
        super().__init__()
        self.config = config if config is not None else DotaConfig()
        check_config(self.config, DotaConfig)
        self.logit_scale = check_scale(logit_scale)
        self.register_buffer("class_weights", check_class_weights(class_weights))
        dimension, classes = self.class_weights.shape
        shapes = {"full": (classes, dimension, dimension), "diagonal": (classes, dimension)}
        empty = self.class_weights.new_empty
        self.register_buffer("mean", empty(classes, dimension))
        self.register_buffer("covariance", empty(shapes.get(self.config.covariance, (dimension, dimension))))
        self.register_buffer("count", empty(classes))
        if self.config.covariance == "full":
            self.register_buffer("class_mean_covariance", empty(dimension, dimension))
        sparse = self.config.covariance == "full" and self.config.prob_threshold > 0
        self.register_buffer("tail_covariance", empty(dimension, dimension) if sparse else None)
        self.register_buffer("num_samples", torch.zeros((), dtype=torch.int64, device=self.class_weights.device))
        self.register_buffer("num_updates", torch.zeros((), dtype=torch.int64, device=self.class_weights.device))
        self.reset()

    @on_state
    def reset(self) -> None:
        """Back to the initial state (step 2): no image seen."""
        if self.config.mean_init == "text":
            self.mean.copy_(self.class_weights.T)
        else:
            self.mean.fill_(MEAN_FILL)
        if self.config.covariance == "diagonal":
            self.covariance.fill_(self.config.sigma2)
        else:
            self.covariance.zero_().diagonal(dim1=-2, dim2=-1).fill_(self.config.sigma2)
        if self.config.covariance == "full":
            self.class_mean_covariance.copy_(self.covariance[0])
        if self.tail_covariance is not None:
            self.tail_covariance.zero_()
        self.count.fill_(self.config.initial_count)
        self.num_samples.zero_()
        self.num_updates.zero_()
        self._norms_warned = self._weights_checked = False
        self._discriminant: Discriminant | None = None
        self._workspaces: dict[str, Tensor] = {}

    @property
    def num_classes(self) -> int:
        """K."""
        return self.class_weights.shape[1]

    @property
    def dimension(self) -> int:
        """D."""
        return self.class_weights.shape[0]

    @property
    def mean_covariance(self) -> Tensor:
        """S of step 4, (D, D): the unweighted mean of the class covariances ("pooled": the pooled matrix itself).

        With a probability threshold it includes the estimated part of the classes that were left alone.
        """
        if self.tail_covariance is not None:
            return self.class_mean_covariance + self.tail_covariance
        if self.config.covariance == "full":
            return self.class_mean_covariance
        return self.covariance.mean(0).diag() if self.config.covariance == "diagonal" else self.covariance

    @property
    def precision(self) -> Tensor:
        """Lambda of the current state, (D, D): I / sigma2 before the first fit, then the shrunk inverse of step 4."""
        return self._score().whitening.precision(self.dimension)

    def _score(self) -> Discriminant:
        """The scoring function of the current state, made once per state."""
        if self._discriminant is None:
            self._discriminant = Discriminant(self.mean, self._whitening(), self._scratch("means", self.num_classes))
        return self._discriminant

    def _scratch(self, name: str, rows: int) -> Tensor:
        """Memory (rows, D) that a stream allocates once and every step overwrites."""
        if name not in self._workspaces:
            self._workspaces[name] = self.mean.new_empty(rows, self.dimension)
        return self._workspaces[name]

    def _whitening(self) -> Whitening:
        variance = self.mean.new_tensor(self.config.sigma2)
        if int(self.num_updates) == 0:
            return Whitening(variance.rsqrt())  # official code: no shrinkage until the first fit
        if self.config.covariance == "fixed":
            return whiten_variance(variance, self.config.epsilon)
        if self.config.covariance == "diagonal":
            return whiten_variance(self.covariance.mean(0), self.config.epsilon)
        whole = self.class_mean_covariance if self.config.covariance == "full" else self.covariance
        return whiten_matrix(whole, self.config.epsilon, self.tail_covariance, self._scratch("square", self.dimension))

    @on_state
    def zero_shot_logits(self, features: Tensor) -> Tensor:
        """Step 1: z = s x W.

        Args:
            features: (N, D) or (D,) unit-norm image features.

        Returns:
            (N, K) logits.
        """
        return self._zero_shot(check_features(features, self.class_weights))

    def _zero_shot(self, rows: Tensor) -> Tensor:
        return (rows * self.logit_scale) @ self.class_weights  # in the official code's order of operations

    @on_state
    def predict(self, features: Tensor) -> Tensor:
        """Step 5: the discriminant scores f_k under the current state; no fusion, no update.

        Args:
            features: (N, D) or (D,) image features.

        Returns:
            (N, K) scores.

        Raises:
            ValueError: features that are not finite or not of width D.
        """
        return self._score().scores(check_features(features, self.class_weights))

    @on_state
    def update(self, features: Tensor, probs: Tensor) -> None:
        """One fit of n images with their class probabilities (steps 3 and 4, Eq. 6).

        Args:
            features: (n, D) or (D,) unit-norm image features.
            probs: (n, K) or (K,) probabilities, or one-hot labels; each row sums to 1 within 1e-2.

        Raises:
            ValueError: wrong sizes, values that are not finite, rows that are no probabilities; the state is unchanged.
        """
        rows = check_features(features, self.class_weights)
        self._fit(rows, check_probs(probs, rows, self.num_classes))
        self.num_samples += len(rows)

    def _fit(self, rows: Tensor, probs: Tensor) -> None:
        self._discriminant = None
        kind, threshold = self.config.covariance, self.config.prob_threshold
        arguments = (self.mean, rows, probs, self.count)
        if kind == "full":
            workspace = self._scratch("square", self.dimension)
            update_full_(
                self.covariance, self.class_mean_covariance, *arguments, threshold, self.tail_covariance, workspace
            )
        elif kind == "pooled":
            update_pooled_(self.covariance, *arguments, threshold)
        elif kind == "diagonal":
            update_diagonal_(self.covariance, *arguments)
        update_mean_(self.mean, rows, probs, self.count)
        self.count += probs.sum(0)
        self.num_updates += 1
        if self.tail_covariance is not None and int(self.num_updates) % AVERAGE_EVERY == 0:
            average_(self.covariance, self.class_mean_covariance)

    def _fusion_weight(self, views: int) -> Tensor:
        """Step 6: lambda = min(rho c, eta), 0-d."""
        count = self.num_samples.to(self.mean) if self.config.count == "samples" else self.count.mean() / views
        return (self.config.rho * count).clamp_max(self.config.eta)

    @on_state
    def step(self, views: Tensor, label: SupportsIndex | None = None) -> DotaOutput:
        """Scores one image and fits it: predict, fuse, fit (or, with ``update_first``, fit before the rest).

        Args:
            views: (V, D) selected unit-norm views of ONE image, or (D,). Rows are never different images.
            label: a human's answer: the fit then uses the one-hot label instead of the views' own probabilities.

        Returns:
            The fused logits and their parts.

        Raises:
            ValueError: views not finite, of wrong width or none; a label outside 0..K-1. The state is unchanged.
        """
        rows = check_features(views, self.class_weights, what="views")
        answer = None if label is None else check_label(label, self.num_classes)
        self._warn_of_norms(rows)
        view_logits = self._zero_shot(rows)
        if answer is None:
            probs = view_logits.softmax(1)
        else:
            probs = torch.zeros_like(view_logits)
            probs[:, answer] = 1
        if self.config.update_first:
            self._fit(rows, probs)
            self.num_samples += 1
        output = self._fuse(rows, view_logits)
        if not self.config.update_first:
            self._fit(rows, probs)
            self.num_samples += 1
        return output

    @on_state
    def forward(self, views: Tensor) -> DotaOutput:
        """What the current state says of one image, without learning from it.

        Args:
            views: (V, D) selected unit-norm views of ONE image, or (D,).

        Returns:
            The fused logits and their parts, as `step` gives them.

        Raises:
            ValueError: views not finite, of wrong width or none.
        """
        rows = check_features(views, self.class_weights, what="views")
        return self._fuse(rows, self._zero_shot(rows))

    def _fuse(self, rows: Tensor, view_logits: Tensor) -> DotaOutput:
        zero_shot = view_logits.mean(0)
        scores = self._score().scores(rows.mean(0, keepdim=True))[0]
        weight = self._fusion_weight(len(rows))
        return DotaOutput(torch.addcmul(zero_shot, scores, weight), zero_shot, scores, weight)

    def _warn_of_norms(self, rows: Tensor) -> None:
        """Once a stream: vectors that are not of unit norm spoil the state without an error."""
        if not self._norms_warned and not unit_norm(rows, 1):
            self._norms_warned = True
            warnings.warn("features are not of unit norm: normalise them first, DOTA assumes it", stacklevel=4)
        if not self._weights_checked:
            self._weights_checked = True
            if not unit_norm(self.class_weights, 0):
                warnings.warn("class_weights are not of unit norm: normalise them first, DOTA assumes it", stacklevel=4)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        self._discriminant = None
        self._workspaces.clear()
        return super()._apply(fn, recurse)

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        super()._load_from_state_dict(*args, **kwargs)
        self._discriminant = None
