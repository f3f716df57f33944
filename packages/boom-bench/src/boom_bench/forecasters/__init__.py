"""Forecasters: what one is, ready ones for known packages, and what to do when memory runs out."""

from boom_bench.forecasters.backoff import HalvingBackoff
from boom_bench.forecasters.contract import Forecaster
from boom_bench.forecasters.gluonts import GluonTSForecaster
from boom_bench.forecasters.loading import ModelOptions, NamedForecaster, load_forecaster
from boom_bench.forecasters.toto import TotoForecaster, official_toto, toto_ts
from boom_bench.forecasters.univariate import (
    ChronosForecaster,
    FracastForecaster,
    StatsForecaster,
    chronos,
    fracast,
    statsforecast,
)

__all__ = [
    "ChronosForecaster",
    "Forecaster",
    "FracastForecaster",
    "GluonTSForecaster",
    "HalvingBackoff",
    "ModelOptions",
    "NamedForecaster",
    "StatsForecaster",
    "TotoForecaster",
    "chronos",
    "fracast",
    "load_forecaster",
    "official_toto",
    "statsforecast",
    "toto_ts",
]
