"""Any extractor on the workers of a Ray cluster: many small independent jobs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from gfm_rag.extraction import Extraction, Extractor
from nips_common.runtime import require


class RayExtractor:
    """Runs an extractor in several Ray actors, each of which makes its own; an index of it is the same as without Ray.

    The package must be installed where the actors run. A connection that it made itself ends with the extraction.

    Args:
        make_extractor: makes the extractor in a worker, such as the class `SpacyExtractor`.
        num_actors: workers.
        batch_size: passages handed to a worker at a time.
        address: of the cluster, "local" for one on this machine alone, "auto" for one that runs here already; None =
            the one that is connected, or what Ray finds by itself (`RAY_ADDRESS`).

    Raises:
        ImportError: Ray is missing; names the extra.
        ValueError: a number below 1, or an empty address.
    """

    def __init__(
        self,
        make_extractor: Callable[[], Extractor],
        num_actors: int = 2,
        batch_size: int = 16,
        address: str | None = None,
    ) -> None:
        if num_actors < 1 or batch_size < 1:
            raise ValueError(f"num_actors and batch_size must be at least 1, got {num_actors} and {batch_size}")
        if address is not None and not address.strip():
            raise ValueError(f"the address of Ray must be local, auto or an address such as HOST:6379, got {address!r}")
        self._ray = require("ray", "gfm-rag[ray]")
        self.make_extractor, self.num_actors, self.batch_size = make_extractor, num_actors, batch_size
        self.address = address

    def __call__(self, passage: str) -> Extraction:
        """The extraction of a passage."""
        (extraction,) = self.map([passage])
        return extraction

    def map(self, passages: Iterable[str]) -> Iterator[Extraction]:
        """The extractions of several passages, as they come.

        Raises:
            ConnectionError: no cluster at the address, or its workers ended.
        """
        texts = list(passages)
        batches = [texts[i : i + self.batch_size] for i in range(0, len(texts), self.batch_size)]
        started = not self._ray.is_initialized()
        if started:
            self._connect()
        actors: list[Any] = []
        try:
            # no CPU is reserved, so that actors beyond the cluster's CPUs share them instead of waiting for ever
            worker = self._ray.remote(_Worker).options(scheduling_strategy="SPREAD")
            actors += [worker.remote(self.make_extractor) for _ in range(min(self.num_actors, len(batches)))]
            yield from self._results(actors, batches)
        finally:
            for actor in actors:
                self._ray.kill(actor)
            if started:
                self._ray.shutdown()

    def _connect(self) -> None:
        new = {"include_dashboard": False} if self.address == "local" else {}
        try:
            self._ray.init(self.address, log_to_driver=False, logging_level="WARNING", **new)
        except Exception as error:  # Ray raises bare exceptions where nothing answers
            told = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
            raise ConnectionError(f"no Ray at {self.address or 'its default address'}: {told}") from error

    def _results(self, actors: list[Any], batches: list[list[str]]) -> Iterator[Extraction]:
        from ray.util import ActorPool

        pool: Any = ActorPool(actors)
        try:
            for extractions in pool.map_unordered(lambda worker, batch: worker.extract.remote(batch), batches):
                yield from extractions
        except self._ray.exceptions.RayTaskError as error:
            raise error.cause from None  # the extractor's own error, as without Ray
        except self._ray.exceptions.RayError as error:
            lines = [line for line in str(error).splitlines() if line.strip()]
            raise ConnectionError(f"a Ray worker ended before its passages were extracted: {lines[-1]}") from error


class _Worker:
    """An actor with its own extractor."""

    def __init__(self, make_extractor: Callable[[], Extractor]) -> None:
        self._extractor = make_extractor()

    def extract(self, passages: list[str]) -> list[Extraction]:
        mapped: Any = getattr(self._extractor, "map", None)
        return list(mapped(passages) if mapped else map(self._extractor, passages))
