"""The training objective in normalised space: lambda NLL + (1 - lambda) robust loss (paper, section 3)."""

from __future__ import annotations

import dataclasses
import math

import torch
from torch import Tensor
from torch.distributions import Distribution

from toto_ts.model import TotoOutput


def nll(distribution: Distribution, target: Tensor) -> Tensor:
    """Negative log-density of normalised targets, element by element."""
    return -distribution.log_prob(target)


def general_robust_loss(residual: Tensor, delta: float, alpha: float) -> Tensor:
    """Barron's general robust loss rho(e) with scale delta (arXiv 1701.03077, eq. 8).

    alpha = 2: (e/delta)^2 / 2; alpha = 0 (Cauchy): log(1 + (e/delta)^2 / 2); alpha = -inf (Welsch):
    1 - exp(-(e/delta)^2 / 2); otherwise (|alpha-2|/alpha) (((e/delta)^2/|alpha-2| + 1)^(alpha/2) - 1).

    Args:
        residual: e, any shape.
        delta: scale, above 0.
        alpha: shape, at most 2; the smaller, the less an outlier counts.

    Returns:
        rho(e), of the residual's shape.

    Raises:
        ValueError: alpha above 2, or delta not above 0.
    """
    _check_robust(delta, alpha)
    squared = (residual / delta).square()
    if alpha == 2:
        return squared / 2
    if alpha == 0:
        return torch.log1p(squared / 2)
    if alpha == -math.inf:
        return -torch.expm1(-squared / 2)
    distance = abs(alpha - 2)
    # expm1 and log1p keep the digits near alpha = 0 and near e = 0
    return distance / alpha * torch.expm1(alpha / 2 * torch.log1p(squared / distance))


def _check_robust(delta: float, alpha: float) -> None:
    if not alpha <= 2:
        raise ValueError(f"alpha must be at most 2, got {alpha}")
    if not (delta > 0 and math.isfinite(delta)):
        raise ValueError(f"delta must be a finite number above 0, got {delta}")


@dataclasses.dataclass(frozen=True)
class CompositeLoss:
    """lambda NLL(y) + (1 - lambda) rho(mean - y), element by element.

    Args:
        lambda_nll: weight of the likelihood, in [0, 1] (the paper prints 0.57, the code has 0.575).
        delta: scale of the robust loss.
        alpha: its shape.

    Raises:
        ValueError: a value outside its range.
    """

    lambda_nll: float = 0.575
    delta: float = 0.1
    alpha: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.lambda_nll <= 1:
            raise ValueError(f"lambda_nll must be in [0, 1], got {self.lambda_nll}")
        _check_robust(self.delta, self.alpha)

    def __call__(self, distribution: Distribution, target: Tensor) -> Tensor:
        """The loss of normalised targets, of their shape."""
        robust = general_robust_loss(distribution.mean - target, self.delta, self.alpha)
        return self.lambda_nll * nll(distribution, target) + (1 - self.lambda_nll) * robust


def next_patch_loss(
    output: TotoOutput,
    targets: Tensor,
    target_padding_mask: Tensor | None = None,
    *,
    loss: CompositeLoss | None = None,
    num_exogenous: int = 0,
) -> Tensor:
    """Mean loss of the next patch: sum over valid target positions / (their count + eps).

    Args:
        output: of the model on the inputs.
        targets: `(batch, variates, time)`, the series one patch later, in data units; NaN counts as masked.
        target_padding_mask: bool of the same shape, True = valid; default all.
        loss: element-wise loss of (distribution, normalised target).
        num_exogenous: how many of the last variates are exogenous; they never count.

    Returns:
        A scalar.

    Raises:
        ValueError: a shape that does not fit.
    """
    total, count = next_patch_loss_terms(output, targets, target_padding_mask, loss=loss, num_exogenous=num_exogenous)
    return total / (count + torch.finfo(total.dtype).eps)


def next_patch_loss_terms(
    output: TotoOutput,
    targets: Tensor,
    target_padding_mask: Tensor | None = None,
    *,
    loss: CompositeLoss | None = None,
    num_exogenous: int = 0,
) -> tuple[Tensor, Tensor]:
    """Sum and count of :func:`next_patch_loss`, which several processes add up before they divide."""
    shape = output.distribution.batch_shape
    if targets.shape != shape:
        raise ValueError(f"targets must be {tuple(shape)}, as the output is, got {tuple(targets.shape)}")
    if target_padding_mask is not None and target_padding_mask.shape != shape:
        raise ValueError(f"target_padding_mask must be {tuple(shape)}, got {tuple(target_padding_mask.shape)}")
    if not 0 <= num_exogenous < shape[1]:
        raise ValueError(f"num_exogenous must be between 0 and {shape[1] - 1}, got {num_exogenous}")
    mask = ~targets.isnan()
    if target_padding_mask is not None:
        mask &= target_padding_mask.bool()
    mask[:, shape[1] - num_exogenous :] = False
    # Masked targets are put at loc: a masked position must not spoil the gradient, whatever it holds.
    known = torch.where(mask, targets, output.loc)
    normalised = (known - output.loc) / (output.scale + torch.finfo(output.scale.dtype).eps)
    elementwise = (loss or CompositeLoss())(output.distribution, normalised.to(output.distribution.mean.dtype))
    return torch.where(mask, elementwise, 0).sum(), mask.sum()
