"""Training windows: each series split by time, windows drawn from its training part, validation windows at its end."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from toto_ts.exogenous import shift_exogenous
from toto_ts.timeseries import CausalMaskedTimeseries

Array: TypeAlias = np.ndarray[Any, np.dtype[np.floating[Any]]]
SeriesInput: TypeAlias = "Array | Tensor | Mapping[str, Array | Tensor]"


@dataclasses.dataclass(frozen=True)
class TrainingSeries:
    """One multivariate series.

    Args:
        target: `(variates, time)`, NaN = missing.
        exogenous: `(exogenous, time)` on the same clock.
    """

    target: Tensor
    exogenous: Tensor

    @property
    def length(self) -> int:
        """Time steps."""
        return self.target.shape[1]


def read_series(dataset: Sequence[SeriesInput]) -> list[TrainingSeries]:
    """Arrays `(variates, time)`, or mappings with "target" and "exogenous", as series.

    Raises:
        ValueError: no series or no values, shapes that do not fit, infinite values; the series is named by its place.
    """
    if isinstance(dataset, (np.ndarray, Tensor, Mapping)):
        raise ValueError(f"the dataset must be a list of series, got one {type(dataset).__name__}: put it into a list")
    if not dataset:
        raise ValueError("the dataset holds no series")
    series = []
    for i, entry in enumerate(dataset):
        parts = dict(entry) if isinstance(entry, Mapping) else {"target": entry}
        if "target" not in parts:
            raise ValueError(f"series {i} has no 'target', only {sorted(parts)}")
        target = _matrix(parts["target"], f"the target of series {i}")
        if len(target) == 0:
            raise ValueError(f"series {i} has no variates")
        given = parts.get("exogenous")
        exogenous = target[:0] if given is None else _matrix(given, f"the exogenous values of series {i}")
        if exogenous.shape[1] != target.shape[1]:
            raise ValueError(
                f"series {i} has {target.shape[1]} steps of its target and {exogenous.shape[1]} of its exogenous values"
            )
        series.append(TrainingSeries(target, exogenous))
    if all(bool(entry.target.isnan().all()) for entry in series):
        raise ValueError(f"none of the {len(series)} series has a value in its target: all are NaN (missing)")
    counts = {len(entry.exogenous) for entry in series}
    if len(counts) > 1:
        raise ValueError(f"all series must have the same number of exogenous variates, got {sorted(counts)}")
    return series


def _matrix(values: Any, what: str) -> Tensor:
    matrix = torch.as_tensor(np.asarray(values, dtype=np.float32) if not isinstance(values, Tensor) else values.float())
    matrix = matrix.unsqueeze(0) if matrix.ndim == 1 else matrix
    if matrix.ndim != 2 or matrix.shape[1] == 0:
        raise ValueError(f"{what} must be (variates, time), got shape {tuple(matrix.shape)}")
    if bool(matrix.isinf().any()):
        raise ValueError(f"{what} must be finite or NaN (missing), found infinity")
    return matrix


@dataclasses.dataclass(frozen=True)
class Split:
    """How the series of a dataset are cut.

    Args:
        series: those that are long enough.
        train_lengths: steps of each that training may see; one patch after them is for validation.
        dropped: how many were too short.
        context_length: steps of a window's input.
    """

    series: list[TrainingSeries]
    train_lengths: list[int]
    dropped: int
    context_length: int


def split_series(
    series: Sequence[TrainingSeries], patch_size: int, horizon: int, context_patches: int, test_fraction: float
) -> Split:
    """The official split: per series the last share is for testing, the patch before it for validation.

    Series with a training part under 3 patches or a test part under the horizon are dropped; the context is clipped to
    what the shortest of the others allows.

    Args:
        series: all of them.
        patch_size: P.
        horizon: steps that a test must hold; 0 where nobody tests.
        context_patches: wanted length of the context.
        test_fraction: share of each series, rounded up.

    Raises:
        ValueError: no series is long enough; the longest is named.
    """
    kept, lengths = [], []
    tested = horizon if test_fraction > 0 else 0
    for entry in series:
        test = math.ceil(test_fraction * entry.length)
        train = entry.length - test - patch_size
        if train >= 3 * patch_size and test >= tested:
            kept.append(entry)
            lengths.append(train)
    if not kept:
        longest = max(entry.length for entry in series)
        raise ValueError(
            f"no series is long enough: the longest has {longest} steps, of which {test_fraction:.0%} (at least "
            f"horizon={horizon}) are for testing, {patch_size} for validation, and {3 * patch_size} must remain"
        )
    patches = max(1, min(context_patches, min(lengths) // patch_size - 1))
    return Split(kept, lengths, len(series) - len(kept), patches * patch_size)


def window(entry: TrainingSeries, start: int, context_length: int, patch_size: int) -> CausalMaskedTimeseries:
    """Context and the patch after it, exogenous variates moved one patch into the past, without a batch axis.

    Args:
        entry: the series.
        start: first step.
        context_length: steps of the input.
        patch_size: P.
    """
    end = start + context_length + patch_size
    target, known = entry.target[:, start:end], entry.exogenous[:, start:end]
    moved = shift_exogenous(
        known[:, :context_length], known[:, context_length:], context_length=context_length, patch_size=patch_size
    )
    values = torch.cat([target, moved])
    mask = ~values.isnan()
    mask[len(target) :, context_length:] = False  # nobody knows what comes after
    return CausalMaskedTimeseries(
        values,
        mask,
        torch.zeros(values.shape, dtype=torch.long),
        torch.zeros(values.shape, dtype=torch.long),
        torch.zeros(len(values), dtype=torch.long),
        len(moved),
        slice(0, context_length),
        slice(patch_size, None),
    )


class TrainingWindows(Dataset[CausalMaskedTimeseries]):
    """Windows at random places; which ones depends on seed and index alone, so that processes and resumed runs agree.

    An epoch visits each series `windows_per_series` times, in an order of its own.

    Args:
        split: of the series.
        patch_size: P.
        windows_per_series: of an epoch.
        count: how many windows there are in all epochs together.
        seed: of places and orders.
    """

    def __init__(self, split: Split, patch_size: int, windows_per_series: int, count: int, seed: int) -> None:
        self.split = split
        self.patch_size = patch_size
        self.windows_per_series = windows_per_series
        self.count = count
        self.seed = seed
        self._order: tuple[int, np.ndarray[Any, np.dtype[np.int64]]] | None = None

    def __len__(self) -> int:
        """Windows in all epochs together."""
        return self.count

    def __getitem__(self, index: int) -> CausalMaskedTimeseries:
        """The window of an index."""
        if not 0 <= index < self.count:
            raise IndexError(index)
        epoch_length = self.windows_per_series * len(self.split.series)
        epoch, place = divmod(index, epoch_length)
        if self._order is None or self._order[0] != epoch:
            self._order = epoch, np.random.default_rng([self.seed, 0, epoch]).permutation(epoch_length)
        which = int(self._order[1][place]) % len(self.split.series)
        length = self.split.context_length + self.patch_size
        last = self.split.train_lengths[which] - length
        start = int(np.random.default_rng([self.seed, 1, index]).integers(last + 1))
        return window(self.split.series[which], start, self.split.context_length, self.patch_size)


class ValidationWindows(Dataset[CausalMaskedTimeseries]):
    """One window a series, whose last patch is the one for validation.

    Args:
        split: of the series.
        patch_size: P.
    """

    def __init__(self, split: Split, patch_size: int) -> None:
        self.split = split
        self.patch_size = patch_size

    def __len__(self) -> int:
        """Series."""
        return len(self.split.series)

    def __getitem__(self, index: int) -> CausalMaskedTimeseries:
        """The window of a series."""
        start = self.split.train_lengths[index] - self.split.context_length
        return window(self.split.series[index], start, self.split.context_length, self.patch_size)


def collate(windows: Sequence[CausalMaskedTimeseries]) -> dict[str, Any]:
    """Windows as one batch; with fewer variates than others they get masked ones, each a group of its own, in front.

    Returns:
        `series`, `padding_mask`, `id_mask` `(batch, variates, context + P)`, `num_exogenous`, and `labels`
        `(batch, variates, context)`: 0 where a target counts, -100 (what trainers leave out) where not.
    """
    most = max(len(w.series) for w in windows)
    columns = [_widen(w, most) for w in windows]
    series, mask, ids = (torch.stack(column) for column in zip(*columns, strict=True))
    first = windows[0]
    counts = mask[..., first.target_slice].clone()
    counts[:, most - first.num_exogenous_variables :] = False
    return {
        "series": series,
        "padding_mask": mask,
        "id_mask": ids,
        "num_exogenous": first.num_exogenous_variables,
        "labels": torch.where(counts, 0, -100),
    }


def _widen(w: CausalMaskedTimeseries, variates: int) -> tuple[Tensor, Tensor, Tensor]:
    missing = variates - len(w.series)
    length = w.series.shape[-1]
    groups = -1 - torch.arange(missing).unsqueeze(1).expand(missing, length)
    return (
        torch.cat([w.series.new_full((missing, length), torch.nan), w.series]),
        torch.cat([torch.zeros(missing, length, dtype=torch.bool), w.padding_mask]),
        torch.cat([groups, w.id_mask]),
    )
