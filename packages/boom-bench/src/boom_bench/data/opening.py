"""One door to all kinds of data: BOOM's folder, Arrow, CSV, Parquet."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from boom_bench.data.arrow import arrow_files, read_arrow
from boom_bench.data.boom import from_hub, load_boom, load_boomlet, series_folders
from boom_bench.data.frames import read_table
from boom_bench.data.series import Series

HUB = "hf:"
TABLES = (".csv", ".csv.gz", ".parquet")


def open_data(path: str | Path | None, *, boomlet: bool = False, **options: Any) -> Iterator[Series]:
    """Series from any place.

    Args:
        path: a folder of BOOM (a folder a series), a folder of `datasets.save_to_disk`, an Arrow, CSV or Parquet file,
            or a folder of such files; ``hf:`` and a name, such as hf:Datadog/BOOM, for a data set of the hub; None =
            the environment variable BOOM.
        boomlet: only the 32 series of BOOMLET.
        options: of `from_dataframe`, for tables.

    Raises:
        FileNotFoundError: there is nothing that can be read; says what is accepted.
        ValueError: what the readers refuse; names the file.
    """
    if path is not None and str(path).startswith(HUB):
        path = from_hub(str(path).removeprefix(HUB))
    if boomlet:
        return load_boomlet(path)
    if path is None:
        return load_boom()
    place = Path(path)
    if place.is_dir():
        if arrow_files(place):
            return read_arrow(place)
        if series_folders(place):
            return load_boom(place)
        if files := sorted(file for file in place.iterdir() if file.name.endswith(TABLES)):
            return (series for file in files for series in read_table(file, **options))
    elif place.is_file():
        return read_arrow(place) if place.suffix == ".arrow" else read_table(place, **options)
    raise FileNotFoundError(
        f"{place}: no such data; accepted are a folder of BOOM, a folder of datasets.save_to_disk, "
        ".arrow, .csv, .csv.gz and .parquet files or a folder of them, and hf:NAME for a data set of the hub"
    )
