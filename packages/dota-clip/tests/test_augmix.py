"""Views of an image: what they are, and that nothing but (seed, index) decides them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from dota_clip.data.augmix import AugMixViews, SingleView
from dota_clip.data.images import load_image
from dota_clip.encoders import load_encoder
from dota_clip.encoders.contract import ClipEncoder


@pytest.fixture(scope="module")
def encoder(open_clip_folder: Path) -> ClipEncoder:
    return load_encoder(open_clip_folder, device="cpu")


@pytest.fixture(scope="module")
def photo(photo_folder: Path) -> Image.Image:
    return load_image(photo_folder / "china.jpg")


def test_the_first_view_is_the_image_itself_and_the_others_differ(encoder: ClipEncoder, photo: Image.Image) -> None:
    views = AugMixViews.for_encoder(encoder, num_views=8)(photo, 0)
    assert views.shape == (8, 3, 32, 32)
    assert views.dtype == torch.float32
    assert torch.equal(views[0], encoder.preprocess(photo))
    assert len({view.sum().item() for view in views}) == 8


def test_views_are_normalised_as_the_encoder_asks(encoder: ClipEncoder) -> None:
    # No crop and few of the operations change a uniform grey, so some views are plain and show the normalisation.
    grey = Image.new("RGB", (64, 48), (128, 128, 128))
    views = AugMixViews.for_encoder(encoder, num_views=16)(grey, 3)
    plain = (torch.tensor(128 / 255) - torch.tensor(encoder.mean)) / torch.tensor(encoder.std)
    distance = (views[1:] - plain[:, None, None]).abs().amax(dim=(1, 2, 3))
    assert float(distance.min()) < 0.05
    torch.testing.assert_close(views[0], plain[:, None, None].expand(3, 32, 32), atol=1e-5, rtol=0)


def test_severity_one_moves_the_picture() -> None:
    # torchvision's own severity 1 has no geometric effect at all: a shift would be by zero pixels.
    white = Image.new("RGB", (32, 32), "white")
    views = AugMixViews(lambda image: torch.zeros(3, 32, 32), (32, 32), (0.0,) * 3, (1.0,) * 3, num_views=16)(white, 0)
    assert bool((views[1:] < 0.99).any()), "no view shows the black margin that a shift, shear or rotation leaves"


def test_the_same_seed_and_index_give_the_same_views_whatever_came_before(
    encoder: ClipEncoder, photo: Image.Image
) -> None:
    make = AugMixViews.for_encoder(encoder, num_views=4, seed=7)
    first = make(photo, 5)
    torch.rand(13)
    make(photo, 6)
    assert torch.equal(make(photo, 5), first)
    assert torch.equal(AugMixViews.for_encoder(encoder, num_views=4, seed=7)(photo, 5), first)


@pytest.mark.parametrize(("seed", "index"), [(7, 6), (8, 5), (5, 7)])
def test_another_seed_or_index_gives_other_views(
    encoder: ClipEncoder, photo: Image.Image, seed: int, index: int
) -> None:
    first = AugMixViews.for_encoder(encoder, num_views=3, seed=7)(photo, 5)
    other = AugMixViews.for_encoder(encoder, num_views=3, seed=seed)(photo, index)
    assert torch.equal(first[0], other[0])
    assert not torch.equal(first[1:], other[1:])


def test_more_views_begin_with_the_fewer(encoder: ClipEncoder, photo: Image.Image) -> None:
    few, many = (AugMixViews.for_encoder(encoder, num_views=n)(photo, 0) for n in (3, 6))
    assert torch.equal(few, many[:3])


def test_the_global_random_state_is_left_alone(encoder: ClipEncoder, photo: Image.Image) -> None:
    torch.manual_seed(1)
    expected = torch.rand(3)
    torch.manual_seed(1)
    AugMixViews.for_encoder(encoder, num_views=3)(photo, 0)
    assert torch.equal(torch.rand(3), expected)


def test_views_go_through_the_encoder(encoder: ClipEncoder, photo: Image.Image) -> None:
    features = encoder.encode_image(AugMixViews.for_encoder(encoder, num_views=5)(photo, 0))
    assert features.shape == (5, 32)
    torch.testing.assert_close(features.norm(dim=-1), torch.ones(5))


def test_a_digit_of_eight_pixels_makes_views_too(encoder: ClipEncoder, digit_image_folder: Path) -> None:
    digit = load_image(digit_image_folder / "four" / "1.png")
    views = AugMixViews.for_encoder(encoder, num_views=3)(digit, 0)
    assert bool(torch.isfinite(views).all())


def test_one_view_is_the_image_alone(encoder: ClipEncoder, photo: Image.Image) -> None:
    alone = encoder.preprocess(photo)[None]
    assert torch.equal(SingleView(encoder.preprocess)(photo, 3), alone)
    assert torch.equal(AugMixViews.for_encoder(encoder, num_views=1)(photo, 3), alone)


@pytest.mark.parametrize(
    ("options", "message"), [({"num_views": 0}, r"num_views .* got 0"), ({"severity": 10}, r"severity .* got 10")]
)
def test_numbers_out_of_range_are_refused(encoder: ClipEncoder, options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        AugMixViews.for_encoder(encoder, **options)


def test_neighbouring_seeds_and_indices_do_not_collide() -> None:
    from dota_clip.data.augmix import _view_seed

    assert len({_view_seed(seed, index) for seed in range(20) for index in range(500)}) == 10_000
    assert np.iinfo(np.int64).max >= max(_view_seed(0, index) for index in range(100))
