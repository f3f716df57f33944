"""What the benchmark's authors published, shipped with the package: see published/NOTICE.md for origin and licence."""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np
import pandas as pd

from boom_bench.config import TERMS
from boom_bench.data.series import SeriesProperties

_PUBLISHED = files("boom_bench.data") / "published"


@cache
def _facts() -> dict[str, Any]:
    facts: dict[str, Any] = json.loads((_PUBLISHED / "series.json").read_text("utf-8"))
    return facts


@cache
def _properties() -> dict[str, SeriesProperties]:
    return {
        name: SeriesProperties(domain, frequency, variates, term, kind)
        for name, (domain, frequency, variates, term, kind) in _facts()["series"].items()
    }


def series_properties() -> dict[str, SeriesProperties]:
    """The 2,807 series of BOOM: id to properties."""
    return dict(_properties())


def boomlet_series() -> list[str]:
    """The ids of BOOMLET's 32 series."""
    return list(_facts()["boomlet"])


def low_variance_series() -> list[str]:
    """The ids of the 80 series that the authors list as low-variance."""
    return list(_facts()["low_variance"])


def published_configurations() -> list[str]:
    """The 7,413 configurations in the order of the published results."""
    properties = _properties()
    return [
        f"{name}/{properties[name].frequency}/{term}"
        for name in sorted(properties)
        for term in (sorted(TERMS) if properties[name].term == "long" else ["short"])
    ]


@cache
def _published_results() -> tuple[list[str], list[str], np.ndarray[Any, Any]]:
    with (_PUBLISHED / "results.npz").open("rb") as file, np.load(file, allow_pickle=False) as stored:
        return stored["models"].tolist(), stored["metrics"].tolist(), stored["results"]


def published_models() -> list[str]:
    """The 23 models in the order in which the authors list them; ties of ranks follow it."""
    return list(_published_results()[0])


def official_results() -> pd.DataFrame:
    """The published results of 23 models on 7,413 configurations.

    Returns:
        23 x 7,413 rows with the columns ``model``, ``dataset``, MASE, CRPS and MAE (float32).
    """
    models, metrics, results = _published_results()
    names = published_configurations()
    frame = pd.DataFrame({"model": np.repeat(models, len(names)), "dataset": np.tile(names, len(models))})
    for position, metric in enumerate(metrics):
        frame[metric] = results[:, :, position].reshape(-1)
    return frame
