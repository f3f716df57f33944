"""How the residual stream turns from layer to layer: ridge maps to input and output, rotations, layer similarity.

Paper section 5. A layer's hidden state is what its block gives out, before the final norm; layer 0 is the input of the
first block. transformers returns the last hidden state behind the final norm, so the states are taken by hooks.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, nullcontext
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from bigram_subnet.ablation import check_ids
from bigram_subnet.masking import masked
from bigram_subnet.selection import block_list

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_MOST_NAN = 0.01  # share of positions


class ResidualStates(NamedTuple):
    """Hidden states of some token positions, float32.

    Args:
        embeddings: (positions, d) token embeddings alone, X_in.
        layers: layers + 1 times (positions, d): the input of the first block, then every block's output; the last one
            is X_out.
        input_ids: (positions,) the tokens.
    """

    embeddings: Tensor
    layers: tuple[Tensor, ...]
    input_ids: Tensor


class Rotation(NamedTuple):
    """Median angles, in degrees, of the maps from a layer to the token embeddings and to the last layer's output."""

    to_input: float
    to_output: float


@torch.no_grad()
def residual_states(model: PreTrainedModel, input_ids: Tensor, batch_size: int = 8) -> Iterator[ResidualStates]:
    """The hidden states of a model, ``batch_size`` sequences at a time, without positions that hold NaN.

    Args:
        model: a causal language model.
        input_ids: (sequences, length) token ids.
        batch_size: sequences at a time.

    Raises:
        ValueError: ids outside of the vocabulary, or more than 1 % of the positions with NaN.
    """
    check_ids(model, input_ids)
    _, blocks = block_list(model)
    seen: list[Tensor] = []

    def before(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        seen.append(_hidden(args[0] if args else kwargs["hidden_states"], model.device))

    def after(module: Any, args: Any, output: Any) -> None:
        seen.append(_hidden(output, model.device))

    training, dropped = model.training, 0
    model.eval()
    with ExitStack() as stack:
        stack.callback(model.train, training)
        stack.callback(blocks[0].register_forward_pre_hook(before, with_kwargs=True).remove)
        for block in blocks:
            stack.callback(block.register_forward_hook(after).remove)
        for ids in input_ids.split(batch_size):
            seen.clear()
            placed = ids.long().to(model.device)
            model(input_ids=placed, use_cache=False)
            embeddings = model.get_input_embeddings()(placed).flatten(0, 1).float()
            good = torch.stack([state.isfinite().all(-1) for state in seen]).all(0)
            dropped += int((~good).sum())
            yield ResidualStates(embeddings[good], tuple(s[good] for s in seen), placed.flatten()[good])
    if dropped > _MOST_NAN * input_ids.numel():
        raise ValueError(f"{dropped} of {input_ids.numel()} positions are not finite, at most 1 % may be")


def _hidden(output: Any, device: torch.device) -> Tensor:
    state: Tensor = output[0] if isinstance(output, (tuple, list)) else output
    return state.detach().flatten(0, 1).to(device, torch.float32)


class RidgeSums:
    """The sums of a ridge regression, so that states need not be kept: x and y of any number of batches.

    Args:
        alpha: weight of the squared coefficients.
    """

    def __init__(self, alpha: float = 1.0) -> None:
        if not 0 <= alpha < math.inf:
            raise ValueError(f"alpha must be finite and at least 0, got {alpha!r}")
        self.alpha = alpha
        self._count = 0
        self._sums: tuple[Tensor, ...] | None = None

    def add(self, x: Tensor, y: Tensor) -> None:
        """Adds samples: x (samples, in), y (samples, out)."""
        if x.ndim != 2 or y.ndim != 2 or len(x) != len(y):
            raise ValueError(f"expected samples in rows of both, got {tuple(x.shape)} and {tuple(y.shape)}")
        a, b = x.double(), y.double()
        new = (a.sum(0), b.sum(0), a.T @ a, a.T @ b)
        self._sums = new if self._sums is None else tuple(old + more for old, more in zip(self._sums, new, strict=True))
        self._count += len(x)

    def solve(self) -> tuple[Tensor, Tensor]:
        """(coefficient (out, in), intercept (out,)), float64: the minimum of |y - Cx - c|^2 + alpha |C|^2.

        Raises:
            ValueError: no sample, or alpha 0 and samples that do not determine the map.
        """
        if self._sums is None or not self._count:
            raise ValueError("a ridge regression needs at least one sample")
        x_sum, y_sum, xx, xy = self._sums
        x_mean, y_mean = x_sum / self._count, y_sum / self._count
        gram = xx - self._count * torch.outer(x_mean, x_mean)
        gram.diagonal().add_(self.alpha)
        try:
            coefficient = torch.linalg.solve(gram, xy - self._count * torch.outer(x_mean, y_mean)).T
        except RuntimeError as error:  # LinAlgError is one
            raise ValueError(f"the samples do not determine the map; take more, or alpha above 0 ({error})") from None
        return coefficient, y_mean - coefficient @ x_mean


def ridge_map(x: Tensor, y: Tensor, alpha: float = 1.0) -> tuple[Tensor, Tensor]:
    """Ridge regression with an intercept, y ~ C x + c [paper 5]; the intercept is not penalised.

    Args:
        x: (samples, in).
        y: (samples, out).
        alpha: weight of the squared coefficients.

    Returns:
        Coefficient (out, in) and intercept (out,), in the dtype of y, computed in float64.

    Raises:
        ValueError: shapes that do not belong together, no sample, or a negative alpha.
    """
    sums = RidgeSums(alpha)
    sums.add(x - x.mean(0), y)  # centred before it is squared, for samples far from 0
    coefficient, intercept = sums.solve()
    intercept = intercept - coefficient @ x.double().mean(0)
    return coefficient.to(y.dtype), intercept.to(y.dtype)


def rotation_angle(coefficient: Tensor) -> float:
    """The median over the eigenvalues of a square map of their absolute angle, in degrees, in [0, 180] [paper 5].

    Args:
        coefficient: (d, d).

    Raises:
        ValueError: a map that is not square, or not finite.
    """
    if coefficient.ndim != 2 or coefficient.shape[0] != coefficient.shape[1]:
        raise ValueError(f"a rotation needs a square map, got {tuple(coefficient.shape)}")
    if not bool(coefficient.isfinite().all()):
        raise ValueError("the map must be finite")
    angles = torch.linalg.eigvals(coefficient.double()).angle().abs()
    return float(torch.rad2deg(angles).quantile(0.5))


def layer_rotations(
    model: PreTrainedModel,
    input_ids: Tensor,
    mask: Mapping[str, Tensor] | None = None,
    alpha: float = 1.0,
    batch_size: int = 8,
) -> list[Rotation]:
    """How far each layer's residual stream is turned from the token embeddings and from the last layer's output.

    Args:
        model: a causal language model; its weights are restored if a mask is given.
        input_ids: (sequences, length) token ids, all of whose positions count.
        mask: look at the masked model.
        alpha: of the ridge regressions.
        batch_size: sequences at a time.

    Returns:
        Layers + 1 pairs: the input of the first block (its angle to the token embeddings is 0 where positions are not
        added to them), then the output of every block.

    Raises:
        ValueError: a mask that does not fit, ids outside of the vocabulary, or states that are not finite.
    """
    pairs: list[tuple[RidgeSums, RidgeSums]] = []
    with nullcontext() if mask is None else masked(model, mask):
        for states in residual_states(model, input_ids, batch_size):
            pairs = pairs or [(RidgeSums(alpha), RidgeSums(alpha)) for _ in states.layers]
            for (to_input, to_output), layer in zip(pairs, states.layers, strict=True):
                to_input.add(layer, states.embeddings)
                to_output.add(layer, states.layers[-1])
    return [Rotation(*(rotation_angle(sums.solve()[0]) for sums in pair)) for pair in pairs]


def covariance_similarity(x: Tensor, y: Tensor) -> float:
    """Frobenius cosine of two layers' covariances, each without its top singular direction [paper 5].

    Args:
        x: (samples, d) hidden states of one layer.
        y: (samples, d) hidden states of another, of the same tokens or others.

    Returns:
        sum(Cx * Cy) / (|Cx| |Cy|), in [-1, 1]; NaN where nothing varies beside the top direction.

    Raises:
        ValueError: shapes that do not belong together, fewer than two samples, or states that are not finite.
    """
    if x.ndim != 2 or y.ndim != 2 or x.shape[1] != y.shape[1] or min(len(x), len(y)) < 2:
        raise ValueError(f"expected (samples, d) of one d and two samples, got {tuple(x.shape)} and {tuple(y.shape)}")
    if not bool(x.isfinite().all()) or not bool(y.isfinite().all()):
        raise ValueError("the states must be finite")
    a, b = (_without_top_direction(states) for states in (x, y))
    scale = float(a.norm() * b.norm())
    return max(-1.0, min(1.0, float((a * b).sum()) / scale)) if scale > 0 else float("nan")


def _without_top_direction(states: Tensor) -> Tensor:
    """Covariance of centred states, with the top singular direction taken out."""
    centred = states.double() - states.double().mean(0)
    covariance = centred.T @ centred / len(states)
    values, vectors = torch.linalg.eigh(covariance)
    left = values[:-1]
    left = torch.where(left > len(values) * torch.finfo(torch.float64).eps * values[-1], left, 0.0)  # rounding is 0
    rest: Tensor = (vectors[:, :-1] * left) @ vectors[:, :-1].T
    return rest
