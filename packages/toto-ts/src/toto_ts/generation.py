"""Forecasts of one piece of a batch: decode in point mode or by samples, and take quantiles."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import torch
from torch import Tensor

from toto_ts.context import SeriesBatch
from toto_ts.decoding import Decoder, Prediction, decode
from toto_ts.forecast import Forecast
from toto_ts.output import Projections
from toto_ts.quantiles import mixture_quantile
from toto_ts.sampling import UNIFORMS, noise_of, sample


@dataclasses.dataclass(frozen=True)
class Request:
    """What is wanted of every series.

    Args:
        horizon: steps.
        num_samples: None for point mode.
        samples_at_once: samples decoded together.
        levels: quantiles.
        seed: of the samples.
    """

    horizon: int
    num_samples: int | None
    samples_at_once: int
    levels: tuple[float, ...]
    seed: int


def generate(decoder: Decoder, batch: SeriesBatch, request: Request, first_entry: int) -> Forecast:
    """Forecast some entries of a batch.

    Args:
        decoder: over their context.
        batch: the entries as they were given.
        request: what is wanted.
        first_entry: index of the first of them in the whole batch, which keys their noise.
    """
    first, horizon = decoder.start(), request.horizon
    steps = -(-horizon // decoder.patch)
    if request.num_samples is None:
        mean = decode(decoder, first, 1, steps, lambda projections, step: projections.mean())[0, ..., :horizon]
        forecast = Forecast(_with_known(mean, batch))
    else:
        samples = _samples(decoder, first, batch, request, steps, first_entry)
        forecast = Forecast(samples.mean(-1), samples)
    if not request.levels:
        return forecast
    quantiles = _quantiles(first, forecast, batch, request, decoder.patch)
    return dataclasses.replace(forecast, quantile_levels=request.levels, quantiles=quantiles)


def _samples(
    decoder: Decoder, first: Prediction, batch: SeriesBatch, request: Request, steps: int, first_entry: int
) -> Tensor:
    """`(batch, variates, horizon, samples)`, a few samples at a time."""
    entries, variates, _ = batch.series.shape
    assert request.num_samples is not None
    result = batch.series.new_empty((request.num_samples, entries, variates, request.horizon))
    shape = (steps, variates, decoder.patch, UNIFORMS)
    for start in range(0, request.num_samples, request.samples_at_once):
        drawn = range(start, min(start + request.samples_at_once, request.num_samples))
        noise = torch.stack([noise_of(request.seed, first_entry + entry, drawn, shape) for entry in range(entries)], 2)
        noise = noise.to(result.device)  # (samples, steps, batch, variates, P, 3)

        def choose(projections: Projections, step: int, noise: Tensor = noise) -> Tensor:
            return sample(projections, noise[:, step])

        values = decode(decoder, first, len(drawn), steps, choose)
        result[drawn.start : drawn.stop] = values[..., : request.horizon]
    return _with_known(result.permute(1, 2, 3, 0), batch)


def _with_known(values: Tensor, batch: SeriesBatch) -> Tensor:
    """Put the known future, on the targets' clock, into `(batch, variates, horizon, ...)`."""
    if batch.future is not None:
        known = batch.future if values.ndim == 3 else batch.future.unsqueeze(-1)
        values[:, values.shape[1] - batch.num_exogenous :] = known
    return values


def _quantiles(first: Prediction, forecast: Forecast, batch: SeriesBatch, request: Request, patch: int) -> Tensor:
    """`(batch, variates, horizon, levels)`: by inversion in the first patch, from samples after it."""
    levels = torch.tensor(request.levels, dtype=torch.float64, device=first.loc.device)
    exact = mixture_quantile(first.projections.parameters(), levels).to(first.loc.dtype)
    exact = exact * first.scale.unsqueeze(-1) + first.loc.unsqueeze(-1)
    parts = [exact[:, :, : request.horizon]]
    if request.horizon > patch:
        parts.append(torch.stack([forecast.quantile(level)[..., patch:] for level in request.levels], -1))
    return _with_known(torch.cat(parts, 2), batch)


def join(forecasts: Sequence[Forecast]) -> Forecast:
    """Forecasts of consecutive entries as one."""
    if len(forecasts) == 1:
        return forecasts[0]
    samples = [forecast.samples for forecast in forecasts if forecast.samples is not None]
    quantiles = [forecast.quantiles for forecast in forecasts if forecast.quantiles is not None]
    return Forecast(
        torch.cat([forecast.mean for forecast in forecasts]),
        torch.cat(samples) if samples else None,
        forecasts[0].quantile_levels,
        torch.cat(quantiles) if quantiles else None,
    )
