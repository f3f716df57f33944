"""Toto as a GluonTS predictor, for GluonTS's own evaluation and backtests (extra ``gluonts``)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from nips_common.runtime import require
from toto_ts.forecaster import TotoForecaster
from toto_ts.inputs import whole_number

if TYPE_CHECKING:
    from gluonts.model.forecast import SampleForecast

try:
    from gluonts.model.predictor import Predictor as _Predictor
except ModuleNotFoundError:  # the class can be named without the extra; making one says what to install
    _Predictor = object

Missing = Literal["mask", "zero"]
Array = np.ndarray[Any, np.dtype[np.float64]]
_FROM_CONSTRUCTOR: Any = object()


class TotoPredictor(_Predictor):
    """A GluonTS `Predictor` over a forecaster.

    Args:
        forecaster: with its model.
        prediction_length: horizon.
        context_length: steps of history the model sees; shorter histories are padded on the left and masked, longer
            ones cut.
        num_samples: of each series; None for point mode, which gives the mean as one sample.
        samples_per_batch: see `TotoForecaster.forecast`.
        batch_size: series forecast together.
        use_kv_cache: see `TotoForecaster.forecast`.
        missing: "mask" leaves NaN out; "zero" is the official behaviour, which reads NaN as a valid 0.
        seed: of the samples.

    Raises:
        ImportError: gluonts is not installed.
        ValueError: a length, number or option out of range.
    """

    def __init__(
        self,
        forecaster: TotoForecaster,
        prediction_length: int,
        context_length: int,
        *,
        num_samples: int | None = 256,
        samples_per_batch: int | None = None,
        batch_size: int = 32,
        use_kv_cache: bool = True,
        missing: Missing = "mask",
        seed: int | None = None,
    ) -> None:
        require("gluonts", "toto-ts[gluonts]")
        if not isinstance(forecaster, TotoForecaster):
            raise ValueError(f"forecaster must be a TotoForecaster, got {type(forecaster).__name__}")
        super().__init__(prediction_length=whole_number("prediction_length", prediction_length, 1))
        if missing not in get_args(Missing):
            raise ValueError(f"missing must be one of {', '.join(get_args(Missing))}, got {missing!r}")
        self.forecaster = forecaster
        self.context_length = whole_number("context_length", context_length, 1)
        self.num_samples = None if num_samples is None else whole_number("num_samples", num_samples, 1)
        self.samples_per_batch = samples_per_batch
        self.batch_size = whole_number("batch_size", batch_size, 1)
        self.use_kv_cache = use_kv_cache
        self.missing = missing
        self.seed = seed

    def predict(
        self, dataset: Iterable[Mapping[str, Any]], num_samples: int | None = _FROM_CONSTRUCTOR, **kwargs: Any
    ) -> Iterator[SampleForecast]:
        """Forecast every entry of a GluonTS dataset, in its order.

        Args:
            dataset: entries with "start" (a `pandas.Period`) and "target", `(time,)` or `(variates, time)`.
            num_samples: instead of the constructor's.
            kwargs: none is known.

        Returns:
            Forecasts with samples `(samples, horizon)` for one-dimensional targets, else `(samples, horizon,
            variates)`.

        Raises:
            TypeError: an unknown keyword.
            ValueError: an entry that does not fit.
        """
        if kwargs:
            raise TypeError(f"predict accepts num_samples only, got {', '.join(sorted(kwargs))}")
        wanted = self.num_samples if num_samples is _FROM_CONSTRUCTOR else num_samples
        return self._predict(iter(dataset), wanted)

    def _predict(self, entries: Iterator[Mapping[str, Any]], num_samples: int | None) -> Iterator[SampleForecast]:
        number = 0
        while batch := list(islice(entries, self.batch_size)):
            for group in _equal_variates([_read(entry) for entry in batch]):
                seed = None if self.seed is None else self.seed + number
                number += 1
                yield from self._forecast([batch[i] for i in group], seed, num_samples)

    def _forecast(
        self, entries: Sequence[Mapping[str, Any]], seed: int | None, num_samples: int | None
    ) -> Iterator[SampleForecast]:
        from gluonts.model.forecast import SampleForecast

        forecast = self.forecaster.forecast(
            np.stack([self._window(_read(entry)) for entry in entries]),
            self.prediction_length,
            num_samples=num_samples,
            samples_per_batch=self.samples_per_batch if num_samples is not None else None,
            use_kv_cache=self.use_kv_cache,
            seed=seed,
        )
        samples = forecast.mean.unsqueeze(-1) if forecast.samples is None else forecast.samples
        arrays = samples.permute(0, 3, 2, 1).cpu().numpy()  # (batch, samples, horizon, variates)
        for entry, values in zip(entries, arrays, strict=True):
            target = np.asarray(entry["target"])
            yield SampleForecast(
                np.ascontiguousarray(values[..., 0] if target.ndim == 1 else values),
                start_date=entry["start"] + target.shape[-1],
                item_id=entry.get("item_id"),
                info=entry.get("info"),
            )

    def _window(self, target: Array) -> Array:
        """The last `context_length` steps; NaN where there is no history."""
        window = target[:, -self.context_length :]
        if self.missing == "zero":
            window = np.nan_to_num(window, nan=0.0)
        before = self.context_length - window.shape[1]
        return np.pad(window, ((0, 0), (before, 0)), constant_values=np.nan)


def _read(entry: Mapping[str, Any]) -> Array:
    """`(variates, time)` values of an entry; float32 stays what it is."""
    if "target" not in entry or "start" not in entry:
        raise ValueError(f"an entry must have 'start' and 'target', got {sorted(entry)}")
    if type(entry["start"]).__name__ != "Period":
        raise ValueError(
            f"start of item {entry.get('item_id')!r} must be a pandas Period, got {entry['start']!r}: "
            "gluonts.dataset.common.ListDataset makes one"
        )
    target = np.asarray(entry["target"])
    if target.ndim not in (1, 2):
        raise ValueError(
            f"the target of item {entry.get('item_id')!r} must be (time,) or (variates, time), got {target.shape}"
        )
    return np.atleast_2d(target)


def _equal_variates(targets: Sequence[Array]) -> list[list[int]]:
    """Runs of consecutive entries with equally many variates."""
    runs: list[list[int]] = []
    for i, target in enumerate(targets):
        if runs and len(targets[runs[-1][-1]]) == len(target):
            runs[-1].append(i)
        else:
            runs.append([i])
    return runs
