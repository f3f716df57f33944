"""Real digits for the small experiment: UCI digits, the same under five corruptions, and MNIST in their format."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from nips_common.runtime import require

CLASSNAMES = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
TRAINING_IMAGES = 900
SPLIT_SEED = 0

# Fixed strengths. They were set once, by the zero-shot accuracy of a model on a part of the training images that it had
# not been trained on (aim: 60 to 85 %), before any adaptation was run.
NOISE_DEVIATION = 0.4
BLUR_DEVIATION = 0.8
CONTRAST_FACTOR = 0.3
ROTATION_DEGREES = 25.0
SHIFT_PIXELS = 1


class Images(NamedTuple):
    """Grey images (N, 8, 8) in [0, 1], bright ink on 0, with their labels (N,) in 0..9."""

    pixels: Tensor
    labels: Tensor


def uci_digits() -> tuple[Images, Images]:
    """The 1,797 digits that scikit-learn bundles, split once and for all into 900 for training and 897 held out."""
    bunch = require("sklearn.datasets", "dota-clip[reproduce]").load_digits()
    pixels = torch.from_numpy(bunch.images).float() / 16  # counts of ink in blocks of 16 pixels
    labels = torch.from_numpy(bunch.target).long()
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(SPLIT_SEED))
    training, held_out = order[:TRAINING_IMAGES], order[TRAINING_IMAGES:]
    return Images(pixels[training], labels[training]), Images(pixels[held_out], labels[held_out])


def gaussian_noise(pixels: Tensor) -> Tensor:
    """Independent noise on every pixel, the same on every call."""
    noise = torch.randn(pixels.shape, generator=torch.Generator().manual_seed(1))
    return (pixels + NOISE_DEVIATION * noise).clamp(0, 1)


def blur(pixels: Tensor) -> Tensor:
    """Convolution with a 5 x 5 Gaussian."""
    taps = torch.exp(-(torch.arange(-2.0, 3.0) ** 2) / (2 * BLUR_DEVIATION**2))
    taps = taps / taps.sum()
    return functional.conv2d(pixels[:, None], torch.outer(taps, taps)[None, None], padding=2)[:, 0].clamp(0, 1)


def low_contrast(pixels: Tensor) -> Tensor:
    """Every image drawn towards its own mean grey."""
    mean = pixels.mean((1, 2), keepdim=True)
    return mean + CONTRAST_FACTOR * (pixels - mean)


def rotation(pixels: Tensor) -> Tensor:
    """Turned about the middle, bilinear, background filled in."""
    angle = math.radians(ROTATION_DEGREES)
    turn = torch.tensor([[math.cos(angle), -math.sin(angle), 0.0], [math.sin(angle), math.cos(angle), 0.0]])
    grid = functional.affine_grid(turn.expand(len(pixels), 2, 3), [len(pixels), 1, 8, 8], align_corners=False)
    return functional.grid_sample(pixels[:, None], grid, align_corners=False)[:, 0].clamp(0, 1)


def shift(pixels: Tensor) -> Tensor:
    """Moved to the right; what leaves the frame is lost."""
    return functional.pad(pixels, (SHIFT_PIXELS, 0))[..., :-SHIFT_PIXELS]


CORRUPTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    f"Gaussian noise {NOISE_DEVIATION:g}": gaussian_noise,
    f"blur {BLUR_DEVIATION:g} px": blur,
    f"contrast x {CONTRAST_FACTOR:g}": low_contrast,
    f"rotation {ROTATION_DEGREES:g}°": rotation,
    f"shift {SHIFT_PIXELS} px": shift,
}


def like_uci(image: Tensor) -> Tensor:
    """An MNIST digit in the UCI format: the UCI digits are ink counts in 4 x 4 blocks of 32 x 32 black-and-white scans.

    Args:
        image: (28, 28) in [0, 1].

    Returns:
        (8, 8) in [0, 1]: cropped to its ink, enlarged to 32 pixels on its longer side, thresholded at 0.5, centred, and
        averaged over 4 x 4 blocks.
    """
    ink = image > 0.5
    rows, columns = ink.any(1).nonzero()[:, 0], ink.any(0).nonzero()[:, 0]
    if len(rows) == 0:
        return torch.zeros(8, 8)
    crop = image[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
    height, width = (max(1, round(32 * side / max(crop.shape))) for side in crop.shape)
    scan = functional.interpolate(crop[None, None], (height, width), mode="bilinear", align_corners=False) > 0.5
    top, left = (32 - height) // 2, (32 - width) // 2
    framed = functional.pad(scan.float(), (left, 32 - width - left, top, 32 - height - top))
    return functional.avg_pool2d(framed, 4)[0, 0]


def mnist_digits(folder: Path, count: int) -> Images:
    """A fixed random choice of the 10,000 MNIST digits of the asset ``mnist``, in the UCI format.

    Args:
        folder: the unpacked asset: ``src/digits/0.json`` to ``9.json``, each ``{"data": [784 values an image, ...]}``.
        count: how many.

    Raises:
        ValueError: a file that does not hold whole images of values in [0, 1], or too few images; names it.
    """
    stacks = [_read_digits(folder / "src" / "digits" / f"{digit}.json") for digit in range(10)]
    labels = torch.cat([torch.full((len(stack),), digit) for digit, stack in enumerate(stacks)])
    if count > len(labels):
        raise ValueError(f"{folder} holds {len(labels)} digits, {count} were asked for")
    chosen = torch.randperm(len(labels), generator=torch.Generator().manual_seed(SPLIT_SEED))[:count]
    return Images(torch.stack([like_uci(image) for image in torch.cat(stacks)[chosen]]), labels[chosen])


def _read_digits(path: Path) -> Tensor:
    try:
        values = torch.tensor(json.loads(path.read_text(encoding="utf-8"))["data"], dtype=torch.float32)
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f'{path} is not of the form {{"data": [numbers]}}: {error}') from error
    if values.ndim != 1 or len(values) == 0 or len(values) % 784 or not bool(((values >= 0) & (values <= 1)).all()):
        raise ValueError(f"{path} must hold whole images of 784 values in [0, 1], got {tuple(values.shape)}")
    return values.view(-1, 28, 28)
