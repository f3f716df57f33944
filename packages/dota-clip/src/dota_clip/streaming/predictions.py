"""The rows a stream gives out: appended to a log while it runs, turned into JSON lines or Parquet at its end."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from dota_clip.streaming.methods import Decision
from nips_common.artifacts import atomic_file
from nips_common.runtime import require

FORMATS = (".jsonl", ".parquet")
_ROW_GROUP = 1024


def check_output(path: Path) -> None:
    """ValueError unless predictions can be written to this path; ImportError if Parquet is not installed."""
    if path.suffix not in FORMATS:
        raise ValueError(
            f"{path}: predictions are written as {' or '.join(FORMATS)}, got {path.suffix or 'no ending'!r}"
        )
    if path.is_dir():
        raise ValueError(f"{path} is a folder, expected the name of a file")
    folder = next(parent for parent in path.absolute().parents if parent.exists())
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        raise ValueError(f"{path} cannot be written: {folder} is not a folder that this user may write to")
    if path.suffix == ".parquet":
        require("pyarrow", "dota-clip[parquet]")


def prediction_rows(
    items: Sequence[tuple[int, str, int | None]],
    decisions: Sequence[Decision],
    classnames: Sequence[str],
    stream: int,
    probabilities: bool,
) -> list[dict[str, Any]]:
    """One row an image.

    Args:
        items: (place in the data set, identifier, label or None) of n images.
        decisions: their outcomes.
        classnames: K names.
        stream: number of the independent stream they belong to.
        probabilities: put the K zero-shot and adapted probabilities in the row, not only the largest.
    """
    # one transfer a batch: a stream on a GPU must not wait for every image
    logits = torch.stack([torch.stack((decision.zero_shot_logits, decision.logits)) for decision in decisions])
    weights = [decision.fusion_weight for decision in decisions]
    held = [weight for weight in weights if weight is not None]
    lambdas = iter(torch.stack(held).tolist() if held else [])
    rows = []
    for (index, identifier, label), probs, weight, decision in zip(
        items, logits.double().softmax(-1).cpu(), weights, decisions, strict=True
    ):
        best, chosen = probs.max(-1)
        row: dict[str, Any] = {"index": index, "image": identifier, "stream": stream, "label": label}
        row["label_name"] = None if label is None else classnames[label]
        for i, kind in enumerate(("zero_shot", "adapted")):
            row |= {
                kind: int(chosen[i]),
                f"{kind}_name": classnames[int(chosen[i])],
                f"{kind}_probability": float(best[i]),
            }
        row["fusion_weight"] = None if weight is None else next(lambdas)
        row["asked"] = decision.asked
        if probabilities:
            row |= {f"{kind}_probabilities": probs[i].tolist() for i, kind in enumerate(("zero_shot", "adapted"))}
        rows.append(row)
    return rows


class PredictionLog:
    """JSON lines beside the output while a stream runs; cut back to a known length when a run is resumed.

    Args:
        path: the log.
        size: bytes that a saved state vouches for; 0 starts anew.

    Raises:
        ValueError: the log is shorter than the state says.
    """

    def __init__(self, path: Path, size: int = 0) -> None:
        found = path.stat().st_size if path.is_file() else 0
        if found < size:
            raise ValueError(f"{path} holds {found} bytes but the saved state vouches for {size}: use --restart")
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self._file = path.open("r+b" if size else "wb")
        self._file.truncate(size)
        self._file.seek(size)

    def write(self, rows: Sequence[dict[str, Any]]) -> None:
        """Appends rows."""
        self._file.write("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode())

    def flush(self) -> int:
        """Forces all rows to the disk; returns the length in bytes that a state may vouch for."""
        self._file.flush()
        os.fsync(self._file.fileno())
        return self._file.tell()

    def close(self) -> None:
        """Ends the writing."""
        self._file.close()


def read_log(path: Path) -> Iterator[dict[str, Any]]:
    """The rows of a log, one after the other."""
    with path.open(encoding="utf-8") as file:
        for line in file:
            yield json.loads(line)


def write_predictions(output: Path, logs: Sequence[Path]) -> None:
    """Joins the logs of all streams into the output, atomically, without holding all rows."""
    with atomic_file(output) as temporary:
        if output.suffix == ".parquet":
            _write_parquet(temporary, logs)
        else:
            with temporary.open("wb") as target:
                for log in logs:
                    with log.open("rb") as source:
                        shutil.copyfileobj(source, target)


def _write_parquet(path: Path, logs: Sequence[Path]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    probs = pa.list_(pa.float64())
    types = {
        "index": pa.int64(), "image": pa.string(), "stream": pa.int64(), "label": pa.int64(), "label_name": pa.string(),
        "zero_shot": pa.int64(), "zero_shot_name": pa.string(), "zero_shot_probability": pa.float64(),
        "adapted": pa.int64(), "adapted_name": pa.string(), "adapted_probability": pa.float64(),
        "fusion_weight": pa.float64(), "asked": pa.bool_(),
        "zero_shot_probabilities": probs, "adapted_probabilities": probs,
    }  # fmt: skip
    writer = None
    for block in _blocks(row for log in logs for row in read_log(log)):
        # label and fusion_weight may be null in all rows, so that the types cannot be left to guessing
        schema = pa.schema([(name, kind) for name, kind in types.items() if name in block[0]])
        writer = writer or pq.ParquetWriter(path, schema)
        writer.write_table(pa.Table.from_pylist(block, schema=schema))
    (writer or pq.ParquetWriter(path, pa.schema(list(types.items())))).close()


def _blocks(rows: Iterator[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    block: list[dict[str, Any]] = []
    for row in rows:
        block.append(row)
        if len(block) == _ROW_GROUP:
            yield block
            block = []
    if block:
        yield block
