"""What one run of `dota-clip adapt` is: its options, what makes two runs the same, and what a state takes."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dota_clip.data.image_stream import ImageStream
from dota_clip.encoders.contract import ClipEncoder
from dota_clip.streaming.checkpoint import digest
from dota_clip.streaming.methods import MethodConfig
from dota_clip.streaming.places import StreamPlace
from dota_clip.streaming.predictions import check_output


@dataclasses.dataclass(frozen=True)
class AdaptOptions:
    """What `adapt` needs beside encoder, images and class weights.

    Args:
        output: predictions, .jsonl or .parquet.
        method: the method and its settings.
        state: folder to save to and resume from; None cannot resume.
        save_every: images between two saves.
        views: views an image.
        severity: strength of the AugMix views.
        batch_size: pictures encoded at once.
        workers: data-loading processes.
        seed: order and views.
        shuffle: visit the images in a seeded random order.
        limit: only so many images.
        strict: stop at an unreadable image.
        probabilities: write all probabilities, not only the largest.
        plot: draw the running accuracy beside the output when labels are known.
        start_from: folder of a saved adapter to go on from on these images, in place of a new one.
        restart: forget what the state folder holds.
    """

    output: Path
    method: MethodConfig = dataclasses.field(default_factory=MethodConfig)
    state: Path | None = None
    save_every: int = 1000
    views: int = 1
    severity: int = 1
    batch_size: int = 64
    workers: int = 0
    seed: int = 1
    shuffle: bool = True
    limit: int | None = None
    strict: bool = False
    probabilities: bool = True
    plot: bool = True
    start_from: Path | None = None
    restart: bool = False

    def __post_init__(self) -> None:
        for name in ("views", "save_every", "batch_size"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        check_output(self.output)
        self.method.check_views(self.views)

    @property
    def images_per_batch(self) -> int:
        """Images encoded together, so that no more than ``batch_size`` pictures are."""
        return max(1, self.batch_size // self.views)

    def log_path(self, place: StreamPlace) -> Path:
        """The prediction log of one stream: with its state, or else beside the output until that is written."""
        if self.state is not None:
            return self.state / f"stream-{place.rank}-of-{place.world}.jsonl"
        return self.output.with_name(f"{self.output.name}.stream-{place.rank}.partial")

    def beside(self, ending: str) -> Path:
        """A file that belongs to the output."""
        return self.output.with_name(self.output.stem + ending)


def describe_job(
    options: AdaptOptions, encoder_name: str, encoder: ClipEncoder, images: ImageStream, prompts: Sequence[str]
) -> dict[str, Any]:
    """What makes two runs the same, as JSON values: a saved state is resumed only by an equal job."""
    return {
        "encoder": encoder_name,
        "dtype": str(encoder.dtype).removeprefix("torch."),
        **options.method.settings(),
        "views": options.views,
        "severity": options.severity,
        "images": len(images),
        "image_list": digest(item.identifier for item in images.items),
        "classes": digest(images.class_ids or images.classnames),
        "prompts": digest(prompts),
        "seed": options.seed,
        "shuffle": options.shuffle,
        "limit": options.limit,
        "images_per_batch": options.images_per_batch,
        "probabilities": options.probabilities,
        "start_from": None if options.start_from is None else str(options.start_from),
    }


def state_bytes(method: MethodConfig, dimension: int, classes: int) -> int:
    """Memory of one stream's state: class weights, means and what the covariance or the caches take."""
    matrix = classes * dimension
    if method.name == "tda":
        shots = method.tda.positive_shot_capacity + method.tda.negative_shot_capacity * method.tda.negative
        return 4 * matrix * (1 + shots) + method.tda.negative * method.tda.negative_shot_capacity * classes**2
    square = dimension * dimension
    covariance = {"full": (classes + 1) * square, "diagonal": matrix}.get(method.dota.covariance, square)
    return 4 * (3 * matrix + (covariance if method.name == "dota" else square))
