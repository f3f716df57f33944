"""Forecasts, likelihoods and anomaly scores from arrays and data frames: the face of a model."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from nips_common.runtime import require
from toto_ts.context import Context, make_context
from toto_ts.decoding import CachedDecoder, Decoder, PlainDecoder
from toto_ts.forecast import Forecast, check_columns, check_levels
from toto_ts.frames import Columns, Item, as_names, read_items
from toto_ts.generation import Request, generate, join
from toto_ts.inputs import Array, Inputs, read_inputs, whole_number
from toto_ts.kv_cache import XPosCenter, check_center
from toto_ts.likelihood import next_patch_log_prob
from toto_ts.memory import check_memory, make_plan
from toto_ts.missing import Fill, check_fill
from toto_ts.model import Toto
from toto_ts.output import ComposedProjection, composed_projection
from toto_ts.timeseries import MaskedTimeseries

if TYPE_CHECKING:
    import pandas as pd


class TotoForecaster:
    """Forecasts with a model, which keeps its mode and device.

    Args:
        model: a `Toto`.
        fill: what the network sees at missing points: "mean" (the running mean, so that the normalised value is 0),
            "zero" (what the official code sees) or "last" (the last valid value).
        xpos_center: "fixed" makes cached decoding exact; "per_call" reproduces the official cached numbers.

    Raises:
        ValueError: an unknown option, or another model.
    """

    def __init__(self, model: Toto, *, fill: Fill = "mean", xpos_center: XPosCenter = "fixed") -> None:
        if not isinstance(model, Toto):
            raise ValueError(f"model must be a Toto, got {type(model).__name__}")
        check_fill(fill)
        check_center(xpos_center)
        self.model = model
        self.fill = fill
        self.xpos_center = xpos_center

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        return next(self.model.parameters()).device

    def forecast(
        self,
        inputs: Inputs,
        horizon: int,
        *,
        num_samples: int | None = 256,
        samples_per_batch: int | None = None,
        quantile_levels: Sequence[float] | None = None,
        future_exogenous: Array | None = None,
        use_kv_cache: bool = True,
        seed: int | None = None,
        shift_exogenous: bool = False,
    ) -> Forecast:
        """Forecast the next `horizon` steps.

        Args:
            inputs: a `MaskedTimeseries`; an array or tensor `(variates, time)`, `(time,)` or `(batch, variates, time)`;
                or a list of arrays with equally many variates, of which shorter ones are padded on the left. NaN is a
                missing value.
            horizon: steps.
            num_samples: samples of each series; None for point mode, where the mean is fed back.
            samples_per_batch: samples decoded together, a divisor of `num_samples`; None chooses so that memory stays
                flat. The samples are the same, up to rounding. Without effect in point mode.
            quantile_levels: quantiles wanted in `Forecast.quantiles`; those of the first patch are exact and need no
                samples.
            future_exogenous: `(batch, exogenous, horizon)`, or `(exogenous, horizon)` for one series: the known
                future of the last variates.
            use_kv_cache: False computes everything anew in each step.
            seed: of the samples; None draws one from torch's generator.
            shift_exogenous: False takes exogenous channels as they are, already moved one patch into the past if the
                model was trained so (official behaviour). True: they are on the targets' clock and moved inside.

        Returns:
            Mean and samples on the model's device, in float64 for float64 inputs.

        Raises:
            ValueError: inputs that do not fit, all told in one line; a horizon that memory does not allow.
        """
        request = _request(horizon, num_samples, samples_per_batch, quantile_levels, seed, self.model.config.patch_size)
        batch = read_inputs(inputs, request.horizon, future_exogenous, self.device)
        entries, variates, time = batch.series.shape
        config = self.model.config
        shape = (entries, variates, -(-time // config.patch_size))
        plan = make_plan(*shape, num_samples, samples_per_batch, self.device.type)
        check_memory(config, shape, request.horizon, num_samples, plan, self.device)
        request = dataclasses.replace(request, samples_at_once=plan.samples)
        forecasts = []
        with _evaluating(self.model):
            projection = self._projection(entries * variates * (num_samples or 1))
            for start in range(0, entries, plan.entries):
                part = batch.entries(start, start + plan.entries)
                context = make_context(part, config.patch_size, request.horizon, self.fill, shift_exogenous)
                decoder = self._decoder(context, projection, use_kv_cache)
                forecasts.append(generate(decoder, part, request, start))
        return join(forecasts)

    def _projection(self, rows: int) -> ComposedProjection | None:
        """`unembed` and heads in one map, if it is used often enough to pay for itself."""
        backbone = self.model.model
        if rows <= 4 * backbone.output_distribution.num_components or type(backbone.unembed) is not torch.nn.Linear:
            return None
        return composed_projection(backbone.unembed, backbone.output_distribution, backbone.patch_size)

    def _decoder(self, context: Context, projection: ComposedProjection | None, use_kv_cache: bool) -> Decoder:
        if use_kv_cache:
            return CachedDecoder(self.model.model, context, projection, self.xpos_center)
        return PlainDecoder(self.model.model, context, projection)

    def forecast_df(
        self,
        df: pd.DataFrame,
        horizon: int,
        id_column: str | None = "item_id",
        timestamp_column: str = "timestamp",
        target_columns: Sequence[str] = ("target",),
        *,
        exogenous_columns: Sequence[str] = (),
        future_df: pd.DataFrame | None = None,
        quantile_levels: Sequence[float] = (0.1, 0.5, 0.9),
        num_samples: int | None = 256,
        seed: int | None = None,
        freq: str | None = None,
    ) -> pd.DataFrame:
        """Forecast the series of a data frame; its targets are forecast together, as variates of one group.

        Args:
            df: one row an id and timestamp, in order and without gaps in the stamps; NaN is a missing value.
            horizon: steps.
            id_column: which series a row belongs to; None if the frame is one series.
            timestamp_column: datetimes, periods, or ISO 8601 text.
            target_columns: what to forecast; a wide frame names one column a series.
            exogenous_columns: columns whose future is known, on the same clock; moved one patch into the past inside.
            future_df: their values, one row an id and future timestamp.
            quantile_levels: a column each.
            num_samples: samples of each series; None for point mode, which gives exact quantiles up to one patch.
            seed: of the samples.
            freq: pandas frequency of the stamps; None infers it for each series.

        Returns:
            One row an id, target and future timestamp, with the columns id, timestamp, "target_name", "mean" and one
            for each level, named by it.

        Raises:
            ImportError: pandas is not installed.
            ValueError: missing columns; stamps that are not ordered, repeat, leave gaps or cannot be read; a future
                that does not cover every step.
        """
        horizon = whole_number("horizon", horizon, 1)
        columns = Columns(id_column, timestamp_column, as_names(target_columns), as_names(exogenous_columns))
        levels = check_levels(quantile_levels)
        check_columns(id_column or "item_id", timestamp_column, levels)
        items = read_items(df, columns, horizon, future_df, freq)
        chosen = _seed(seed)
        frames = {}
        for group in self._equally_long(items):
            forecast = self.forecast(
                [items[i].series for i in group],
                horizon,
                num_samples=num_samples,
                quantile_levels=levels if num_samples is None and horizon <= self.model.config.patch_size else None,
                future_exogenous=_futures([items[i] for i in group]),
                seed=chosen,
                shift_exogenous=bool(columns.exogenous),
            )
            for row, i in enumerate(group):
                frames[i] = forecast.entry(row).to_df(
                    levels,
                    item_ids=[items[i].item_id],
                    timestamps=[items[i].stamps],
                    target_names=columns.targets,
                    id_column=id_column or "item_id",
                    timestamp_column=timestamp_column,
                )
        joined = require("pandas", "toto-ts[pandas]").concat([frames[i] for i in range(len(items))], ignore_index=True)
        return joined if id_column is not None else joined.drop(columns="item_id")

    def _equally_long(self, items: Sequence[Item]) -> list[list[int]]:
        """Items of as many patches: padding then changes nothing, and each forecast is what it would be alone."""
        groups: dict[int, list[int]] = {}
        for i, item in enumerate(items):
            groups.setdefault(-(-item.series.shape[1] // self.model.config.patch_size), []).append(i)
        return list(groups.values())

    def log_prob(self, inputs: Inputs) -> Tensor:
        """How probable each observed point was one patch before it came.

        Args:
            inputs: as for :meth:`forecast`.

        Returns:
            `(batch, variates, time)` log-density in data units under the distribution predicted from the patches before
            the point's own; NaN in the first patch, for missing points and for exogenous variates.

        Raises:
            ValueError: inputs that do not fit.
        """
        exogenous = 0
        if isinstance(inputs, MaskedTimeseries):
            exogenous = whole_number("num_exogenous_variables", inputs.num_exogenous_variables, 0)
            inputs = inputs._replace(num_exogenous_variables=0)  # their future does not matter here
        batch, patch = read_inputs(inputs, 0, None, self.device), self.model.config.patch_size
        entries, variates, time = batch.series.shape
        if exogenous >= variates:
            raise ValueError(f"num_exogenous_variables must be below the {variates} variates, got {exogenous}")
        plan = make_plan(entries, variates, -(-time // patch), None, None, self.device.type)
        scores = []
        with _evaluating(self.model):
            projection = self._projection(entries * variates * -(-time // patch))
            for start in range(0, entries, plan.entries):
                context = make_context(batch.entries(start, start + plan.entries), patch, patch, self.fill)
                scores.append(next_patch_log_prob(self.model.model, context, exogenous, projection)[..., -time:])
        return torch.cat(scores)

    def anomaly_score(self, inputs: Inputs) -> Tensor:
        """Minus :meth:`log_prob`: the higher, the less expected the point was."""
        return -self.log_prob(inputs)


def _request(
    horizon: int,
    num_samples: int | None,
    samples_per_batch: int | None,
    quantile_levels: Sequence[float] | None,
    seed: int | None,
    patch_size: int,
) -> Request:
    """Checked arguments; everything is refused before any work."""
    horizon = whole_number("horizon", horizon, 1)
    levels = check_levels(quantile_levels)
    if num_samples is None:
        if levels and horizon > patch_size:
            raise ValueError(
                f"without samples quantiles are known for the first patch only: horizon must be at most {patch_size}, "
                f"got {horizon}"
            )
        return Request(horizon, None, 1, levels, 0)
    num_samples = whole_number("num_samples", num_samples, 1)
    if samples_per_batch is not None and num_samples % whole_number("samples_per_batch", samples_per_batch, 1):
        raise ValueError(f"samples_per_batch must divide num_samples={num_samples}, got {samples_per_batch}")
    return Request(horizon, num_samples, samples_per_batch or num_samples, levels, _seed(seed))


def _seed(seed: int | None) -> int:
    """The seed as given, or one from torch's generator, which `torch.manual_seed` governs."""
    if seed is None:
        return int(torch.randint(2**63 - 1, ()))
    if whole_number("seed", seed, 0) >= 2**63:
        raise ValueError(f"seed must be below 2**63, got {seed}")
    return int(seed)


def _futures(items: Sequence[Item]) -> np.ndarray | None:
    futures = [item.future for item in items if item.future is not None]
    return np.stack(futures) if futures else None


@contextmanager
def _evaluating(model: Toto) -> Iterator[None]:
    """Evaluation mode without gradients for a while; every module goes back to the mode it was in."""
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for module in training:
            module.training = True
