"""Decoding and views in data-loading processes: a torch data set over an `ImageStream`, and its collate function."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor
from torch.utils.data import Dataset

from dota_clip.data.image_stream import ImageStream
from dota_clip.data.images import UnreadableImage

if TYPE_CHECKING:
    from PIL import Image

ViewTransform = Callable[["Image.Image", int], Tensor]
StreamSample = tuple[int, Tensor | None]


class StreamBatch(NamedTuple):
    """What `collate_samples` makes of n samples, m of them readable.

    Attributes:
        indices: the m readable ones' places in the stream, in the order they came.
        views: their pixels `(m, V, 3, height, width)`, or None if m is 0.
        unreadable: the other places; `stream.items[i].load()` raises the error with the reason.
    """

    indices: list[int]
    views: Tensor | None
    unreadable: list[int]


class StreamDataset(Dataset[StreamSample]):
    """The images of a stream as `(index, views)`, with None for views where the image cannot be decoded.

    An error in a data-loading process would end the whole run, so that unreadable images come back as None and the
    caller decides: skip and count, or stop.

    Args:
        stream: the images. A sampler may visit them in any order; the index stays the place in the stream.
        transform: `(image, index) -> (V, 3, height, width)`: `SingleView` or `AugMixViews`.
    """

    def __init__(self, stream: ImageStream, transform: ViewTransform) -> None:
        self.stream = stream
        self.transform = transform

    def __len__(self) -> int:
        return len(self.stream)

    def __getitem__(self, index: int) -> StreamSample:
        try:
            image = self.stream.items[index].load()
        except UnreadableImage:
            return index, None
        return index, self.transform(image, index)


def collate_samples(samples: Sequence[StreamSample]) -> StreamBatch:
    """Stack the readable samples of a batch and list the others; for `DataLoader(..., collate_fn=collate_samples)`."""
    readable = [(index, views) for index, views in samples if views is not None]
    return StreamBatch(
        indices=[index for index, _ in readable],
        views=torch.stack([views for _, views in readable]) if readable else None,
        unreadable=[index for index, views in samples if views is None],
    )
