"""From what users have (arrays, lists of arrays, containers) to one checked batch; each refusal is one line."""

from __future__ import annotations

import operator
import warnings
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from toto_ts.context import SeriesBatch
from toto_ts.timeseries import MaskedTimeseries

Array: TypeAlias = "np.ndarray[Any, Any] | Tensor"
Inputs: TypeAlias = "MaskedTimeseries | Array | Sequence[Array]"

# Generated values of at least this size are replaced, so that inputs must stay below it too.
LARGEST = torch.finfo(torch.float32).max / 2
_ACCEPTED = "an array (variates, time) or (time,), a list of such arrays, or a MaskedTimeseries"


def whole_number(name: str, value: object, least: int) -> int:
    """An integer of any type of at least `least`; ValueError names it otherwise."""
    try:
        number = None if isinstance(value, bool) else operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        number = None
    if number is None or number < least:
        raise ValueError(f"{name} must be a whole number of at least {least}, got {value!r}")
    return number


def read_inputs(
    inputs: Inputs,
    horizon: int,
    future_exogenous: Array | None,
    device: torch.device,
) -> SeriesBatch:
    """Check inputs and their known future.

    Args:
        inputs: see `TotoForecaster.forecast`.
        horizon: steps that the known future must cover.
        future_exogenous: `(batch, exogenous, horizon)`, or without the batch axis.
        device: where the batch goes.

    Returns:
        The batch: float64 for float64 and integer inputs, else float32.

    Raises:
        ValueError: shapes that do not fit, infinite values, no steps, groups that change oddly, or a known future that
            does not cover every step.
    """
    if isinstance(inputs, MaskedTimeseries):
        batch = _from_container(inputs, horizon, device)
        exogenous = whole_number("num_exogenous_variables", inputs.num_exogenous_variables, 0)
    else:
        batch = _from_arrays(inputs, device)
        exogenous = None
    _check_values(batch)
    return SeriesBatch(batch.series, batch.mask, batch.ids, _future(batch, exogenous, future_exogenous, horizon))


def _tensor(values: object, what: str, device: torch.device) -> Tensor:
    """Real numbers as float32 or float64."""
    if type(values).__module__.startswith("pandas"):
        raise ValueError(f"{what} is a pandas {type(values).__name__}, whose orientation is a guess: use forecast_df")
    if not isinstance(values, Tensor):
        try:
            array = np.asarray(values)
        except ValueError as error:  # rows of unequal length
            raise ValueError(f"{what} must be an array of numbers: {error}") from error
        if array.dtype.kind not in "iufcb":
            raise ValueError(f"{what} must be an array of numbers, got {type(values).__name__} of {array.dtype}")
        if isinstance(values, np.ma.MaskedArray):  # its own mask says what is missing
            array = np.ma.filled(values.astype(np.float64), np.nan)
        if array.dtype.kind == "f" and array.dtype.itemsize > 8:
            array = array.astype(np.float64)
        values = torch.from_numpy(np.array(array, dtype=array.dtype.newbyteorder("="), order="C"))
    if values.is_complex() or values.dtype == torch.bool:
        raise ValueError(f"{what} must hold real numbers, got {values.dtype}")
    wide = values.dtype == torch.float64 or not values.is_floating_point()
    dtype = torch.float64 if wide and device.type != "mps" else torch.float32
    return values.detach().to(device=device, dtype=dtype)


def _from_arrays(inputs: object, device: torch.device) -> SeriesBatch:
    if isinstance(inputs, (list, tuple)):
        if not inputs:
            raise ValueError(f"inputs must be {_ACCEPTED}, got an empty list")
        if not np.isscalar(inputs[0]):
            series = _stack(
                [_variates(_tensor(a, f"inputs[{i}]", device), f"inputs[{i}]") for i, a in enumerate(inputs)]
            )
            return _unmasked(series)
    series = _tensor(inputs, "inputs", device)
    if series.ndim == 3:
        return _unmasked(series)
    return _unmasked(_variates(series, "inputs").unsqueeze(0))


def _variates(series: Tensor, what: str) -> Tensor:
    if series.ndim not in (1, 2):
        raise ValueError(f"{what} must be {_ACCEPTED}, got shape {tuple(series.shape)}")
    return series.unsqueeze(0) if series.ndim == 1 else series


def _stack(arrays: list[Tensor]) -> Tensor:
    """`(batch, variates, time)`, shorter ones padded on the left with NaN."""
    counts = sorted({len(array) for array in arrays})
    if len(counts) > 1:
        raise ValueError(f"all arrays of a list must have the same number of variates, got {counts}")
    longest = max(array.shape[1] for array in arrays)
    dtype = torch.float64 if any(array.dtype == torch.float64 for array in arrays) else torch.float32
    series = arrays[0].new_full((len(arrays), counts[0], longest), torch.nan, dtype=dtype)
    for row, array in zip(series, arrays, strict=True):
        row[:, longest - array.shape[1] :] = array
    return series


def _unmasked(series: Tensor) -> SeriesBatch:
    ids = torch.zeros(series.shape, dtype=torch.long, device=series.device)
    return SeriesBatch(series, ~series.isnan(), ids)


def _from_container(inputs: MaskedTimeseries, horizon: int, device: torch.device) -> SeriesBatch:
    series = _tensor(inputs.series, "series", device)
    lead = series.ndim == 2
    if series.ndim not in (2, 3):
        raise ValueError(f"series must be (batch, variates, time) or (variates, time), got {tuple(series.shape)}")
    mask, ids = (torch.as_tensor(field, device=device) for field in (inputs.padding_mask, inputs.id_mask))
    if lead:
        series, mask, ids = series.unsqueeze(0), mask.unsqueeze(0), ids.unsqueeze(0)
    if mask.shape != series.shape:
        raise ValueError(f"padding_mask must have the series' shape, got {tuple(mask.shape)} for {tuple(series.shape)}")
    if ids.shape not in (series.shape, (*series.shape[:2], 1)) or ids.is_floating_point():
        raise ValueError(
            f"id_mask must be integers {tuple(series.shape)} or {(*series.shape[:2], 1)}, "
            f"got {ids.dtype} {tuple(ids.shape)}"
        )
    _check_clock(inputs, horizon)
    mask = mask.bool() & ~series.isnan()
    return SeriesBatch(torch.where(mask, series, torch.nan), mask, ids.expand(series.shape))


def _check_clock(inputs: MaskedTimeseries, horizon: int) -> None:
    """The model does not use the clock, but seconds that run over are a mistake all the same."""
    stamps, interval = inputs.timestamp_seconds, inputs.time_interval_seconds
    if stamps is None or interval is None or 0 in stamps.shape or stamps.is_floating_point():
        return
    last = int(stamps.max()) + horizon * int(interval.max())
    largest = torch.iinfo(stamps.dtype).max
    if last > largest:
        raise ValueError(
            f"timestamp_seconds reach {last} at the horizon, more than {stamps.dtype} holds ({largest}): use int64"
        )


def _check_values(batch: SeriesBatch) -> None:
    series, mask = batch.series, batch.mask
    if 0 in series.shape:
        raise ValueError(f"inputs must have at least one entry, variate and time step, got shape {tuple(series.shape)}")
    wrong = mask & ~(series.abs() < LARGEST)
    if bool(wrong.any()):
        entry, variate, step = (int(i) for i in wrong.nonzero()[0])
        raise ValueError(
            f"values must be NaN (missing) or below {LARGEST:.2g} in size: entry {entry}, variate {variate}, "
            f"step {step} is {float(series[entry, variate, step])}"
        )
    empty = ~mask.any(-1)
    if bool(empty.any()):
        entry, variate = (int(i) for i in empty.nonzero()[0])
        more = int(empty.sum()) - 1
        warnings.warn(
            f"variate {variate} of entry {entry} has no valid value{f' (and {more} others)' if more else ''}: "
            "its forecast is finite, but says nothing",
            stacklevel=4,
        )


def _future(batch: SeriesBatch, exogenous: int | None, given: Array | None, horizon: int) -> Tensor | None:
    entries, variates, _ = batch.series.shape
    if given is None:
        if exogenous:
            raise ValueError(f"the inputs have {exogenous} exogenous variates: future_exogenous must be given for them")
        return None
    future = _tensor(given, "future_exogenous", batch.series.device).to(batch.series.dtype)
    if future.ndim == 2 and entries == 1:
        future = future.unsqueeze(0)
    count = future.shape[1] if exogenous is None and future.ndim == 3 else exogenous
    if future.ndim != 3 or future.shape != (entries, count, horizon):
        wanted = f"({entries}, {'exogenous' if exogenous is None else exogenous}, horizon={horizon})"
        raise ValueError(f"future_exogenous must be {wanted}, got {tuple(future.shape)}")
    if not 0 < future.size(1) < variates:
        raise ValueError(
            f"future_exogenous must leave at least one of the {variates} variates as target, "
            f"got {future.shape[1]} exogenous ones"
        )
    unknown = ~(future.abs() < LARGEST)
    if bool(unknown.any()):
        entry, variate, step = (int(i) for i in unknown.nonzero()[0])
        raise ValueError(
            f"future_exogenous must be known at every step: entry {entry}, variate {variate}, step {step} is "
            f"{float(future[entry, variate, step])}"
        )
    return future
