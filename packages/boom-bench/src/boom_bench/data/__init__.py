"""Series and where they come from: BOOM's folder, Arrow, CSV, Parquet, data frames; and what was published of BOOM."""

from boom_bench.data.arrow import from_arrow, read_arrow
from boom_bench.data.boom import load_boom, load_boomlet
from boom_bench.data.frames import from_dataframe, read_table
from boom_bench.data.opening import open_data
from boom_bench.data.reference import (
    boomlet_series,
    low_variance_series,
    official_results,
    published_configurations,
    published_models,
    series_properties,
)
from boom_bench.data.series import Series, SeriesProperties, univariate

__all__ = [
    "Series",
    "SeriesProperties",
    "boomlet_series",
    "from_arrow",
    "from_dataframe",
    "load_boom",
    "load_boomlet",
    "low_variance_series",
    "official_results",
    "open_data",
    "published_configurations",
    "published_models",
    "read_arrow",
    "read_table",
    "series_properties",
    "univariate",
]
