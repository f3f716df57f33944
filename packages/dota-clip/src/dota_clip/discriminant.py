"""The Gaussian discriminant score of DOTA (steps 4 and 5): f_k(x) = x^T Lambda mu_k - 0.5 mu_k^T Lambda mu_k.

Lambda = [(1 - eps) S + eps I]^-1 is never formed: with the Cholesky factor L L^T of the shrunk covariance and
u_k = L^-1 mu_k, y = L^-1 x, the score is y^T u_k - 0.5 |u_k|^2: one factorisation and one triangular solve.
"""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor


@dataclasses.dataclass(frozen=True)
class Whitening:
    """L^-1 of the shrunk covariance in the cheapest form that represents it.

    Args:
        factor: (D, D) lower Cholesky factor for a full matrix, (D,) inverse standard deviations for a diagonal one, or
            0-d for a multiple of the identity.
    """

    factor: Tensor

    def apply(self, rows: Tensor, out: Tensor | None = None) -> Tensor:
        """L^-1 applied to each row of (n, D), into ``out`` if given."""
        if self.factor.ndim < 2:
            return torch.mul(rows, self.factor, out=out)
        # From the right, since (L^-1 M^T)^T = M L^-T takes the row-major means as they lie in memory, and all rows at
        # once: the solver needs long columns to run at full rate.
        white: Tensor = torch.linalg.solve_triangular(self.factor.mT, rows, upper=True, left=False, out=out)
        return white

    def precision(self, dimension: int) -> Tensor:
        """Lambda, (D, D)."""
        if self.factor.ndim == 2:
            return torch.cholesky_inverse(self.factor)
        return torch.diag((self.factor.square()).expand(dimension))


def whiten_matrix(mean_covariance: Tensor, epsilon: float, tail: Tensor | None, workspace: Tensor) -> Whitening:
    """Step 4 for a full matrix: the Cholesky factor of (1 - eps) S + eps I, made in the (D, D) workspace.

    S is ``mean_covariance``, (D, D), plus ``tail``, (D, D), if there is one.

    Raises:
        ValueError: the matrix is not positive definite in its precision.
    """
    shrunk = torch.mul(mean_covariance, 1 - epsilon, out=workspace)
    if tail is not None:
        shrunk.add_(tail, alpha=1 - epsilon)
    shrunk.diagonal().add_(epsilon)
    factor, info = torch.linalg.cholesky_ex(shrunk)
    if int(info):
        raise ValueError(
            f"the shrunk covariance is not positive definite in {mean_covariance.dtype}: "
            f"use float64 class weights or an epsilon above {epsilon}"
        )
    return Whitening(factor)


def whiten_variance(mean_variance: Tensor, epsilon: float) -> Whitening:
    """Step 4 for a diagonal ((D,)) or isotropic (0-d) covariance."""
    return Whitening((mean_variance * (1 - epsilon) + epsilon).rsqrt())


class Discriminant:
    """Step 5 for one state: f_k(x) = x^T Lambda mu_k - 0.5 mu_k^T Lambda mu_k.

    Args:
        mean: (K, D) class means.
        whitening: of the shrunk mean covariance.
        workspace: (K, D), overwritten with the whitened means u_k and kept, so that a stream allocates it once.
    """

    def __init__(self, mean: Tensor, whitening: Whitening, workspace: Tensor) -> None:
        self.whitening = whitening
        self.white_means = whitening.apply(mean, out=workspace)
        # not vecdot, which would make a (K, D) product first
        self.half_norms = torch.linalg.vector_norm(self.white_means, dim=1).square_().mul_(0.5)

    def scores(self, features: Tensor) -> Tensor:
        """Scores of (n, D) features, (n, K)."""
        return (self.whitening.apply(features) @ self.white_means.mT).sub_(self.half_norms)
