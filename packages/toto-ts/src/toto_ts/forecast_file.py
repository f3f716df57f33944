"""Forecast the series of a table on disk: a table out, and a plot with bands."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nips_common.artifacts import atomic_file
from nips_common.runtime import require
from toto_ts.forecaster import TotoForecaster
from toto_ts.plots import plot_forecast
from toto_ts.series_files import TABLES, SeriesColumns, read_table

log = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class ForecastJob:
    """What to forecast from which file, and where to.

    Args:
        source: CSV, TSV or Parquet.
        output: CSV, TSV or Parquet.
        columns: where the series are; the exogenous ones are those of `future`.
        horizon: steps.
        levels: quantiles.
        num_samples: None for point mode.
        context: last steps of each series to use; None uses all.
        future: table of known futures, with the stamps' and ids' columns of the source.
        plot: PNG file of the first series; None draws nothing.
        seed: of the samples.

    Raises:
        ValueError: no targets, an ending that is none of a table's, or an output that is an input too.
        FileNotFoundError: no folder for the output.
    """

    source: Path
    output: Path
    columns: SeriesColumns
    horizon: int
    levels: tuple[float, ...] = (0.1, 0.5, 0.9)
    num_samples: int | None = 256
    context: int | None = None
    future: Path | None = None
    plot: Path | None = None
    seed: int | None = None

    def __post_init__(self) -> None:
        if not self.columns.targets:
            raise ValueError("--targets must name at least one column")
        if self.output.suffix.lower() not in TABLES:
            raise ValueError(f"--output must end in {', '.join(TABLES)}, got {self.output}")
        if self.plot is not None and self.plot.suffix.lower() != ".png":
            raise ValueError(f"--plot must end in .png, got {self.plot}")
        for path in (self.output, self.plot):
            if path is not None and not path.resolve().parent.is_dir():
                raise FileNotFoundError(f"{path.resolve().parent}: no such folder")
        if self.output.resolve() in [path.resolve() for path in (self.source, self.future) if path is not None]:
            raise ValueError(f"--output {self.output} is an input too, which it would overwrite")


def forecast_file(forecaster: TotoForecaster, job: ForecastJob) -> dict[str, Any]:
    """Forecast, write, and say what was done.

    Returns:
        Rows, series and files.

    Raises:
        ValueError, FileNotFoundError, ImportError: what cannot be read or forecast; nothing is written then.
    """
    if job.output.suffix.lower() == ".parquet":
        require("pyarrow", "toto-ts[train]")  # before the work, not after
    if job.plot is not None:
        require("matplotlib", "toto-ts[train]")
    columns, df = job.columns, read_table(job.source)
    future, exogenous = None, columns.exogenous
    index = [name for name in (columns.item_id, columns.timestamp) if name is not None]
    if job.future is not None:
        future = read_table(job.future)
        exogenous = exogenous or tuple(name for name in future.columns if name not in index)
    if job.context is not None:
        df = df.tail(job.context) if columns.item_id is None else _tails(df, columns.item_id, job.context)
    result = forecaster.forecast_df(
        df,
        job.horizon,
        columns.item_id,
        columns.timestamp,
        columns.targets,
        exogenous_columns=exogenous,
        future_df=future,
        quantile_levels=job.levels,
        num_samples=job.num_samples,
        seed=job.seed,
        freq=columns.freq,
    )
    write_table(result, job.output)
    if job.plot is not None:
        _plot(df, result, job)
    ids = 1 if columns.item_id is None else int(result[columns.item_id].nunique())
    files = [str(path) for path in (job.output, job.plot) if path is not None]
    return {"series": ids, "targets": list(columns.targets), "rows": len(result), "files": files}


def _tails(df: Any, id_column: str, steps: int) -> Any:
    if id_column not in df.columns:
        return df  # the forecaster says what is missing
    return df.groupby(id_column, sort=False).tail(steps)


def write_table(df: Any, path: Path) -> None:
    """Write a data frame as CSV, TSV or Parquet, atomically."""
    with atomic_file(path) as temporary:
        if path.suffix.lower() == ".parquet":
            df.to_parquet(temporary, index=False)
        else:
            df.to_csv(temporary, index=False, sep="\t" if path.suffix.lower() == ".tsv" else ",")


def _plot(df: Any, result: Any, job: ForecastJob) -> None:
    """The first series, with as much of its past as helps to judge the forecast."""
    import pandas as pd

    columns = job.columns
    past, rows = df, result.rename(columns={columns.timestamp: "timestamp"})
    if columns.item_id is not None:
        first = result[columns.item_id].iloc[0]
        past, rows = df[df[columns.item_id] == first], rows[rows[columns.item_id] == first]
    past = past.tail(4 * job.horizon)
    stamps = pd.to_datetime(past[columns.timestamp], format="ISO8601")
    drawn = [level for level in job.levels if f"{level:g}" in rows.columns]
    plot_forecast({name: (stamps, past[name]) for name in columns.targets}, rows, drawn, Path(str(job.plot)))


def as_levels(text: str) -> tuple[float, ...]:
    """Quantile levels by commas; ValueError for what is no number."""
    try:
        return tuple(float(part) for part in text.split(",") if part.strip())
    except ValueError as error:
        raise ValueError(f"--quantiles must be numbers separated by commas, got {text!r}") from error


def as_columns(text: str | None) -> Sequence[str]:
    """Column names by commas."""
    return tuple(part.strip() for part in (text or "").split(",") if part.strip())
