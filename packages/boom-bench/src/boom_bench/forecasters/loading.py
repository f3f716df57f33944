"""Forecasters by name, for the command line and for other processes, which load their own."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from boom_bench.baselines import Drift, Naive, SeasonalNaive
from boom_bench.forecasters.contract import Array, Forecaster, check_forecaster, for_task
from boom_bench.forecasters.toto import official_toto, toto_ts
from boom_bench.forecasters.univariate import chronos, fracast, statsforecast
from boom_bench.instances import Forecast
from boom_bench.tasks import Task


@dataclass(frozen=True)
class ModelOptions:
    """What the command line says about a model.

    Args:
        checkpoint: a folder or hub id.
        device: auto, cpu, cuda, cuda:N or mps.
        num_samples: of forecasters that sample.
        samples_per_batch: how many of them at a time.
        batch_size: variates at a time.
    """

    checkpoint: str | None = None
    device: str = "auto"
    num_samples: int = 256
    samples_per_batch: int | None = None
    batch_size: int = 512

    def needed_checkpoint(self, name: str) -> str:
        """The checkpoint; ValueError if there is none."""
        if self.checkpoint is None:
            raise ValueError(f"--model {name} needs --checkpoint, a folder or hub id")
        return self.checkpoint


def _sampling(options: ModelOptions) -> dict[str, Any]:
    return {
        "num_samples": options.num_samples,
        "samples_per_batch": options.samples_per_batch,
        "device": options.device,
    }


KNOWN: dict[str, Callable[[ModelOptions], Any]] = {
    "seasonal-naive": lambda options: SeasonalNaive(),
    "naive": lambda options: Naive(),
    "drift": lambda options: Drift(),
    "toto-ts": lambda options: toto_ts(options.needed_checkpoint("toto-ts"), **_sampling(options)),
    "toto": lambda options: official_toto(options.needed_checkpoint("toto"), **_sampling(options)),
    "chronos": lambda options: chronos(
        options.needed_checkpoint("chronos"), device=_plain_device(options.device), batch_size=options.batch_size
    ),
    "fracast": lambda options: fracast(options.checkpoint),
    "auto-arima": lambda options: statsforecast("AutoARIMA"),
    "auto-ets": lambda options: statsforecast("AutoETS"),
    "auto-theta": lambda options: statsforecast("AutoTheta"),
}


def _plain_device(device: str) -> str:
    from nips_common.runtime import resolve_device

    return str(resolve_device(device))


def load_forecaster(name: str, options: ModelOptions | None = None) -> Forecaster:
    """A forecaster by name.

    Args:
        name: one of `KNOWN`, or ``module:object`` of your own. The object is a forecaster; a class is called first,
            with the checkpoint if there is one. Modules in the working directory are found.
        options: what else is known.

    Raises:
        ValueError: an unknown name or object; says what is accepted.
        ImportError: a package or the module is missing.
        TypeError: the object cannot be called.
    """
    chosen = options or ModelOptions()
    if name in KNOWN:
        return check_forecaster(KNOWN[name](chosen))
    module_name, colon, attribute = name.partition(":")
    if not (colon and module_name and attribute):
        raise ValueError(f"model must be one of {', '.join(KNOWN)}, or module:object; got {name!r}")
    found: Any = _import(module_name)
    for part in attribute.split("."):
        if not hasattr(found, part):
            raise ValueError(f"module {module_name!r} has no {attribute!r}")
        found = getattr(found, part)
    if isinstance(found, type):
        found = found() if chosen.checkpoint is None else found(chosen.checkpoint)
    return check_forecaster(found)


def _import(module: str) -> Any:
    here = os.getcwd()
    added = here not in sys.path
    if added:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(module)
    finally:
        if added:
            sys.path.remove(here)


@dataclass
class NamedForecaster:
    """A forecaster that is loaded where it is first used; sent to another process, only its name goes."""

    name: str
    options: ModelOptions = field(default_factory=ModelOptions)
    _loaded: Forecaster | None = field(default=None, init=False, repr=False)

    def load(self) -> Forecaster:
        """The forecaster itself."""
        if self._loaded is None:
            self._loaded = load_forecaster(self.name, self.options)
        return self._loaded

    def for_task(self, task: Task) -> Forecaster:
        """The forecaster of one configuration."""
        return for_task(self.load(), task)

    def __call__(self, context: Array, horizon: int, quantile_levels: Sequence[float]) -> Forecast:
        """Forecasts a context (V, T)."""
        return self.load()(context, horizon, quantile_levels)

    def __getstate__(self) -> dict[str, Any]:
        return {"name": self.name, "options": self.options, "_loaded": None}
