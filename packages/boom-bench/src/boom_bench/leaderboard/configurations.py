"""Names of configurations, and results as matrices of models x configurations."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from boom_bench.config import TERMS

Array = NDArray[Any]


class Configuration(NamedTuple):
    """``<series>/<frequency class>/<term>``, taken apart; the series itself may hold slashes."""

    series: str
    frequency: str
    term: str


def parse_configuration(name: str) -> Configuration:
    """Takes a name apart.

    Raises:
        ValueError: another form, or a term that is not short, medium or long.
    """
    parts = str(name).rsplit("/", 2)
    if len(parts) != 3 or not parts[0]:
        raise ValueError(f"configuration {name!r} must be <series>/<Short|Medium|Long>/<term>")
    if parts[2] not in TERMS:
        raise ValueError(f"configuration {name!r}: the term must be one of {', '.join(TERMS)}, got {parts[2]!r}")
    return Configuration(*parts)


def series_of(name: str) -> str:
    """The series of a configuration; the whole name where it has no such parts."""
    return str(name).rsplit("/", 2)[0]


@dataclass(frozen=True)
class ResultMatrix:
    """Results by model and configuration.

    Attributes:
        models: M names, in order of appearance.
        configurations: C names, in order of appearance.
        rows: (M, C) positions in the frame.
        frame: the results.
    """

    models: list[str]
    configurations: list[str]
    rows: NDArray[np.intp]
    frame: pd.DataFrame

    @classmethod
    def of(cls, results: pd.DataFrame, metrics: Iterable[str] = ()) -> ResultMatrix:
        """Checks results and arranges them.

        Raises:
            ValueError: an absent column, no row, a configuration that a model has twice, models with different
                configurations; names model and configuration.
        """
        if absent := [name for name in ("model", "dataset", *metrics) if name not in results.columns]:
            raise ValueError(f"results lack the column {absent[0]!r}; there are {', '.join(map(str, results.columns))}")
        if not len(results):
            raise ValueError("there is no result")
        model_codes, models = pd.factorize(results["model"])
        codes, names = pd.factorize(results["dataset"])
        cells = model_codes * len(names) + codes
        counts = np.bincount(cells, minlength=len(models) * len(names)).reshape(len(models), len(names))
        for wrong, what in ((counts > 1, "has more than one result for"), (counts < 1, "has no result for")):
            if wrong.any():
                model, name = np.argwhere(wrong)[0]
                others = "" if what.startswith("has more") else ", which other models have"
                raise ValueError(
                    f"model {models[model]!r} {what} {int(wrong[model].sum())} of {len(names)} configurations{others}: "
                    f"{names[name]!r} is the first"
                )
        rows = np.empty(len(results), np.intp)
        rows[cells] = np.arange(len(results))
        return cls(list(models), list(names), rows.reshape(counts.shape), results)

    def values(self, metric: str) -> Array:
        """(M, C) float64.

        Raises:
            ValueError: the column holds no numbers.
        """
        try:
            column = self.frame[metric].to_numpy(dtype=np.float64)
        except (TypeError, ValueError):
            raise ValueError(f"column {metric!r} must hold numbers") from None
        return np.asarray(column[self.rows])

    def position(self, model: str) -> int:
        """Row of a model; ValueError naming those there are."""
        if model not in self.models:
            raise ValueError(f"no results of the model {model!r}; there are {', '.join(map(str, self.models))}")
        return self.models.index(model)


def check_order(models: Sequence[str], order: Sequence[str] | None) -> list[str]:
    """The order of models for ties: as given, which must name all of them once, or of appearance."""
    if order is None:
        return list(models)
    if sorted(order) != sorted(models):
        odd = sorted(set(order) ^ set(models)) or sorted(name for name in order if list(order).count(name) > 1)
        raise ValueError(f"order must name every model once ({', '.join(models)}); it does not fit at {odd[0]!r}")
    return list(order)
