"""Any extractor on the workers of a Ray cluster: many small independent jobs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from gfm_rag.extraction import Extraction, Extractor
from nips_common.runtime import require


class RayExtractor:
    """Runs an extractor in several Ray actors, each of which makes its own.

    Args:
        make_extractor: makes the extractor in a worker, such as the class `SpacyExtractor`.
        num_actors: workers.
        batch_size: passages handed to a worker at a time.

    Raises:
        ImportError: Ray is missing; names the extra.
    """

    def __init__(self, make_extractor: Callable[[], Extractor], num_actors: int = 2, batch_size: int = 16) -> None:
        if num_actors < 1 or batch_size < 1:
            raise ValueError(f"num_actors and batch_size must be at least 1, got {num_actors} and {batch_size}")
        self._ray = require("ray", "gfm-rag[ray]")
        self.make_extractor, self.num_actors, self.batch_size = make_extractor, num_actors, batch_size

    def __call__(self, passage: str) -> Extraction:
        """The extraction of a passage."""
        return next(self.map([passage]))

    def map(self, passages: Iterable[str]) -> Iterator[Extraction]:
        """The extractions of several passages, as they come."""
        if not self._ray.is_initialized():
            self._ray.init(include_dashboard=False, log_to_driver=False)
        from ray.util import ActorPool

        actor = self._ray.remote(_Worker)
        pool: Any = ActorPool([actor.remote(self.make_extractor) for _ in range(self.num_actors)])
        texts = list(passages)
        batches = [texts[i : i + self.batch_size] for i in range(0, len(texts), self.batch_size)]
        for extractions in pool.map_unordered(lambda worker, batch: worker.extract.remote(batch), batches):
            yield from extractions


class _Worker:
    """An actor with its own extractor."""

    def __init__(self, make_extractor: Callable[[], Extractor]) -> None:
        self._extractor = make_extractor()

    def extract(self, passages: list[str]) -> list[Extraction]:
        mapped: Any = getattr(self._extractor, "map", None)
        return list(mapped(passages) if mapped else map(self._extractor, passages))
