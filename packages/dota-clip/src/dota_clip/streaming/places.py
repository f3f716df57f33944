"""Independent streams: under torchrun each process adapts on its own share of the images."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import NamedTuple

import torch

# Streams may end hours apart, and the first to end waits for the last.
_PATIENCE = timedelta(days=7)


class StreamPlace(NamedTuple):
    """Which stream this process runs: number ``rank`` of ``world``."""

    rank: int
    world: int

    @property
    def is_first(self) -> bool:
        """Whether this process joins the results."""
        return self.rank == 0

    def wait(self) -> None:
        """Waits until all streams have come here."""
        if self.world > 1:
            torch.distributed.barrier()


@contextmanager
def stream_place() -> Iterator[StreamPlace]:
    """The place that torchrun gave this process; without it, one stream. Nothing but a barrier is sent (gloo)."""
    world = int(os.environ.get("WORLD_SIZE", "1"))
    if world == 1:
        yield StreamPlace(0, 1)
        return
    torch.distributed.init_process_group("gloo", timeout=_PATIENCE)
    try:
        yield StreamPlace(torch.distributed.get_rank(), world)
    finally:
        torch.distributed.destroy_process_group()


def visiting_order(count: int, shuffle: bool, seed: int, limit: int | None) -> list[int]:
    """Places 0..count-1 in the order to visit them: a seeded permutation or as they are, cut at ``limit``."""
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(count, generator=generator).tolist() if shuffle else list(range(count))
    return order[:limit]
