"""The folder of BOOM (data set Datadog/BOOM): one folder a series, named ds-<n>-<freq>."""

from __future__ import annotations

import dataclasses
import logging
import os
import re
from collections.abc import Iterator
from pathlib import Path

from boom_bench.data.arrow import from_arrow
from boom_bench.data.reference import boomlet_series
from boom_bench.data.series import Series
from nips_common.runtime import require

log = logging.getLogger(__name__)


def boom_root(root: str | Path | None = None) -> Path:
    """The folder of the series: ``root``, or else the environment variable BOOM.

    Raises:
        FileNotFoundError: neither is given, or it is no folder.
    """
    chosen = root if root is not None else os.environ.get("BOOM")
    if not chosen:
        raise FileNotFoundError("BOOM: give the folder of the series, or set the environment variable BOOM to it")
    if not Path(chosen).is_dir():
        raise FileNotFoundError(
            f"{chosen}: no such folder" + ("" if root is not None else " (environment variable BOOM)")
        )
    return Path(chosen)


def from_hub(repository: str) -> Path:
    """The local copy of a data set of the Hugging Face hub, downloaded where it is not there yet.

    Args:
        repository: such as "Datadog/BOOM".

    Raises:
        ImportError: huggingface_hub is missing; names the extra.
        OSError: it can be neither found nor downloaded.
    """
    hub = require("huggingface_hub", "boom-bench[hub]")
    try:
        return Path(hub.snapshot_download(repository, repo_type="dataset"))
    except ValueError as error:  # a name that cannot be one
        raise ValueError(f"hf:{repository}: {error}") from None


def series_folders(root: Path) -> list[Path]:
    """The folders below ``root`` that hold an Arrow file, by number: ds-9-T before ds-10-T."""
    folders = [folder for folder in root.iterdir() if folder.is_dir() and any(folder.glob("*.arrow"))]
    return sorted(folders, key=lambda folder: [int(p) if p.isdigit() else p for p in re.split(r"(\d+)", folder.name)])


def load_boom(root: str | Path | None = None) -> Iterator[Series]:
    """All series below a folder, one at a time; each is named after its folder, as configurations are.

    Args:
        root: the folder; None = the environment variable BOOM.

    Raises:
        FileNotFoundError: no such folder, or no series in it.
        ValueError: a series that cannot be read; names file and row.
    """
    place = boom_root(root)
    folders = series_folders(place)
    if not folders:
        raise FileNotFoundError(f"{place}: holds no folder with a series (folders such as ds-0-T with an Arrow file)")
    return (dataclasses.replace(from_arrow(folder), item_id=folder.name) for folder in folders)


def load_boomlet(root: str | Path | None = None) -> Iterator[Series]:
    """The series of BOOMLET below a folder that may hold all of BOOM; missing ones are logged.

    Args:
        root: the folder; None = the environment variable BOOM.

    Raises:
        FileNotFoundError: no such folder, or none of the 32 series in it.
    """
    place = boom_root(root)
    wanted = boomlet_series()
    there = [name for name in wanted if (place / name).is_dir()]
    if not there:
        raise FileNotFoundError(f"{place}: holds none of BOOMLET's {len(wanted)} series (such as {wanted[0]})")
    if len(there) < len(wanted):
        log.warning("%s lacks %d of BOOMLET's %d series", place, len(wanted) - len(there), len(wanted))
    return (dataclasses.replace(from_arrow(place / name), item_id=name) for name in there)
