"""The protocol's constants, those of the released evaluation of arXiv 2505.14766, validated on construction."""

from __future__ import annotations

import dataclasses
import math

MASE = "eval_metrics/MASE[0.5]"
CRPS = "eval_metrics/mean_weighted_sum_quantile_loss"
MAE = "eval_metrics/MAE[0.5]"
BASELINE = "seasonalnaive"
TERMS = ("short", "medium", "long")


@dataclasses.dataclass(frozen=True)
class BoomConfig:
    """What the protocol fixes; other values give numbers that cannot be compared with the published ones.

    Args:
        quantile_levels: levels that a forecaster is asked for and that CRPS averages over, rising, inside (0, 1).
        context: newest points of a history that a forecaster sees.
        test_fraction: share of the shortest series that test windows cover.
        max_windows: most test windows of one configuration.
        epsilon: shift of the geometric mean.
        msis_alpha: MSIS scores the central interval of 1 - alpha.

    Raises:
        ValueError: a value outside its range; the message names field, value and range.
    """

    quantile_levels: tuple[float, ...] = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
    context: int = 2048
    test_fraction: float = 0.1
    max_windows: int = 20
    epsilon: float = 1e-5
    msis_alpha: float = 0.05

    def __post_init__(self) -> None:
        object.__setattr__(self, "quantile_levels", check_levels(self.quantile_levels))
        check_whole("context", self.context)
        check_whole("max_windows", self.max_windows)
        for name in ("test_fraction", "msis_alpha"):
            value = getattr(self, name)
            if not 0 < value < 1:
                raise ValueError(f"{name} must be between 0 and 1, got {value!r}")
        if not (math.isfinite(self.epsilon) and self.epsilon > 0):
            raise ValueError(f"epsilon must be above 0, got {self.epsilon!r}")


def check_levels(levels: object) -> tuple[float, ...]:
    """Quantile levels as a tuple of floats; ValueError unless they rise inside (0, 1)."""
    try:
        found = tuple(float(level) for level in levels)  # type: ignore[attr-defined]
    except (TypeError, ValueError):
        raise ValueError(f"quantile_levels must be numbers between 0 and 1, got {levels!r}") from None
    if not found or not all(0 < level < 1 for level in found) or list(found) != sorted(set(found)):
        raise ValueError(f"quantile_levels must rise and lie between 0 and 1, both excluded, got {found}")
    return found


def check_whole(name: str, value: object, least: int = 1) -> int:
    """A whole number of at least ``least``; ValueError naming it otherwise."""
    if isinstance(value, bool) or not hasattr(value, "__index__") or int(value) < least:
        raise ValueError(f"{name} must be a whole number of at least {least}, got {value!r}")
    return int(value)


PROTOCOL = BoomConfig()
