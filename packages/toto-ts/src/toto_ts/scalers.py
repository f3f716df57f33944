"""Instance normalisation of Toto (paper, section 3, "causal patch-wise instance normalisation").

Three scalers turn data `(..., time)` into `(data - loc) / scale`. Statistics are accumulated in float64 around the
first valid value of each series, so that a large offset costs no digits, and no gradient flows through them.
A scaler can also go on from the end of an earlier call (`start`, `extend`): the result is that of one call over all.
"""

from __future__ import annotations

import math
import warnings
from abc import ABC, abstractmethod
from typing import NamedTuple

import torch
from torch import Tensor

from toto_ts.cumsum import cumsum


class Scaled(NamedTuple):
    """`(data - loc) / scale` and its statistics, in the data's dtype."""

    scaled: Tensor
    loc: Tensor
    scale: Tensor


class ScalerState(NamedTuple):
    """What a scaler must remember of the steps before; each field `(..., 1)`, so that samples broadcast over it.

    Attributes:
        origin: first valid value of the series, subtracted from everything below.
        weight: sum of weights.
        total: weighted sum of values.
        squares: M of Welford's recursion.
        lower: smallest scale allowed.
        upper: largest scale allowed.
    """

    origin: Tensor
    weight: Tensor
    total: Tensor
    squares: Tensor
    lower: Tensor
    upper: Tensor

    def repeat(self, samples: int) -> ScalerState:
        """The state of a batch `(batch, ...)` for `(samples * batch, ...)`, samples slowest."""
        return ScalerState(*(field.repeat(samples, *[1] * (field.ndim - 1)) for field in self))


def accumulation_dtype(data: Tensor) -> torch.dtype:
    """float64, or float32 with a warning on devices that have no float64."""
    if data.device.type != "mps":
        return torch.float64
    warnings.warn("this device has no float64: scaler statistics are accumulated in float32", stacklevel=3)
    return torch.float32


def _valid_weights(data: Tensor, padding_mask: Tensor | None, weights: Tensor | None, dtype: torch.dtype) -> Tensor:
    """Weight of each point, 0 where it is masked or not a number."""
    w = torch.ones_like(data, dtype=dtype) if weights is None else weights.detach().to(dtype)
    valid = ~data.isnan() if padding_mask is None else padding_mask.bool() & ~data.isnan()
    return torch.where(valid, w, 0)


def _prefix(w: Tensor, prefix_length: int | None) -> Tensor:
    """Weights with those after the prefix set to 0."""
    if prefix_length is None:
        return w
    return w * (torch.arange(w.shape[-1], device=w.device) < prefix_length)


def _origin(x: Tensor, w: Tensor) -> Tensor:
    """First valid value of each series, `(..., 1)`; 0 where there is none. Causal, unlike the mean."""
    first = (w > 0).to(torch.uint8).argmax(-1, keepdim=True)
    value = x.gather(-1, first)
    return torch.where(w.gather(-1, first) > 0, value, 0)


class Scaler(ABC):
    """Contract of the three scalers; calling one gives `(scaled, loc, scale)`."""

    minimum_scale: float

    def __call__(
        self,
        data: Tensor,
        padding_mask: Tensor | None = None,
        weights: Tensor | None = None,
        prefix_length: int | None = None,
    ) -> Scaled:
        """Normalise a whole series.

        Args:
            data: `(..., time)`; NaN counts as masked and stays NaN in the result.
            padding_mask: bool of the same shape, True = valid.
            weights: weight of each point; ones by default.
            prefix_length: global statistics use only so many steps from the start.

        Returns:
            The scaled data, masked positions included, and loc and scale (`(..., time)`, or `(..., 1)` for statistics
            of the whole series), in the data's dtype.

        Raises:
            ValueError: the time axis does not fit, as :class:`CausalPatchStdMeanScaler` says.
        """
        return self.start(data, padding_mask, weights, prefix_length)[0]

    def start(
        self,
        data: Tensor,
        padding_mask: Tensor | None = None,
        weights: Tensor | None = None,
        prefix_length: int | None = None,
    ) -> tuple[Scaled, ScalerState]:
        """As a call, and the state from which :meth:`extend` goes on; statistics of the future never enter it."""
        with torch.no_grad():
            dtype = accumulation_dtype(data)
            w = _valid_weights(data, padding_mask, weights, dtype)
            x = torch.where(w > 0, data.to(dtype), 0)
            origin = _origin(x, w)
            x = torch.where(w > 0, x - origin, 0)
            nothing = torch.zeros_like(origin)
            state = ScalerState(origin, nothing, nothing, nothing, *self._bounds(x, _prefix(w, prefix_length)))
            loc, scale, state = self._statistics(x, w, state, prefix_length)
        return _apply(data, loc, scale), state

    def extend(
        self, state: ScalerState, data: Tensor, padding_mask: Tensor | None = None
    ) -> tuple[Scaled, ScalerState]:
        """Normalise the next steps of a series whose earlier steps gave `state`."""
        with torch.no_grad():
            w = _valid_weights(data, padding_mask, None, state.origin.dtype)
            x = torch.where(w > 0, data.to(w.dtype) - state.origin, 0)
            loc, scale, state = self._continue(x, w, state)
        return _apply(data, loc, scale), state

    def _bounds(self, x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        """Smallest and largest scale allowed, `(..., 1)`."""
        nothing = torch.zeros_like(w[..., :1])
        return nothing, nothing + math.inf

    @abstractmethod
    def _statistics(
        self, x: Tensor, w: Tensor, state: ScalerState, prefix_length: int | None
    ) -> tuple[Tensor, Tensor, ScalerState]:
        """loc, scale and the new state from values `x` around the origin and their weights."""

    @abstractmethod
    def _continue(self, x: Tensor, w: Tensor, state: ScalerState) -> tuple[Tensor, Tensor, ScalerState]:
        """The same for later steps."""


def _apply(data: Tensor, loc: Tensor, scale: Tensor) -> Scaled:
    loc, scale = loc.to(data.dtype), scale.to(data.dtype)
    return Scaled((data - loc) / scale, loc, scale)


def _moments(x: Tensor, w: Tensor, minimum_scale: float) -> tuple[Tensor, Tensor]:
    """Weighted mean (around the origin) and sqrt(population variance + s0), `(..., 1)`."""
    n = w.sum(-1, keepdim=True).clamp_min(1)
    mean = (w * x).sum(-1, keepdim=True) / n
    variance = (w * (x - mean).square()).sum(-1, keepdim=True) / n
    return mean, (variance + minimum_scale).sqrt()


class StdMeanScaler(Scaler):
    """One mean and deviation for the whole series (not causal): mu = sum(w x) / n, scale = sqrt(var + s0).

    Args:
        minimum_scale: s0, added to the variance.
    """

    def __init__(self, minimum_scale: float = 1e-3) -> None:
        self.minimum_scale = minimum_scale

    def _statistics(
        self, x: Tensor, w: Tensor, state: ScalerState, prefix_length: int | None
    ) -> tuple[Tensor, Tensor, ScalerState]:
        mean, scale = _moments(x, _prefix(w, prefix_length), self.minimum_scale)
        return state.origin + mean, scale, state._replace(total=mean, lower=scale, upper=scale)

    def _continue(self, x: Tensor, w: Tensor, state: ScalerState) -> tuple[Tensor, Tensor, ScalerState]:
        return state.origin + state.total, state.lower, state


class CausalStdMeanScaler(Scaler):
    """Mean and deviation of all valid points so far, at each step.

    With W_t = max(cumsum(w)_t, 1), m_t = cumsum(w x)_t / W_t and M_t = cumsum(w_t (x_t - m_{t-1})(x_t - m_t)):
    loc = m_t, scale = sqrt(M_t / max(W_t - 1, 1) + s0), or M_t / W_t without Bessel's correction.

    Args:
        minimum_scale: s0, added to the variance; the smallest scale is its root.
        use_bessel_correction: divide by W - 1.
        stabilize_with_global: clamp the scale to [max(s0, g 10^-kappa), g 10^kappa], g = sqrt(global population
            variance + s0); the global variance is that of the prefix, if a length is given.
        scale_factor_exponent: kappa.
    """

    def __init__(
        self,
        minimum_scale: float = 0.1,
        use_bessel_correction: bool = True,
        stabilize_with_global: bool = False,
        scale_factor_exponent: float = 10.0,
    ) -> None:
        self.minimum_scale = minimum_scale
        self.use_bessel_correction = use_bessel_correction
        self.stabilize_with_global = stabilize_with_global
        self.scale_factor_exponent = scale_factor_exponent

    def _bounds(self, x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        if not self.stabilize_with_global:
            return super()._bounds(x, w)
        _, scale = _moments(x, w, self.minimum_scale)
        factor = 10.0**self.scale_factor_exponent
        return (scale / factor).clamp_min(self.minimum_scale), scale * factor

    def _statistics(
        self, x: Tensor, w: Tensor, state: ScalerState, prefix_length: int | None
    ) -> tuple[Tensor, Tensor, ScalerState]:
        return self._continue(x, w, state)

    def _continue(self, x: Tensor, w: Tensor, state: ScalerState) -> tuple[Tensor, Tensor, ScalerState]:
        weight = state.weight + cumsum(w)
        total = state.total + cumsum(w * x)
        count = weight.clamp_min(1)
        mean = total / count
        before = torch.cat([(state.total / state.weight.clamp_min(1)).expand_as(mean[..., :1]), mean[..., :-1]], -1)
        squares = state.squares + cumsum(w * (x - before) * (x - mean))
        divisor = (count - 1).clamp_min(1) if self.use_bessel_correction else count
        scale = (squares / divisor + self.minimum_scale).sqrt().clamp(state.lower, state.upper)
        state = state._replace(weight=weight[..., -1:], total=total[..., -1:], squares=squares[..., -1:])
        # Before the first valid point there is nothing to be centred on: loc is 0, not the origin to come.
        return torch.where(weight > 0, state.origin + mean, 0), scale, state


class CausalPatchStdMeanScaler(CausalStdMeanScaler):
    """The statistic of :class:`CausalStdMeanScaler` at the last step of a patch, for the whole patch (released model).

    Args:
        patch_size: P; the time axis must be a multiple of it.
        minimum_scale: see :class:`CausalStdMeanScaler`, as all others.
        use_bessel_correction: divide by W - 1.
        stabilize_with_global: clamp the scale around the global one.
        scale_factor_exponent: kappa.
    """

    def __init__(
        self,
        patch_size: int,
        minimum_scale: float = 0.1,
        use_bessel_correction: bool = True,
        stabilize_with_global: bool = False,
        scale_factor_exponent: float = 10.0,
    ) -> None:
        super().__init__(minimum_scale, use_bessel_correction, stabilize_with_global, scale_factor_exponent)
        self.patch_size = patch_size

    def _continue(self, x: Tensor, w: Tensor, state: ScalerState) -> tuple[Tensor, Tensor, ScalerState]:
        if x.shape[-1] == 0 or x.shape[-1] % self.patch_size:
            raise ValueError(
                f"time steps must be a positive multiple of patch_size={self.patch_size}, got {x.shape[-1]}"
            )
        loc, scale, state = super()._continue(x, w, state)
        return self._last_of_patch(loc), self._last_of_patch(scale), state

    def _last_of_patch(self, statistic: Tensor) -> Tensor:
        ends = statistic[..., self.patch_size - 1 :: self.patch_size]
        return ends.repeat_interleave(self.patch_size, -1)


SCALER_CLASSES: dict[str, type[Scaler]] = {
    "StdMeanScaler": StdMeanScaler,
    "CausalStdMeanScaler": CausalStdMeanScaler,
    "CausalPatchStdMeanScaler": CausalPatchStdMeanScaler,
}
