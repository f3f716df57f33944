"""Toto as a forecaster: this project's package (module ``toto_ts``) and the authors' own (module ``toto``)."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from boom_bench.config import check_whole
from boom_bench.forecasters.backoff import HalvingBackoff
from boom_bench.forecasters.contract import as_array

Array = NDArray[Any]


@dataclass
class TotoForecaster:
    """Samples of a ``TotoForecaster`` of either package.

    Args:
        draw: called as draw(context (V, T) float32, horizon, num_samples, samples_per_batch); gives (V, H, S), with or
            without a batch axis of one in front.
        num_samples: S.
        samples_per_batch: drawn at a time; halved, to a divisor of S, when memory runs out.
    """

    draw: Callable[[Array, int, int, int], Any]
    num_samples: int = 256
    samples_per_batch: int | None = None
    _backoff: HalvingBackoff = field(init=False, repr=False)

    def __post_init__(self) -> None:
        check_whole("num_samples", self.num_samples)
        self._backoff = HalvingBackoff(check_whole("samples_per_batch", self.samples_per_batch or self.num_samples))

    def __call__(self, context: Array, horizon: int, quantile_levels: Sequence[float]) -> Array:
        """Samples (S, V, H) from a context (V, T)."""
        series = np.ascontiguousarray(context, dtype=np.float32)

        def attempt(size: int) -> Array:
            while self.num_samples % size:  # both packages draw whole batches only
                size -= 1
            return as_array(self.draw(series, horizon, self.num_samples, size))

        samples = self._backoff(attempt)
        samples = samples[0] if samples.ndim == 4 else samples
        return np.moveaxis(samples, -1, 0)


def toto_ts(
    model: Any,
    *,
    num_samples: int = 256,
    samples_per_batch: int | None = None,
    seed: int | None = 0,
    device: str = "cpu",
) -> TotoForecaster:
    """A forecaster from this project's toto-ts, which is found by import and never required.

    Args:
        model: a checkpoint's folder or hub id, a ``toto_ts.Toto``, or a ``toto_ts.TotoForecaster``.
        num_samples: S.
        samples_per_batch: samples at a time.
        seed: of each window's samples.
        device: where a checkpoint is loaded to: auto, cpu, cuda, cuda:N or mps.

    Raises:
        ImportError: the package is not there.
        ValueError: a checkpoint that cannot be read.
    """
    package = _found("toto_ts", "this project's toto-ts is not installed (the package of that name on the public index "
                     "is the authors', model toto): install it from this project's repository")  # fmt: skip
    if isinstance(model, str) or hasattr(model, "__fspath__"):
        from nips_common.runtime import resolve_device

        model = package.Toto.from_pretrained(model).to(resolve_device(device)).eval()
    if not hasattr(model, "forecast"):
        model = package.TotoForecaster(model)

    def draw(context: Array, horizon: int, samples: int, at_once: int) -> Any:
        return model.forecast(context, horizon, num_samples=samples, samples_per_batch=at_once, seed=seed).samples

    return TotoForecaster(draw, num_samples, samples_per_batch)


def official_toto(
    model: Any, *, num_samples: int = 256, samples_per_batch: int | None = None, device: str = "cpu"
) -> TotoForecaster:
    """A forecaster from the authors' package; missing points are masked.

    Args:
        model: a checkpoint's folder or hub id, or a forecaster of theirs.
        num_samples: S.
        samples_per_batch: samples at a time.
        device: where a checkpoint is loaded to.

    Raises:
        ImportError: the package is not there.
    """
    hint = "the authors' package is not installed: pip install toto-ts (module toto)"
    dataset = _found("toto.data.util.dataset", hint)
    torch = _found("torch", hint)
    if not hasattr(model, "forecast"):
        from nips_common.runtime import resolve_device

        loaded = _found("toto.model.toto", hint).Toto.from_pretrained(str(model)).to(resolve_device(device)).eval()
        model = _found("toto.inference.forecaster", hint).TotoForecaster(loaded.model)
    place = next(iter(model.model.parameters())).device if hasattr(model.model, "parameters") else device

    def draw(context: Array, horizon: int, samples: int, at_once: int) -> Any:
        series = torch.from_numpy(context).to(place)
        there = torch.isfinite(series)
        inputs = dataset.MaskedTimeseries(
            series=series.nan_to_num(0, 0, 0),
            padding_mask=there,
            id_mask=torch.zeros_like(series),
            timestamp_seconds=torch.zeros_like(series),
            time_interval_seconds=torch.ones(len(series), device=place),
        )
        return model.forecast(inputs, horizon, num_samples=samples, samples_per_batch=at_once).samples

    return TotoForecaster(draw, num_samples, samples_per_batch)


def _found(module: str, hint: str) -> Any:
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise ImportError(f"{error.name} cannot be imported: {hint}") from error
