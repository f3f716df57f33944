"""Where configurations run: here, in processes of this machine, or on Ray. All give rows as they finish.

A few configurations are in flight at a time, so that series are read when they are needed. The first error ends all.
"""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from multiprocessing.reduction import ForkingPickler
from typing import Any

from boom_bench.forecasters.contract import Forecaster
from boom_bench.running.one_task import Scoring
from boom_bench.tasks import Task
from nips_common.runtime import require

Row = dict[str, Any]
Executor = Callable[[Forecaster, Scoring, Iterable[Task]], Iterator[Row]]
_HERE: dict[str, Any] = {}  # a worker process's forecaster and scoring


def in_this_process(forecaster: Forecaster, scoring: Scoring, tasks: Iterable[Task]) -> Iterator[Row]:
    """One after the other."""
    for task in tasks:
        yield scoring(forecaster, task)


def in_processes(jobs: int) -> Executor:
    """An executor of ``jobs`` processes of this machine, each with the forecaster in its own memory."""

    def execute(forecaster: Forecaster, scoring: Scoring, tasks: Iterable[Task]) -> Iterator[Row]:
        context = multiprocessing.get_context("spawn")  # forking would break threads of numpy and torch
        threads = max(1, (os.cpu_count() or 1) // jobs)
        pool = ProcessPoolExecutor(jobs, context, _begin, (forecaster, scoring, threads))
        queue = iter(tasks)
        running: set[Future[Row]] = set()
        try:
            while True:
                while len(running) < jobs + 1 and (task := next(queue, None)) is not None:
                    running.add(pool.submit(_score, task))
                if not running:
                    return
                finished, running = wait(running, return_when=FIRST_COMPLETED)
                yield from (future.result() for future in finished)
        finally:
            pool.shutdown(wait=True, cancel_futures=True)

    return execute


def check_sendable(forecaster: Forecaster) -> None:
    """ValueError if a forecaster cannot be sent to another process."""
    try:
        ForkingPickler.dumps(forecaster)
    except Exception as error:  # noqa: BLE001 - objects raise what they like here
        raise ValueError(
            f"{type(forecaster).__name__} cannot be sent to other processes ({error}): "
            "define it in a module, or name it (NamedForecaster)"
        ) from None


def _begin(forecaster: Forecaster, scoring: Scoring, threads: int) -> None:
    _HERE.update(forecaster=forecaster, scoring=scoring)
    os.environ.setdefault("OMP_NUM_THREADS", str(threads))  # what torch, imported later, takes
    number = int(multiprocessing.current_process().name.rpartition("-")[2])
    os.environ.setdefault("LOCAL_RANK", str(number - 1))  # the device "cuda" is then one GPU after the other
    parent = multiprocessing.parent_process()
    if parent is not None:  # a killed run must not leave its workers behind
        threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: Any) -> None:
    parent.join()
    os._exit(1)


def _score(task: Task) -> Row:
    row: Row = _HERE["scoring"](_HERE["forecaster"], task)
    return row


def on_ray(jobs: int, gpus_per_job: float = 0.0) -> Executor:
    """An executor of ``jobs`` Ray actors, on the cluster that is connected, that RAY_ADDRESS names, or on this machine.

    Args:
        jobs: actors; each holds the forecaster and scores one configuration at a time.
        gpus_per_job: of each actor.

    Raises:
        ImportError: Ray is missing; names the extra.
    """
    ray = require("ray", "boom-bench[ray]")

    def execute(forecaster: Forecaster, scoring: Scoring, tasks: Iterable[Task]) -> Iterator[Row]:
        started = not ray.is_initialized()
        if started:
            local = {} if os.environ.get("RAY_ADDRESS") else {"num_cpus": jobs, "include_dashboard": False}
            ray.init(log_to_driver=False, **local)
        worker = ray.remote(num_cpus=1, num_gpus=gpus_per_job)(_Worker)
        shared = ray.put(forecaster)
        actors = [worker.remote(shared, scoring) for _ in range(jobs)]
        queue, idle, running = iter(tasks), list(actors), {}
        try:
            while True:
                while idle and (task := next(queue, None)) is not None:
                    actor = idle.pop()
                    running[actor.score.remote(task)] = actor
                if not running:
                    return
                finished, _ = ray.wait(list(running))
                for reference in finished:
                    idle.append(running.pop(reference))
                    yield _result(ray, reference)
        finally:
            for actor in actors:
                ray.kill(actor)
            if started:
                ray.shutdown()

    return execute


def _result(ray: Any, reference: Any) -> Row:
    try:
        row: Row = ray.get(reference)
    except ray.exceptions.RayTaskError as error:
        raise error.cause from None  # the forecaster's own error, as the other executors give it
    return row


class _Worker:
    """What a Ray actor runs."""

    def __init__(self, forecaster: Forecaster, scoring: Scoring) -> None:
        self.forecaster, self.scoring = forecaster, scoring

    def score(self, task: Task) -> Row:
        return self.scoring(self.forecaster, task)
