"""What an image-text encoder gives the rest of the package, stated once; open_clip and transformers fill it in.

Features leave an encoder in float32 at least and with unit norm, whatever precision the network runs in: a norm in half
precision is off by up to 1e-3, and every later step assumes unit vectors.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

if TYPE_CHECKING:
    from PIL import Image

ImageTransform = Callable[["Image.Image"], Tensor]


class ClipEncoder(ABC):
    """A frozen image encoder and text encoder with a common space of D dimensions.

    Attributes:
        model: the wrapped network, left as it is: while it encodes it runs in evaluation mode and without gradients,
            and then goes back to its own modes.
        preprocess: one PIL image -> normalised pixels `(3, height, width)` on the CPU. Holds no reference to the model,
            so that it can be sent to data-loading processes.
        logit_scale: s in z = s * x W, the exponential of what the network stores.
        embedding_dim: D.
        image_size: `(height, width)` of the pixels.
        mean: per-channel mean that `preprocess` subtracts from pixels in [0, 1].
        std: per-channel deviation that `preprocess` divides by.
        device: where the network is.
        dtype: what the network computes in.
    """

    model: nn.Module
    preprocess: ImageTransform
    logit_scale: float
    embedding_dim: int
    image_size: tuple[int, int]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    dtype: torch.dtype

    def __init__(self, model: nn.Module) -> None:
        scale: Any = model.logit_scale  # stored as a logarithm by open_clip and by transformers
        self.model = model
        self.logit_scale = float(scale.detach().double().exp())
        self.dtype = weight_dtype(model)

    @property
    def device(self) -> torch.device:
        """Where the network is."""
        return next(self.model.parameters()).device

    def encode_text(self, texts: Sequence[str]) -> Tensor:
        """Embed n texts.

        Returns:
            Unit-norm features `(n, D)`, float32 (float64 from a float64 network), on the encoder's device.

        Raises:
            ValueError: no text, or a bare string in place of a list.
        """
        if isinstance(texts, str) or not texts:
            raise ValueError(f"encode_text needs a list of at least one text, got {texts!r}")
        with torch.inference_mode(), _evaluating(self.model):
            features = self._text_features(list(texts))
        return _unit_norm(features)

    def encode_image(self, images: Sequence[Image.Image] | Tensor) -> Tensor:
        """Embed n images.

        Args:
            images: PIL images, or pixels that `preprocess` made, `(n, 3, height, width)`.

        Returns:
            Unit-norm features `(n, D)`, float32 (float64 from a float64 network), on the encoder's device.

        Raises:
            ValueError: no image, or pixels of another shape or of an integer type.
        """
        if not isinstance(images, Tensor):
            if not isinstance(images, Sequence) or not images or not all(hasattr(i, "convert") for i in images):
                kind = type(images[0]).__name__ if isinstance(images, Sequence) and images else type(images).__name__
                raise ValueError(
                    "encode_image needs a list of at least one PIL image, or a tensor (n, 3, height, width); "
                    f"got {kind}"
                )
            prepared = [self.preprocess(image) for image in images]
            for pixels in prepared:
                self._check_pixels(pixels.unsqueeze(0))
            images = torch.stack(prepared)
        self._check_pixels(images)
        with torch.inference_mode(), _evaluating(self.model):
            features = self._image_features(images.to(self.device, self.dtype))
        return _unit_norm(features)

    def _check_pixels(self, pixels: Tensor) -> None:
        expected = (3, *self.image_size)
        if pixels.ndim != 4 or tuple(pixels.shape[1:]) != expected or len(pixels) == 0:
            wanted = ", ".join(str(size) for size in expected)
            raise ValueError(f"pixels must have shape (n, {wanted}) with n > 0, got {tuple(pixels.shape)}")
        if not pixels.is_floating_point():
            raise ValueError(f"pixels must be normalised floating-point values, got {pixels.dtype}; use `preprocess`")

    @abstractmethod
    def _text_features(self, texts: list[str]) -> Tensor:
        """Projected text features `(n, D)` as the network gives them."""

    @abstractmethod
    def _image_features(self, pixels: Tensor) -> Tensor:
        """Projected image features `(n, D)` as the network gives them, from pixels on its device and in its dtype."""


@contextmanager
def _evaluating(model: nn.Module) -> Iterator[None]:
    """Evaluation mode for a while; every module goes back to the mode it was in."""
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        yield
    finally:
        for module in training:
            module.training = True


def weight_dtype(model: nn.Module) -> torch.dtype:
    """The dtype a network computes in: that of its first matrix product or convolution.

    Half-precision open_clip models keep their norms, position embeddings and logit scale in float32, so the first
    parameter of all would mislead.
    """
    for module in model.modules():
        if isinstance(module, (nn.Linear, nn.Conv2d)):
            return module.weight.dtype
    return next(model.parameters()).dtype


def pair(size: int | Sequence[int]) -> tuple[int, int]:
    """An image size as (height, width); one number means a square."""
    if isinstance(size, int):
        return size, size
    height, width = size
    return int(height), int(width)


def _unit_norm(features: Tensor) -> Tensor:
    # Outside inference mode on purpose: an ordinary tensor may later be updated in place by its user.
    wide = features if features.dtype == torch.float64 else features.float()
    return normalize(wide, dim=-1).clone()
