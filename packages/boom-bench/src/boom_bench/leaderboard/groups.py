"""Breakdowns of the main part (step 6): the same scores by term, metric type, domain or frequency."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from boom_bench.config import BASELINE, CRPS, MASE, TERMS
from boom_bench.data.reference import series_properties
from boom_bench.data.series import SeriesProperties
from boom_bench.leaderboard.configurations import Configuration, ResultMatrix, parse_configuration
from boom_bench.leaderboard.degenerate import is_own_data, split_degenerate
from boom_bench.leaderboard.scaling import Invalid, impute, scale, shifted_gmeans

Properties = Mapping[str, "SeriesProperties | Mapping[str, Any]"]
WHOLE = "full_benchmark"
GROUPINGS = ("term", "type", "domain", "frequency", WHOLE)


def _property(name: str, configuration: Configuration, properties: Properties) -> Any:
    found = properties.get(configuration.series)
    if found is None:
        raise ValueError(f"no properties of the series {configuration.series!r}: a breakdown by {name} needs them")
    value = found.get(name) if isinstance(found, Mapping) else getattr(found, name, None)
    if not value:
        raise ValueError(f"the properties of the series {configuration.series!r} lack {name!r}")
    return value


def groups_of(by: str, properties: Properties) -> Callable[[Configuration], Sequence[str]]:
    """The groups that a configuration belongs to; only domains can be several.

    Raises:
        ValueError: an unknown grouping.
    """
    if by == "term":
        return lambda configuration: [configuration.term]
    if by == "frequency":
        return lambda configuration: [configuration.frequency]
    if by == WHOLE:
        return lambda configuration: [WHOLE]
    if by == "type":
        return lambda configuration: [str(_property("type", configuration, properties))]
    if by == "domain":
        return lambda configuration: _domains(_property("domain", configuration, properties))
    raise ValueError(f"by may hold {', '.join(GROUPINGS)}, got {by!r}")


def _natural(group: str) -> tuple[int, str]:
    """Terms and frequencies from short to long, all else by name."""
    known = (*TERMS, *(term.capitalize() for term in TERMS))
    return (known.index(group) if group in known else len(known), group)


def _domains(value: Any) -> list[str]:
    return [value] if isinstance(value, str) else [str(domain) for domain in value]


def breakdown(
    results: pd.DataFrame,
    *,
    by: Sequence[str] = ("term", "type", "domain"),
    properties: Properties | None = None,
    baseline: str = BASELINE,
    low_variance: Iterable[str] | None = None,
    nan_is_degenerate: bool | None = None,
    invalid: Invalid = "column_mean",
) -> dict[str, pd.DataFrame]:
    """MASE and CRPS of the main part by groups of configurations.

    Args:
        results: as for `leaderboard`.
        by: any of term, type, domain, frequency and full_benchmark. A configuration with several domains counts once in
            each of them.
        properties: series id to `SeriesProperties`, or to a mapping with the same keys; None = those of BOOM.
        baseline: the model that is divided by.
        low_variance: as for `leaderboard`.
        nan_is_degenerate: as for `leaderboard`.
        invalid: as for `leaderboard`.

    Returns:
        For each name of ``by`` a table: index model, columns (metric, group) with the metrics "MASE" and "CRPS".

    Raises:
        ValueError: what `leaderboard` refuses, an unknown grouping or none, an empty main part, a series without
            properties (by type and domain).
    """
    names = [by] if isinstance(by, str) else list(by)
    if not names:
        raise ValueError(f"by must hold one of {', '.join(GROUPINGS)} at least")
    known = series_properties() if properties is None else properties
    finders = {name: groups_of(name, known) for name in names}
    strict = is_own_data(results) if nan_is_degenerate is None else nan_is_degenerate
    main, _ = split_degenerate(results, baseline=baseline, low_variance=low_variance, nan_is_degenerate=strict)
    if len(results) and not len(main):
        raise ValueError("all series are degenerate: the main part, of which a breakdown is, has no configuration")
    matrix = ResultMatrix.of(main, [MASE, CRPS])
    values, keep, _ = impute(matrix, [MASE, CRPS], invalid)
    scaled = {metric: scale(found, matrix.position(baseline)) for metric, found in values.items()}
    parsed = [parse_configuration(name) for name, kept in zip(matrix.configurations, keep, strict=True) if kept]
    tables: dict[str, pd.DataFrame] = {}
    for name, find in finders.items():
        members: dict[str, list[int]] = {}
        for position, configuration in enumerate(parsed):
            for group in find(configuration):
                members.setdefault(group, []).append(position)
        columns = {
            (title, group): shifted_gmeans(scaled[metric][:, np.array(members[group])])
            for title, metric in (("MASE", MASE), ("CRPS", CRPS))
            for group in sorted(members, key=_natural)
        }
        tables[name] = pd.DataFrame(columns, index=pd.Index(matrix.models, name="model"))
    return tables
