"""Views of one image: the image itself and randomly cropped, mirrored and AugMix-mixed versions of it.

The pipeline is the one that test-time methods for CLIP share (introduced by TPT; the paper's evaluation under
distribution shift uses 1 + 63 views): random resized crop, horizontal flip, then AugMix (Hendrycks et al., 2020) with
three chains of one to three of its nine operations that do not touch colour balance.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from nips_common.runtime import require

if TYPE_CHECKING:
    from PIL import Image

    from dota_clip.encoders.contract import ClipEncoder, ImageTransform

_WIDTH = 3  # chains per mixture
_HIGHEST_SEVERITY = 9


class SingleView:
    """The image alone, as a stack of one view.

    Args:
        preprocess: one image -> `(3, height, width)`, for example `encoder.preprocess`.
    """

    def __init__(self, preprocess: ImageTransform) -> None:
        self.preprocess = preprocess

    def __call__(self, image: Image.Image, index: int) -> Tensor:
        """Pixels `(1, 3, height, width)`; `index` is not used."""
        return self.preprocess(image).unsqueeze(0)


class AugMixViews:
    """The image and `num_views - 1` AugMix versions of it, the same for the same (seed, index) always.

    The views depend on nothing else: not on the order of the images, the number of data-loading processes, or what was
    drawn before. A resumed stream therefore sees the views it would have seen. The global random state is left alone.

    Args:
        preprocess: one image -> normalised pixels `(3, height, width)`; makes the first view.
        image_size: `(height, width)` of the crops.
        mean: per-channel mean to subtract from pixels in [0, 1].
        std: per-channel deviation to divide by.
        num_views: V, at least 1.
        severity: strength of the operations, 1 to 9; the published evaluations use 1.
        seed: picks the set of views.

    Raises:
        ValueError: `num_views` below 1 or `severity` outside 1..9.
        ImportError: torchvision is not installed.
    """

    def __init__(
        self,
        preprocess: ImageTransform,
        image_size: tuple[int, int],
        mean: tuple[float, ...],
        std: tuple[float, ...],
        *,
        num_views: int = 64,
        severity: int = 1,
        seed: int = 0,
    ) -> None:
        if num_views < 1:
            raise ValueError(f"num_views must be at least 1 (the image itself), got {num_views}")
        if not 1 <= severity <= _HIGHEST_SEVERITY:
            raise ValueError(f"severity must be between 1 and {_HIGHEST_SEVERITY}, got {severity}")
        require("torchvision", "dota-clip[images]")
        from torchvision.transforms import v2

        self.preprocess = preprocess
        self.num_views = num_views
        self.seed = seed
        self._augment = v2.Compose(
            [
                v2.RandomResizedCrop(list(image_size)),
                v2.RandomHorizontalFlip(),
                # torchvision draws one of the `severity` lowest of ten levels 0, 1.1 ... 10, AugMix itself a level in
                # [0.1, severity]: with torchvision's severity 1 every rotation, shear and shift would be zero. One more
                # gives the levels 0 and 1.1 for AugMix's 0.1 to 1, with the same mean.
                v2.AugMix(severity=severity + 1, mixture_width=_WIDTH, chain_depth=-1, alpha=1.0, all_ops=False),
                v2.PILToTensor(),
                v2.ToDtype(torch.float32, scale=True),
                v2.Normalize(mean=list(mean), std=list(std)),
            ]
        )

    @classmethod
    def for_encoder(cls, encoder: ClipEncoder, *, num_views: int = 64, severity: int = 1, seed: int = 0) -> AugMixViews:
        """Views in an encoder's own size and normalisation."""
        return cls(
            encoder.preprocess,
            encoder.image_size,
            encoder.mean,
            encoder.std,
            num_views=num_views,
            severity=severity,
            seed=seed,
        )

    def __call__(self, image: Image.Image, index: int) -> Tensor:
        """Views of an image.

        Args:
            image: RGB.
            index: the image's own number in its data set, whatever the order of the stream.

        Returns:
            Pixels `(V, 3, height, width)`, the image itself first.
        """
        views = [self.preprocess(image)]
        with torch.random.fork_rng(devices=[]):  # the operations draw from the global CPU generator
            torch.manual_seed(_view_seed(self.seed, index))
            views += [self._augment(image) for _ in range(self.num_views - 1)]
        return torch.stack(views)


def _view_seed(seed: int, index: int) -> int:
    """63 bits that differ for every (seed, index); neighbouring numbers share nothing."""
    return int.from_bytes(blake2b(f"{seed}:{index}".encode(), digest_size=8).digest(), "big") >> 1
