"""What was claimed, what was measured and whether it holds: the reproduction.json that the gallery reads."""

import argparse
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, is_dataclass, replace
from pathlib import Path
from statistics import fmean
from types import UnionType
from typing import Any, Literal, cast, get_args, get_origin, get_type_hints

from nips_common.artifacts import check_keys, read_json, write_json
from nips_common.cli import user_errors

Verdict = Literal["holds", "fails", "not judged at this budget", "not run"]
ReproduceBudget = Literal["quick", "full"]


def _typed(kind: Any, value: Any, where: str) -> Any:
    """Return ``value`` as annotated by ``kind`` (lists become tuples, objects dataclasses), or raise ValueError."""
    inner, origin = get_args(kind), get_origin(kind)
    if is_dataclass(kind) and isinstance(value, dict):
        names = get_type_hints(kind)
        check_keys(value, names, names, where)
        return cast(Any, kind)(**{name: _typed(names[name], value[name], f"{where}.{name}") for name in names})
    if origin is tuple and isinstance(value, list | tuple):
        return tuple(_typed(inner[0], item, f"{where}[{index}]") for index, item in enumerate(value))
    kinds = inner if isinstance(kind, UnionType) else (origin or kind,)
    number = float in kinds and type(value) in (int, float)
    if not (value in inner if origin is Literal else math.isfinite(value) if number else isinstance(value, kinds)):
        raise ValueError(f"{where} must be {kind if inner else kind.__name__}, and finite; got {value!r}")
    return value


@dataclass(frozen=True)
class Claim:
    """One statement and its numbers: ``baseline`` and ``value`` are means, ``seeds`` the value of each seed."""

    statement: str
    metric: str
    baseline: float | None
    value: float | None
    margin: float
    seeds: tuple[float, ...] = ()
    verdict: Verdict = "not run"
    higher_is_better: bool = True
    reason: str = ""

    @classmethod
    def judge(
        cls, statement: str, metric: str, baseline_per_seed: Sequence[float], value_per_seed: Sequence[float],
        margin: float, *, higher_is_better: bool = True, judged: bool = True, reason: str = ""
    ) -> "Claim":  # fmt: skip
        """A claim holds if the mean gains at least ``margin``, and fails on numbers that are not finite."""
        baseline, value = fmean(baseline_per_seed), fmean(value_per_seed)
        gain = value - baseline if higher_is_better else baseline - value
        if not math.isfinite(gain):
            return cls(statement, metric, None, None, margin, (), "fails", higher_is_better, f"{baseline} -> {value}")
        holds = gain >= margin or math.isclose(gain, margin, rel_tol=1e-9, abs_tol=1e-12)
        verdict: Verdict = "not judged at this budget" if not judged else "holds" if holds else "fails"
        return cls(statement, metric, baseline, value, margin, tuple(value_per_seed), verdict, higher_is_better, reason)


@dataclass(frozen=True)
class Table:
    """A table of results as it came out."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str | float, ...], ...]


@dataclass(frozen=True)
class Reproduction:
    """The outcome of one package's experiment; ``plots`` are PNG file names beside the JSON."""

    package: str
    method: str
    claims: tuple[Claim, ...]
    tables: tuple[Table, ...] = ()
    notes: tuple[str, ...] = ()
    plots: tuple[str, ...] = ()
    seconds: float = 0.0
    budget: ReproduceBudget = "quick"
    settings: dict[str, Any] = field(default_factory=dict)

    def to_json(self, path: str | Path) -> None:
        """Write the file atomically; values that :meth:`from_json` would refuse are refused here too."""
        write_json(path, asdict(_typed(type(self), asdict(self), str(path))))

    @classmethod
    def from_json(cls, path: str | Path) -> "Reproduction":
        """Read strictly: unknown, missing and wrongly typed fields are a ValueError that names them."""
        return cast(Reproduction, _typed(cls, read_json(path), str(path)))


def reproduce_main(run: Callable[[ReproduceBudget, Path], Reproduction], argv: Sequence[str] | None = None) -> None:
    """Be the program ``python -m PACKAGE.reproduce --out DIR [--full]``; ``run`` draws its plots into ``DIR``."""
    parser = argparse.ArgumentParser("reproduce", description="Run this package's small real experiment.")
    parser.add_argument("--out", type=Path, required=True, help="folder for reproduction.json and the plots")
    parser.add_argument("--full", action="store_const", const="full", default="quick", dest="budget", help="all seeds")
    args, start = parser.parse_args(argv), time.perf_counter()
    file = args.out / "reproduction.json"
    with user_errors("reproduce"):
        args.out.mkdir(parents=True, exist_ok=True)
        file.unlink(missing_ok=True)  # no old result may pass for the one of this run
        result = run(args.budget, args.out)
        if absent := [plot for plot in result.plots if not (args.out / plot).is_file()]:
            raise ValueError(f"{args.out} lacks the plots {absent}")
        replace(result, seconds=round(time.perf_counter() - start, 2), budget=args.budget).to_json(file)
    for claim in result.claims:
        numbers = f"({claim.metric}: {claim.baseline} -> {claim.value})"
        print(f"{claim.verdict}: {claim.statement} {numbers} {claim.reason}".rstrip())
