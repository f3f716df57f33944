"""The output of Toto: a Student-T, or a mixture of them, for each predicted time step (paper, section 3).

Between `unembed` (D -> P D) and the heads (D -> K) stands no nonlinearity, so that for prediction both are one linear
map (:func:`composed_projection`), an eighth of the work at the released size.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.distributions import Categorical, Distribution, MixtureSameFamily, StudentT
from torch.nn import functional


class StudentTParameters(NamedTuple):
    """Components of the predicted distributions in normalised space, `(..., K)` each, in float32 at least.

    Attributes:
        df: degrees of freedom, above 2, so that the variance exists.
        loc: locations.
        scale: scales.
        probs: weights of the components; they sum to 1.
    """

    df: Tensor
    loc: Tensor
    scale: Tensor
    probs: Tensor


class Projections(NamedTuple):
    """What the heads give, `(..., K)` each in float32 at least, before it is made parameters.

    Attributes:
        df: of the degrees of freedom.
        loc: locations, as they are.
        scale: of the scales.
        logits: of the weights; None for a single component.
    """

    df: Tensor
    loc: Tensor
    scale: Tensor
    logits: Tensor | None

    @classmethod
    def of(cls, projected: Tensor, num_components: int) -> Projections:
        """From the heads' outputs side by side, `(..., 3 K or 4 K)`."""
        # half precision is widened: a bfloat16 sample has two digits
        wide = projected if projected.dtype == torch.float64 else projected.float()
        parts = wide.split(num_components, -1)
        return cls(parts[0], parts[1], parts[2], parts[3] if len(parts) > 3 else None)

    def map(self, change: Callable[[Tensor], Tensor]) -> Projections:
        """The same change to each."""
        logits = None if self.logits is None else change(self.logits)
        return Projections(change(self.df), change(self.loc), change(self.scale), logits)

    def probs(self) -> Tensor:
        """Apply pi = softmax(logits)."""
        return torch.ones_like(self.loc) if self.logits is None else self.logits.softmax(-1)

    def mean(self) -> Tensor:
        """sum_k pi_k loc_k, `(...)`."""
        return (self.probs() * self.loc).sum(-1)

    def component(self, index: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """df, loc and scale of one component each, `(...)`, from its index `(..., 1)`, broadcast."""
        shape = (*index.shape[:-1], self.loc.shape[-1])
        df, loc, scale = (field.expand(shape).gather(-1, index).squeeze(-1) for field in self[:3])
        return degrees_of_freedom(df), loc, scales(scale)

    def parameters(self) -> StudentTParameters:
        """Of all components."""
        return StudentTParameters(degrees_of_freedom(self.df), self.loc, scales(self.scale), self.probs())


def degrees_of_freedom(projected: Tensor) -> Tensor:
    """Apply df = 2 + max(softplus(x), eps), and never 2 itself."""
    eps = torch.finfo(projected.dtype).eps
    # 2 + eps is rounded to 2, where the variance is infinite
    return (2 + functional.softplus(projected)).clamp_min(2 + 2 * eps)


def scales(projected: Tensor) -> Tensor:
    """Apply scale = max(softplus(x), eps)."""
    return functional.softplus(projected).clamp_min(torch.finfo(projected.dtype).eps)


class OutputDistribution(nn.Module, ABC):
    """Contract of the two heads: D features per predicted time step in, a distribution out.

    Args:
        embed_dim: D.
        num_components: K.
    """

    def __init__(self, embed_dim: int, num_components: int) -> None:
        super().__init__()
        self.num_components = num_components
        self.df = nn.Linear(embed_dim, num_components)
        self.loc_proj = nn.Linear(embed_dim, num_components)
        self.scale_proj = nn.Linear(embed_dim, num_components)

    @property
    def projections(self) -> list[nn.Linear]:
        """df, loc, scale and, for a mixture, the weights."""
        return [self.df, self.loc_proj, self.scale_proj]

    def project(self, features: Tensor) -> Projections:
        """The heads on `(..., D)` features."""
        return Projections.of(torch.cat([linear(features) for linear in self.projections], -1), self.num_components)

    def forward(self, features: Tensor) -> Distribution:
        """The distribution of `(..., D)` features, with batch shape `(...)`, in normalised space."""
        return self.distribution(self.project(features).parameters())

    @abstractmethod
    def distribution(self, parameters: StudentTParameters) -> Distribution:
        """The torch distribution with these parameters."""


class StudentTOutput(OutputDistribution):
    """One Student-T a time step.

    Args:
        embed_dim: D.
    """

    def __init__(self, embed_dim: int) -> None:
        super().__init__(embed_dim, 1)

    def distribution(self, parameters: StudentTParameters) -> Distribution:
        """`StudentT` of batch shape `(...)`."""
        df, loc, scale, _ = (parameter.squeeze(-1) for parameter in parameters)
        return StudentT(df, loc, scale, validate_args=False)


class MixtureOfStudentTsOutput(OutputDistribution):
    """A mixture of K Student-Ts a time step.

    Args:
        embed_dim: D.
        num_components: K.
    """

    def __init__(self, embed_dim: int, num_components: int) -> None:
        super().__init__(embed_dim, num_components)
        self.mixture_weights = nn.Linear(embed_dim, num_components)

    @property
    def projections(self) -> list[nn.Linear]:
        """df, loc, scale and the weights."""
        return [*super().projections, self.mixture_weights]

    def distribution(self, parameters: StudentTParameters) -> Distribution:
        """`MixtureSameFamily(Categorical, StudentT)` of batch shape `(...)`."""
        return MixtureSameFamily(
            Categorical(probs=parameters.probs, validate_args=False),
            StudentT(parameters.df, parameters.loc, parameters.scale, validate_args=False),
            validate_args=False,
        )


class ComposedProjection(NamedTuple):
    """`unembed` followed by the heads as one linear map.

    Attributes:
        weight: `(P * k, D)` with k = 3 K or 4 K.
        bias: `(P * k)`.
        patch_size: P.
    """

    weight: Tensor
    bias: Tensor
    patch_size: int

    def __call__(self, hidden: Tensor) -> Tensor:
        """`(..., D)` of one patch -> `(..., P, k)`, each predicted time step's projections."""
        projected: Tensor = functional.linear(hidden, self.weight, self.bias).unflatten(-1, (self.patch_size, -1))
        return projected


@torch.no_grad()
def composed_projection(unembed: nn.Linear, output: OutputDistribution, patch_size: int) -> ComposedProjection:
    """W' = W_heads W_unembed for each offset in the patch, and the bias likewise; equal up to rounding."""
    dtype = torch.float64 if unembed.weight.dtype == torch.float64 else torch.float32
    heads = torch.cat([linear.weight for linear in output.projections]).to(dtype)
    head_bias = torch.cat([linear.bias for linear in output.projections]).to(dtype)
    weight = heads @ unembed.weight.to(dtype).unflatten(0, (patch_size, -1))
    bias = unembed.bias.to(dtype).unflatten(0, (patch_size, -1)) @ heads.T + head_bias
    return ComposedProjection(
        weight.flatten(0, 1).to(unembed.weight.dtype), bias.flatten().to(unembed.bias.dtype), patch_size
    )
