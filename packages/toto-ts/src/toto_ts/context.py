"""What the decoders start from: a padded, filled batch of series with what is known of its future."""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor

from toto_ts.exogenous import shift_exogenous
from toto_ts.missing import Fill, fill_missing
from toto_ts.timeseries import left_pad, left_pad_ids


@dataclasses.dataclass(frozen=True)
class SeriesBatch:
    """Checked inputs, not padded yet.

    Args:
        series: `(batch, variates, time)`, float32 or float64; NaN where nothing is known.
        mask: bool of the same shape, True = valid; False wherever the series is NaN.
        ids: `(batch, variates, time)` groups.
        future: `(batch, exogenous, horizon)` known future of the last variates, or None.
    """

    series: Tensor
    mask: Tensor
    ids: Tensor
    future: Tensor | None = None

    @property
    def num_exogenous(self) -> int:
        """How many of the last variates are known in the future."""
        return 0 if self.future is None else self.future.shape[1]

    def entries(self, start: int, stop: int) -> SeriesBatch:
        """Some entries of the batch."""
        future = None if self.future is None else self.future[start:stop]
        return SeriesBatch(self.series[start:stop], self.mask[start:stop], self.ids[start:stop], future)


@dataclasses.dataclass(frozen=True)
class Context:
    """Inputs of whole patches, ready for the network.

    Args:
        series: `(batch, variates, time)`, finite.
        mask: bool of the same shape, True = valid.
        centred: bool of the same shape; there the normalised value is 0.
        ids: `(batch, variates, time)` groups.
        future: `(batch, exogenous, steps)` what the exogenous variates will be, as the network is to see it.
        future_mask: bool of the same shape.
        future_centred: bool of the same shape; there the normalised value is 0.
    """

    series: Tensor
    mask: Tensor
    centred: Tensor
    ids: Tensor
    future: Tensor
    future_mask: Tensor
    future_centred: Tensor

    @property
    def num_exogenous(self) -> int:
        """How many of the last variates are known in the future."""
        return self.future.shape[1]


def make_context(batch: SeriesBatch, patch_size: int, horizon: int, fill: Fill, shift: bool = False) -> Context:
    """Pad on the left to whole patches, on the right to the horizon in whole patches, and fill what is missing.

    Args:
        batch: checked inputs.
        patch_size: P.
        horizon: steps to forecast.
        fill: see :func:`fill_missing`; left padding is filled in the same way.
        shift: move the exogenous variates one patch into the past (see :func:`shift_exogenous`).
    """
    series, mask, exogenous = batch.series, batch.mask, batch.num_exogenous
    time, first = series.shape[-1], series.shape[1] - exogenous
    future = series.new_zeros((len(series), 0, horizon)) if batch.future is None else batch.future
    known = torch.ones_like(future, dtype=torch.bool)
    if shift and exogenous:
        past, past_mask = series[:, first:], mask[:, first:]
        past, future = _shifted(past, future, patch_size)
        past_mask, known = _shifted(past_mask, known, patch_size)
        series, mask = torch.cat([series[:, :first], past], 1), torch.cat([mask[:, :first], past_mask], 1)
    # zeros beyond the horizon lie in the last patch, which is never read
    beyond = (0, -horizon % patch_size)
    future, known = (torch.nn.functional.pad(values, beyond) for values in (future, known))
    series, mask, ids = left_pad(series, patch_size), left_pad(mask, patch_size), left_pad_ids(batch.ids, patch_size)
    padded = series.shape[-1]
    if exogenous:  # filled together, so that "last" carries a value of the context into the future
        both = fill_missing(torch.cat([series[:, first:], future], -1), torch.cat([mask[:, first:], known], -1), fill)
        future, future_centred = both.series[..., padded:], both.centred[..., padded:]
    else:
        future_centred = known
    filled = fill_missing(series, mask, fill)
    assert padded - time < patch_size
    return Context(filled.series, mask, filled.centred, ids, future, known, future_centred)


def _shifted(past: Tensor, future: Tensor, patch_size: int) -> tuple[Tensor, Tensor]:
    time, total = past.shape[-1], past.shape[-1] + future.shape[-1]
    kept = max(total - patch_size, 0)
    moved = shift_exogenous(past, future, context_length=kept, patch_size=patch_size)[..., -total:]
    return moved[..., :time], moved[..., time:]
