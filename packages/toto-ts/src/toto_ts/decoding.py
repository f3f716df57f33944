"""Autoregressive decoding, one patch a step (as the official forecaster), for all samples from one prefill."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from toto_ts.context import Context
from toto_ts.kv_cache import KVCache, XPosCenter
from toto_ts.model import TotoBackbone
from toto_ts.output import ComposedProjection, Projections
from toto_ts.scalers import Scaled, ScalerState


class Prediction(NamedTuple):
    """The distributions of the next patch.

    Attributes:
        projections: `(rows, variates, P, K)` of the heads.
        loc: `(rows, variates, P or 1)` in data units.
        scale: like loc.
    """

    projections: Projections
    loc: Tensor
    scale: Tensor


def replace_extreme_values(values: Tensor) -> Tensor:
    """Put 0 for values that are infinite, NaN, or of at least half the largest float32 (or of their dtype, if less)."""
    largest = min(torch.finfo(values.dtype).max, torch.finfo(torch.float32).max) / 2
    return torch.where(values.abs() < largest, values, 0)  # a comparison with NaN is False


class Decoder(ABC):
    """Contract of the two ways to decode; rows are (samples, batch), samples slowest.

    Args:
        model: the network.
        context: what has been seen.
        projection: `unembed` and heads in one map, or None to call the modules.
    """

    def __init__(self, model: TotoBackbone, context: Context, projection: ComposedProjection | None) -> None:
        self.model = model
        self.context = context
        self.projection = projection
        self.patch = model.patch_size

    @abstractmethod
    def start(self) -> Prediction:
        """The first patch after the context, for one row an entry of the batch."""

    @abstractmethod
    def fork(self, samples: int, steps: int) -> None:
        """Go back to the context with so many samples, each to be extended by at most `steps` patches."""

    @abstractmethod
    def extend(self, values: Tensor, mask: Tensor, centred: Tensor) -> Prediction:
        """Append a patch `(rows, variates, P)` and predict the next one."""

    def _predict(self, hidden: Tensor, scaled: Scaled) -> Prediction:
        """From the features `(rows, variates, 1, D)` of the last patch."""
        output, last = self.model.output_distribution, hidden.squeeze(2)
        if self.projection is not None:
            projections = Projections.of(self.projection(last), output.num_components)
        else:
            projections = output.project(self.model.unembed(last).unflatten(-1, (self.patch, -1)))
        return Prediction(projections, scaled.loc[..., -self.patch :], scaled.scale[..., -self.patch :])

    def _ids(self) -> Tensor:
        return self.model.patch_embed.patch_ids(self.context.ids)


class CachedDecoder(Decoder):
    """Reads the context once; each later step computes one patch a row.

    Args:
        model: the network.
        context: what has been seen.
        projection: see :class:`Decoder`.
        xpos_center: see :class:`KVCache`.
    """

    def __init__(
        self,
        model: TotoBackbone,
        context: Context,
        projection: ComposedProjection | None,
        xpos_center: XPosCenter,
    ) -> None:
        super().__init__(model, context, projection)
        self.cache = KVCache(xpos_center)
        self.state: ScalerState | None = None

    def start(self) -> Prediction:
        """Fill the cache and predict the first patch."""
        context, cache = self.context, self.cache
        scaled = self.model.scale(context.series, context.mask, context.series.shape[-1], cache)
        self.state = cache.scaler_state
        ids = self._ids()
        self.ids = ids[:, :, -1:]
        hidden = self.model.encode(
            scaled.scaled.masked_fill(context.centred, 0),
            ids,
            cache,
            num_exogenous=context.num_exogenous,
            keep_last=True,
        )
        return self._predict(hidden, scaled)

    def fork(self, samples: int, steps: int) -> None:
        """Reuse the context's keys and values; room for the samples' own is allocated once a size."""
        assert self.state is not None
        self.cache.fork(samples, steps)
        self.cache.scaler_state = self.state.repeat(samples)
        self.row_ids = self.ids.repeat(samples, 1, 1)

    def extend(self, values: Tensor, mask: Tensor, centred: Tensor) -> Prediction:
        """One new token a row."""
        scaled = self.model.scale(values, mask, None, self.cache)
        hidden = self.model.encode(
            scaled.scaled.masked_fill(centred, 0), self.row_ids, self.cache, num_exogenous=self.context.num_exogenous
        )
        return self._predict(hidden, scaled)


class PlainDecoder(Decoder):
    """Computes everything anew in each step: decoding without a cache, slow, the reference for the other."""

    def start(self) -> Prediction:
        """Predict the first patch."""
        self.fork(1, 0)
        return self._all()

    def fork(self, samples: int, steps: int) -> None:
        """Repeat the context for every sample."""
        c = self.context
        self.rows = [field.repeat(samples, 1, 1) for field in (c.series, c.mask, c.centred)]
        self.row_ids = self._ids().repeat(samples, 1, 1)

    def extend(self, values: Tensor, mask: Tensor, centred: Tensor) -> Prediction:
        """The whole series again."""
        self.rows = [torch.cat([old, new], -1) for old, new in zip(self.rows, (values, mask, centred), strict=True)]
        self.row_ids = torch.cat([self.row_ids, self.row_ids[..., -1:]], -1)
        return self._all()

    def _all(self) -> Prediction:
        series, mask, centred = self.rows
        scaled = self.model.scale(series, mask, self.context.series.shape[-1], None)
        hidden = self.model.encode(
            scaled.scaled.masked_fill(centred, 0),
            self.row_ids,
            num_exogenous=self.context.num_exogenous,
            keep_last=True,
        )
        return self._predict(hidden, scaled)


def decode(
    decoder: Decoder,
    first: Prediction,
    samples: int,
    steps: int,
    choose: Callable[[Projections, int], Tensor],
) -> Tensor:
    """Decode some samples of a batch.

    Args:
        decoder: started.
        first: what its `start` gave.
        samples: how many to decode together.
        steps: patches to generate.
        choose: (projections, step) -> `(samples, batch, variates, P)` values in normalised space.

    Returns:
        `(samples, batch, variates, steps * P)` in data units, exogenous variates as the network was shown them.
    """
    context, patch = decoder.context, decoder.patch
    batch, variates, _ = context.series.shape
    result = context.series.new_empty((samples, batch, variates, steps * patch))
    prediction = first
    if steps > 1:
        decoder.fork(samples, steps - 1)
    for step in range(steps):
        # the first prediction has one row an entry, which all samples share; later ones have a row for each sample
        loc, scale = (field.unflatten(0, (-1, batch)) for field in prediction[1:])
        by_sample = prediction.projections.map(lambda field: field.unflatten(0, (-1, batch)))
        values = choose(by_sample, step).to(result.dtype) * scale + loc
        window = slice(step * patch, (step + 1) * patch)
        values = _with_exogenous(replace_extreme_values(values), context.future[..., window])
        result[..., window] = values
        if step + 1 < steps:
            mask = _with_exogenous(torch.ones_like(values, dtype=torch.bool), context.future_mask[..., window])
            centred = _with_exogenous(torch.zeros_like(mask), context.future_centred[..., window])
            prediction = decoder.extend(values.flatten(0, 1), mask.flatten(0, 1), centred.flatten(0, 1))
    return result


def _with_exogenous(values: Tensor, known: Tensor) -> Tensor:
    """Overwrite the last variates of `(samples, batch, variates, P)` with what is known, `(batch, exogenous, P)`."""
    exogenous = known.shape[1]
    if exogenous:
        values[:, :, values.shape[2] - exogenous :] = known
    return values
