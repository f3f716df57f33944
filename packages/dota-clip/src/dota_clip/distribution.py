"""Online estimation of the class distributions (DOTA, Eq. 6 and steps 2 to 4): means, counts and covariances.

All functions update their first arguments in place and allocate nothing of size (K, D, D). Notation: ``features`` x is
(n, D), ``probs`` p is (n, K), ``mean`` mu is (K, D), ``count`` c is (K,), ``covariance`` Sigma is (K, D, D) or less.
"""

from __future__ import annotations

import torch
from torch import Tensor

# Rows of a (rows, D) difference block: large enough for the matrix product to run at full rate, small beside D x D.
_BLOCK = 128
# Classes summed before they join the total: keeps the float32 error of a mean over K classes near one rounding.
_PARTIAL_SUM = 32
# Up to this many elements a matrix, one call for all classes is faster on the CPU too; larger ones gain from staying in
# the cache between the operations on them. On a GPU the launches of a loop would dominate.
_SMALL_MATRIX = 128 * 128


def update_rate(count: Tensor, mass: Tensor) -> Tensor:
    """Weight a_k = P_k / (c_k + P_k) of the new images in class k, P_k = sum_n p_nk; 0 where class k has seen nothing.

    Args:
        count: (K,) counts c before the update.
        mass: (K,) probability mass P of the new images.

    Returns:
        (K,) rates in [0, 1].
    """
    total = count + mass
    return torch.where(total > 0, mass / total.clamp_min(torch.finfo(total.dtype).tiny), 0.0)


def update_mean_(mean: Tensor, features: Tensor, probs: Tensor, count: Tensor) -> None:
    """Eq. 6, mean: mu_k' = (c_k mu_k + sum_n p_nk x_n) / (c_k + sum_n p_nk), in place."""
    if len(features) == 1:
        mean.lerp_(features, update_rate(count, probs[0]).unsqueeze(1))
        return
    mass = probs.sum(0)
    total = (count + mass).clamp_min(torch.finfo(mean.dtype).tiny)
    mean.mul_((1 - update_rate(count, mass)).unsqueeze(1)).addmm_((probs / total).T, features)


def _selected(probs: Tensor, threshold: float) -> list[int] | None:
    """Classes above the threshold in any of the images; None stands for all."""
    if threshold <= 0:
        return None
    return torch.nonzero((probs > threshold).any(0)).flatten().tolist()


def update_full_(
    covariance: Tensor,
    mean_covariance: Tensor,
    mean: Tensor,
    features: Tensor,
    probs: Tensor,
    count: Tensor,
    threshold: float,
    tail: Tensor | None,
    workspace: Tensor,
) -> None:
    """Eq. 6, covariance, and the unweighted mean S = (1/K) sum_k Sigma_k of step 4, in place.

    Sigma_k' = (c_k Sigma_k + sum_n p_nk d_nk d_nk^T) / (c_k + P_k) with d_nk = x_n - mu_k and the OLD mean mu_k, which
    over-counts against Welford's recursion (weight p instead of p c / (c + p)): the paper's and the code's formula.
    Each matrix is read and written once, by a fused rank-n update. With threshold 0 S is summed again on the way; above
    0 only the classes over the threshold are touched and S moves by their difference, so the caller re-averages
    (`average_`) now and then against rounding.

    Args:
        covariance: (K, D, D), updated.
        mean_covariance: (D, D), updated.
        mean: (K, D) means before the update.
        features: (n, D).
        probs: (n, K).
        count: (K,) before the update.
        threshold: classes whose probability is at most this in every image keep their covariance; 0 updates all.
        tail: (D, D), updated: an estimate of what those classes would have added to S, see `_update_tail_`.
        workspace: (D, D), overwritten.
    """
    mass = probs.sum(0)
    rate = update_rate(count, mass)
    # q_nk = sqrt(p_nk / (c_k + P_k)): the same factor on both sides of the product keeps Sigma_k exactly symmetric.
    root = (probs / (count + mass).clamp_min(torch.finfo(rate.dtype).tiny)).sqrt_()
    classes = _selected(probs, threshold)
    if classes is None:
        if covariance.is_cuda or covariance[0].numel() <= _SMALL_MATRIX:
            _update_all_batched_(covariance, mean, features, root, rate)
            average_(covariance, mean_covariance)
        else:
            every = range(len(covariance))
            _update_classes_(
                covariance, mean, features, root, rate, every, total=mean_covariance.zero_(), partial=workspace
            )
            mean_covariance.div_(len(covariance))
        return
    if tail is not None:
        _update_tail_(tail, mean_covariance, mean, features, root, rate, classes)
    _update_classes_(covariance, mean, features, root, rate, classes, moving=mean_covariance)
    for start in range(0, len(classes), _BLOCK):
        index = torch.tensor(classes[start : start + _BLOCK], device=mean.device)
        for x, q in zip(features, root, strict=True):
            difference = (x - mean[index]).mul_(q[index, None])
            mean_covariance.addmm_(difference.T, difference, alpha=1 / len(covariance))


def _update_tail_(
    tail: Tensor,
    mean_covariance: Tensor,
    mean: Tensor,
    features: Tensor,
    root: Tensor,
    rate: Tensor,
    classes: list[int],
) -> None:
    """Estimates T, what the classes below the threshold would have added to S, in O(D^2) (not in the paper), in place.

    Each of them has little probability, but together they may have a percent, all of it along the same image. Exact
    would be T' = T + (1/K) [sum_tail a_k (d_k d_k^T - Sigma_k)] - (1/K) sum_k a_k tau_k, where tau_k is the part of T
    that belongs to class k. Here d_k becomes the tail's mean difference, Sigma_k and tau_k the means S and T over all
    classes, so that what is left out is of second order.
    """
    weight = root.square().index_fill_(1, torch.tensor(classes, dtype=torch.long, device=root.device), 0)
    tail.mul_(1 - rate.mean()).add_(mean_covariance, alpha=-float(weight.sum()) / len(rate))
    difference = _joint_difference(mean, features, weight / len(rate))
    tail.addmm_(difference.T, difference)


def _joint_difference(mean: Tensor, features: Tensor, weight: Tensor) -> Tensor:
    """(n, D) rows sqrt(W_n) (x_n - m_n), where W_n = sum_k w_nk and m_n is the weighted mean of the means."""
    share = weight.sum(1, keepdim=True)
    center = (weight / share.clamp_min(torch.finfo(share.dtype).tiny)) @ mean
    return (features - center).mul_(share.sqrt())


def _update_classes_(
    covariance: Tensor,
    mean: Tensor,
    features: Tensor,
    root: Tensor,
    rate: Tensor,
    classes: range | list[int],
    *,
    total: Tensor | None = None,
    partial: Tensor | None = None,
    moving: Tensor | None = None,
) -> None:
    """One fused rank-n update per class matrix.

    If ``total`` and the workspace ``partial`` are given, the updated matrices are summed into the former; if ``moving``
    is, it loses what each old matrix loses, divided by K. Both happen while the matrix is in the cache.
    """
    lost = rate.tolist()
    if partial is not None:
        partial.zero_()
    for position, k in enumerate(classes, 1):
        matrix = covariance[k]
        difference = (features - mean[k]).mul_(root[:, k, None])
        if moving is not None:
            moving.add_(matrix, alpha=-lost[k] / len(covariance))
        # addr and addmm with beta scale, add and store in one pass over the D x D matrix: that pass bounds the time
        if len(features) == 1:
            torch.addr(matrix, difference[0], difference[0], beta=1 - lost[k], out=matrix)
        else:
            torch.addmm(matrix, difference.T, difference, beta=1 - lost[k], out=matrix)
        if total is not None and partial is not None:
            partial.add_(matrix)
            if position % _PARTIAL_SUM == 0 or position == len(classes):
                total.add_(partial)
                partial.zero_()


def _update_all_batched_(covariance: Tensor, mean: Tensor, features: Tensor, root: Tensor, rate: Tensor) -> None:
    """The same update of all classes in two in-place kernels."""
    difference = (features.unsqueeze(0) - mean.unsqueeze(1)).mul_(root.T.unsqueeze(2))  # (K, n, D)
    covariance.mul_((1 - rate)[:, None, None]).baddbmm_(difference.mT, difference)


def average_(covariance: Tensor, mean_covariance: Tensor) -> None:
    """Step 4: S = (1/K) sum_k Sigma_k, in place, a few classes at a time."""
    mean_covariance.zero_()
    for block in covariance.split(_PARTIAL_SUM):
        mean_covariance.add_(block.sum(0))
    mean_covariance.div_(len(covariance))


def update_pooled_(
    pooled: Tensor, mean: Tensor, features: Tensor, probs: Tensor, count: Tensor, threshold: float
) -> None:
    """Pooled covariance (not in the paper), in place: S' = (C S + sum_nk p_nk d_nk d_nk^T) / (C + sum_nk p_nk).

    C = sum_k c_k. It equals sum_k c_k Sigma_k / sum_k c_k of the full form. Classes at or below the threshold in every
    image enter together, by their mean difference, instead of one by one.

    Args:
        pooled: (D, D), updated.
        mean: (K, D) means before the update.
        features: (n, D).
        probs: (n, K).
        count: (K,) before the update.
        threshold: as in `update_full_`.
    """
    total = count.sum() + probs.sum()
    if not bool(total > 0):
        return
    pooled.mul_(1 - probs.sum() / total)
    classes = _selected(probs, threshold)
    if classes is not None:
        index = torch.tensor(classes, dtype=torch.long, device=mean.device)
        difference = _joint_difference(mean, features, probs.index_fill(1, index, 0) / total)
        pooled.addmm_(difference.T, difference)
        mean, probs = mean[index], probs[:, index]
    root = (probs / total).sqrt_()
    for x, q in zip(features, root, strict=True):
        for start in range(0, len(mean), _BLOCK):
            rows = slice(start, start + _BLOCK)
            difference = (x - mean[rows]).mul_(q[rows, None])
            pooled.addmm_(difference.T, difference)


def update_diagonal_(variance: Tensor, mean: Tensor, features: Tensor, probs: Tensor, count: Tensor) -> None:
    """Diagonal covariance (not in the paper): Eq. 6 on the D variances of each class, in place and always exact.

    Args:
        variance: (K, D), updated.
        mean: (K, D) means before the update.
        features: (n, D).
        probs: (n, K).
        count: (K,) before the update.
    """
    mass = probs.sum(0)
    weight = probs / (count + mass).clamp_min(torch.finfo(mean.dtype).tiny)
    variance.mul_((1 - update_rate(count, mass)).unsqueeze(1))
    for x, w in zip(features, weight, strict=True):
        for start in range(0, len(mean), _BLOCK):
            rows = slice(start, start + _BLOCK)
            variance[rows].addcmul_((x - mean[rows]).square_(), w[rows, None])
