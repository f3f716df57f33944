"""Streams through torch's DataLoader, with and without processes."""

from __future__ import annotations

from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader

from dota_clip.data.augmix import AugMixViews, SingleView
from dota_clip.data.image_stream import ImageItem, ImageStream
from dota_clip.data.images import UnreadableImage
from dota_clip.data.opening import open_dataset
from dota_clip.data.stream_loader import StreamBatch, StreamDataset, collate_samples
from dota_clip.encoders import load_encoder


@pytest.fixture
def stream(photo_folder: Path, tmp_path: Path) -> ImageStream:
    (tmp_path / "broken.jpg").write_bytes(b"no picture")
    paths = [photo_folder / "china.jpg", tmp_path / "broken.jpg", photo_folder / "flower.jpg"]
    return ImageStream(("a", "b"), [ImageItem(path, 0, path.name) for path in paths])


def batches(dataset: StreamDataset, **options: Any) -> list[StreamBatch]:
    return list(DataLoader(dataset, collate_fn=collate_samples, **options))


def test_an_unreadable_image_is_reported_and_does_not_end_the_run(stream: ImageStream, open_clip_folder: Path) -> None:
    encoder = load_encoder(open_clip_folder, device="cpu")
    dataset = StreamDataset(stream, SingleView(encoder.preprocess))
    assert dataset[1] == (1, None)
    (batch,) = batches(dataset, batch_size=3)
    assert (batch.indices, batch.unreadable) == ([0, 2], [1])
    assert batch.views.shape == (2, 1, 3, 32, 32)
    with pytest.raises(UnreadableImage, match=r"broken\.jpg"):
        stream.items[batch.unreadable[0]].load()
    single = batches(dataset, batch_size=1)
    assert [(b.indices, b.views is None) for b in single] == [([0], False), ([], True), ([2], False)]


def test_processes_and_order_do_not_change_the_views(stream: ImageStream, open_clip_folder: Path) -> None:
    encoder = load_encoder(open_clip_folder, device="cpu")
    dataset = StreamDataset(stream, AugMixViews.for_encoder(encoder, num_views=3, seed=1))
    alone = {b.indices[0]: b.views for b in batches(dataset, batch_size=1) if b.indices}
    shared = {
        b.indices[0]: b.views for b in batches(dataset, batch_size=1, num_workers=2, sampler=[2, 1, 0]) if b.indices
    }
    assert alone.keys() == shared.keys() == {0, 2}
    assert all(torch.equal(alone[index], shared[index]) for index in alone)


@pytest.mark.parametrize("fixture", ["open_clip_folder", "hf_clip_folder", "hf_siglip_folder"])
def test_a_data_set_can_be_sent_to_a_process_without_the_model(
    request: pytest.FixtureRequest, digit_image_folder: Path, fixture: str
) -> None:
    encoder = load_encoder(request.getfixturevalue(fixture), device="cpu")
    dataset = StreamDataset(open_dataset(digit_image_folder), AugMixViews.for_encoder(encoder, num_views=2))
    weights = sum(parameter.nbytes for parameter in encoder.model.parameters())
    assert len(ForkingPickler.dumps(dataset)) < min(weights, 60_000)
