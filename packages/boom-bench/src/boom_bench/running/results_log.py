"""The results file while it grows: one writer, a whole line at a time, mended after a kill."""

from __future__ import annotations

import csv
import io
import logging
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from boom_bench.running.one_task import COLUMNS
from nips_common.artifacts import read_json, write_json

log = logging.getLogger(__name__)


class ResultsLog:
    """A results file that rows are appended to; a context manager that holds it for one run.

    A row is written by one system call and synced, so a kill leaves at most one line without its end, which is cut off
    when the file is opened again. Beside the file, ``run.json`` keeps the settings that its rows share.

    Args:
        path: the CSV file; folders are made.
        settings: of this run.
        resume: go on with a file that is there; False begins anew.

    Raises:
        ValueError: the file is of other settings or other columns, or another run writes into it.
    """

    def __init__(self, path: str | Path, settings: Mapping[str, Any], *, resume: bool = True) -> None:
        self.path = Path(path)
        self.settings = dict(settings)
        self.resume = resume
        self.done: set[str] = set()
        self._columns: Sequence[str] = COLUMNS

    def __enter__(self) -> Self:
        check_results_path(self.path)
        if self.resume and self.path.exists():
            self._check_settings()
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            self._lock()
            if not self.resume:
                os.ftruncate(self._descriptor, 0)
            self._read()
        except BaseException:
            os.close(self._descriptor)
            raise
        write_json(self._settings_file, self.settings)
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)

    @property
    def _settings_file(self) -> Path:
        return self.path.parent / "run.json"

    def _check_settings(self) -> None:
        if not self._settings_file.is_file():
            return  # an official file, or one of another program: only its columns are checked
        begun = read_json(self._settings_file)
        for name in sorted({*begun, *self.settings}):
            if begun.get(name) != self.settings.get(name):
                raise ValueError(
                    f"{self.path} was begun with {name}={begun.get(name)!r}, this run has {self.settings.get(name)!r}: "
                    "use the same, another folder, or begin anew (resume=False, --restart)"
                )

    def _lock(self) -> None:
        if sys.platform == "win32":
            return  # two runs into one file are not noticed there
        import fcntl

        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise ValueError(f"{self.path} is being written by another run") from None

    def _read(self) -> None:
        content = self.path.read_bytes()
        whole = content[: content.rfind(b"\n") + 1]
        if len(whole) < len(content):
            log.warning("%s: cut off the unfinished line %d", self.path, whole.count(b"\n") + 1)
            os.ftruncate(self._descriptor, len(whole))
        rows = list(csv.reader(io.StringIO(whole.decode("utf-8"), newline="")))
        if not rows:
            self._append(list(COLUMNS))
            return
        self._columns = rows[0]
        if absent := [name for name in COLUMNS if name not in self._columns]:
            raise ValueError(f"{self.path}, line 1: lacks the column {absent[0]!r}, so it cannot be resumed")
        position = self._columns.index("dataset")
        for number, row in enumerate(rows[1:], 2):
            if len(row) != len(self._columns):
                raise ValueError(f"{self.path}, row {number}: {len(row)} fields, the header has {len(self._columns)}")
            if row[position] in self.done:
                raise ValueError(f"{self.path}, row {number}: {row[position]!r} stands twice")
            self.done.add(row[position])

    def add(self, row: Mapping[str, Any]) -> None:
        """Appends a row durably."""
        self._append([row.get(name, "") for name in self._columns])
        self.done.add(str(row["dataset"]))

    def _append(self, cells: Sequence[Any]) -> None:
        text = io.StringIO(newline="")
        csv.writer(text, lineterminator="\n").writerow(cells)
        os.write(self._descriptor, text.getvalue().encode())
        os.fsync(self._descriptor)


def check_results_path(path: Path) -> None:
    """ValueError unless a results file can stand there: ``<model>/<name>.csv``."""
    if path.suffix != ".csv":
        raise ValueError(f"{path}: results are written into a .csv file, such as results/my-model/all_results.csv")
    if path.is_dir() or (path.parent.exists() and not path.parent.is_dir()):
        raise ValueError(f"{path}: a folder stands where the file should, or a file where its folder should")
