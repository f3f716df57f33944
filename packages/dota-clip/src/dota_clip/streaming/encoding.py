"""From images to unit-norm features, batch by batch, in the order of a stream."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import NamedTuple, cast

from torch import Tensor
from torch.utils.data import DataLoader

from dota_clip.data.augmix import AugMixViews, SingleView
from dota_clip.data.image_stream import ImageStream
from dota_clip.data.stream_loader import StreamBatch, StreamDataset, ViewTransform, collate_samples
from dota_clip.encoders.contract import ClipEncoder

log = logging.getLogger(__name__)


class EncodedBatch(NamedTuple):
    """Features of the readable images of one batch.

    Attributes:
        indices: the m readable images' places in the data set.
        features: (m, V, D) unit-norm on the encoder's device, or None if m is 0.
        skipped: identifiers of the unreadable ones.
        size: images of the order that this batch covers.
    """

    indices: list[int]
    features: Tensor | None
    skipped: list[str]
    size: int


def view_transform(encoder: ClipEncoder, views: int, severity: int, seed: int) -> ViewTransform:
    """The image alone, or with AugMix versions of it."""
    if views == 1:
        return SingleView(encoder.preprocess)
    return AugMixViews.for_encoder(encoder, num_views=views, severity=severity, seed=seed)


def encode_stream(
    encoder: ClipEncoder,
    stream: ImageStream,
    order: Sequence[int],
    transform: ViewTransform,
    *,
    images_per_batch: int,
    workers: int = 0,
    strict: bool = False,
) -> Iterator[EncodedBatch]:
    """Encodes the images of a stream.

    Args:
        encoder: the frozen encoder.
        stream: the images.
        order: places in the stream, in the order to visit.
        transform: image -> (V, 3, height, width).
        images_per_batch: images decoded and encoded together.
        workers: data-loading processes.
        strict: stop at an unreadable image.

    Raises:
        UnreadableImage: with ``strict``; otherwise unreadable images are logged and skipped.
    """
    loader = DataLoader(
        StreamDataset(stream, transform),
        batch_size=images_per_batch,
        sampler=order,
        num_workers=workers,
        collate_fn=collate_samples,
        pin_memory=encoder.device.type == "cuda",
    )
    for batch in cast("Iterator[StreamBatch]", loader):
        for index in batch.unreadable:
            _report(stream, index, strict)
        skipped = [stream.items[index].identifier for index in batch.unreadable]
        features = None
        if batch.views is not None:
            pictures = encoder.encode_image(batch.views.flatten(0, 1))
            features = pictures.unflatten(0, (len(batch.indices), -1))
        yield EncodedBatch(batch.indices, features, skipped, len(batch.indices) + len(batch.unreadable))


def _report(stream: ImageStream, index: int, strict: bool) -> None:
    """Raises or logs why an image could not be decoded, which the loading process could not tell."""
    try:
        stream.items[index].load()
    except ValueError as error:
        if strict:
            raise
        log.warning("skipped: %s", error)
