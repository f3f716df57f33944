"""DOTA written as the formulas stand: dense (K, D, D) temporaries, a mean over all classes and an explicit inverse.

The yardstick of the tests and benchmarks; reached through the fixture `plain_dota`.
"""

import torch
from torch import Tensor


class PlainDota:
    def __init__(
        self, class_weights: Tensor, epsilon: float, sigma2: float, eta: float, rho: float, logit_scale: float
    ) -> None:
        dimension, classes = class_weights.shape
        self.weights, self.epsilon, self.eta, self.rho, self.scale = class_weights, epsilon, eta, rho, logit_scale
        self.mean = torch.full_like(class_weights.T.contiguous(), 0.001)
        identity = torch.eye(dimension, dtype=class_weights.dtype)
        self.covariance = sigma2 * identity.repeat(classes, 1, 1)
        self.count = class_weights.new_ones(classes)
        self.precision = identity / sigma2

    def predict(self, features: Tensor) -> Tensor:
        projected = self.precision @ self.mean.T
        return features @ projected - 0.5 * (self.mean.T * projected).sum(0)

    def update(self, features: Tensor, probs: Tensor) -> None:
        total = self.count + probs.sum(0)
        difference = features[:, None, :] - self.mean[None]
        scatter = torch.einsum("nk,nkd,nke->kde", probs, difference, difference)
        self.covariance = (self.count[:, None, None] * self.covariance + scatter) / total[:, None, None]
        self.mean = (self.count[:, None] * self.mean + probs.T @ features) / total[:, None]
        self.count = total
        identity = torch.eye(len(self.weights), dtype=self.weights.dtype)
        self.precision = torch.linalg.inv((1 - self.epsilon) * self.covariance.mean(0) + self.epsilon * identity)

    def step(self, views: Tensor) -> Tensor:
        logits = self.scale * views @ self.weights
        scores = self.predict(views.mean(0, keepdim=True))[0]
        weight = min(self.rho * float(self.count.mean()) / len(views), self.eta)
        self.update(views, logits.softmax(1))
        return logits.mean(0) + weight * scores
