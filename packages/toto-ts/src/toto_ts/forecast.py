"""What a forecast is: a mean, samples, and quantiles of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from nips_common.runtime import require

if TYPE_CHECKING:
    import pandas as pd


def check_levels(levels: Sequence[float] | None) -> tuple[float, ...]:
    """Quantile levels as a tuple; ValueError unless it is a list of numbers strictly between 0 and 1."""
    if levels is None:
        return ()
    if isinstance(levels, (int, float, str)):
        raise ValueError(f"quantile_levels must be a list of levels, got {levels!r}")
    return tuple(map(check_level, levels))


def check_level(level: float) -> float:
    """The level as a float; ValueError unless it lies strictly between 0 and 1."""
    number = isinstance(level, (int, float)) and not isinstance(level, bool)
    if not (number and 0 < level < 1):
        raise ValueError(f"a quantile level must lie strictly between 0 and 1, got {level!r}")
    return float(level)


def check_columns(id_column: str, timestamp_column: str, levels: Sequence[float]) -> None:
    """ValueError if a column of a frame of forecasts would overwrite another one."""
    others = ["target_name", "mean", *(f"{level:g}" for level in levels)]
    for name, taken in ((id_column, [timestamp_column, *others]), (timestamp_column, others)):
        if name in taken:
            raise ValueError(
                f"the result would have two columns of the name {name!r}: rename the id or timestamp column"
            )


@dataclasses.dataclass(frozen=True, eq=False)
class Forecast:
    """A forecast in data units; exogenous variates hold their known future.

    Args:
        mean: `(batch, variates, horizon)`; the mean of the samples, or of the distribution in point mode.
        samples: `(batch, variates, horizon, samples)`, or None in point mode.
        quantile_levels: levels that were asked for.
        quantiles: `(batch, variates, horizon, levels)`: exact in the first patch, where the distribution is known, and
            taken from the samples after it; None if no level was asked for.
    """

    mean: Tensor
    samples: Tensor | None = None
    quantile_levels: tuple[float, ...] = ()
    quantiles: Tensor | None = None

    def quantile(self, q: float) -> Tensor:
        """The q-quantile, `(batch, variates, horizon)`: linear between samples.

        Without samples it is the exact one, if the level was asked for.

        Args:
            q: in [0, 1].

        Raises:
            ValueError: q outside [0, 1], or neither samples nor this level.
        """
        if not 0 <= q <= 1:
            raise ValueError(f"q must be in [0, 1], got {q}")
        if self.samples is None:
            if self.quantiles is not None and q in self.quantile_levels:
                return self.quantiles[..., self.quantile_levels.index(q)]
            raise ValueError(
                f"this forecast has no samples and no exact {q}-quantile (it has {list(self.quantile_levels)}): "
                "forecast with num_samples, or ask for quantile_levels"
            )
        position = q * (self._sorted.shape[-1] - 1)
        below = int(position)
        above = min(below + 1, self._sorted.shape[-1] - 1)
        return torch.lerp(self._sorted[..., below], self._sorted[..., above], position - below)

    @cached_property
    def _sorted(self) -> Tensor:
        assert self.samples is not None
        return torch.sort(self.samples, -1)[0]

    @property
    def median(self) -> Tensor:
        """The median, `(batch, variates, horizon)`; the authors advise it as point forecast."""
        return self.quantile(0.5)

    @property
    def std(self) -> Tensor:
        """Unbiased standard deviation of the samples, `(batch, variates, horizon)`; ValueError in point mode."""
        if self.samples is None:
            raise ValueError("this forecast has no samples: forecast with num_samples")
        return self.samples.std(-1)

    def entry(self, index: int) -> Forecast:
        """The forecast of one entry of the batch, as a batch of one."""
        part = slice(index, index + 1)
        samples = None if self.samples is None else self.samples[part]
        quantiles = None if self.quantiles is None else self.quantiles[part]
        return Forecast(self.mean[part], samples, self.quantile_levels, quantiles)

    def to_df(
        self,
        quantile_levels: Sequence[float] = (0.1, 0.5, 0.9),
        *,
        item_ids: Sequence[Any] | None = None,
        timestamps: Sequence[Any] | None = None,
        target_names: Sequence[str] | None = None,
        id_column: str = "item_id",
        timestamp_column: str = "timestamp",
    ) -> pd.DataFrame:
        """A long data frame: one row an entry, variate and step.

        Args:
            quantile_levels: a column each, named by the level; left out where they cannot be had in point mode.
            item_ids: one for each entry; default 0, 1, ...
            timestamps: for each entry the horizon's stamps; default the steps 1, 2, ...
            target_names: of the first variates, the others are left out; default all, as 0, 1, ...
            id_column: name of the ids' column.
            timestamp_column: name of the stamps' column.

        Returns:
            Columns id, timestamp, "target_name", "mean" and one for each level.

        Raises:
            ImportError: pandas is not installed.
            ValueError: ids, stamps or names that do not fit the forecast, a level outside (0, 1), or two columns of one
                name.
        """
        pandas = require("pandas", "toto-ts[pandas]")
        check_columns(id_column, timestamp_column, check_levels(quantile_levels))
        batch, variates, horizon = self.mean.shape
        ids = list(range(batch)) if item_ids is None else list(item_ids)
        stamps = [range(1, horizon + 1)] * batch if timestamps is None else list(timestamps)
        names = [str(i) for i in range(variates)] if target_names is None else list(target_names)
        if len(ids) != batch or len(stamps) != batch or any(len(s) != horizon for s in stamps) or len(names) > variates:
            raise ValueError(
                f"the forecast has {batch} entries, {variates} variates and {horizon} steps, which must be the numbers "
                f"of item_ids ({len(ids)}), of target_names (at most; {len(names)}) and of timestamps of each entry"
            )
        columns = {"mean": self.mean}
        for level in check_levels(quantile_levels):
            if self.samples is not None or level in self.quantile_levels:
                columns[f"{level:g}"] = self.quantile(level)
        arrays = {name: values.cpu().numpy() for name, values in columns.items()}
        frames = [
            pandas.DataFrame(
                {id_column: ids[entry], timestamp_column: stamps[entry], "target_name": name}
                | {column: values[entry, variate] for column, values in arrays.items()}
            )
            for entry in range(batch)
            for variate, name in enumerate(names)
        ]
        return pandas.concat(frames, ignore_index=True)
