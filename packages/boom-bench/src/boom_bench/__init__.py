"""BOOM, the benchmark of observability metrics (arXiv 2505.14766): its protocol for any forecaster and any data."""

from importlib.metadata import version

from boom_bench.baselines import Drift, Naive, SeasonalNaive
from boom_bench.config import BoomConfig
from boom_bench.data import Series, SeriesProperties
from boom_bench.metrics import Evaluator, MetricResult, evaluate
from boom_bench.tasks import Task, Window, make_task, make_tasks, split

__all__ = [
    "BoomConfig",
    "Drift",
    "Evaluator",
    "MetricResult",
    "Naive",
    "SeasonalNaive",
    "Series",
    "SeriesProperties",
    "Task",
    "Window",
    "evaluate",
    "make_task",
    "make_tasks",
    "split",
]

__version__ = version("boom-bench")
