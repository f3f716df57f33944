"""Images to a feature file, for experiments that run many methods over the same features: `dota-clip extract`."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import torch
import typer
from torch import Tensor

from dota_clip import options
from dota_clip.data.image_stream import ImageStream
from dota_clip.data.opening import open_dataset
from dota_clip.encoders import load_encoder
from dota_clip.encoders.contract import ClipEncoder
from dota_clip.features import FeatureSet, write_features
from dota_clip.streaming.encoding import encode_stream, view_transform
from dota_clip.streaming.places import visiting_order
from dota_clip.zero_shot import zero_shot_weights
from nips_common import cli

log = logging.getLogger(__name__)


def extract(
    encoder: ClipEncoder,
    images: ImageStream,
    class_weights: Tensor,
    classnames: Sequence[str],
    *,
    views: int = 1,
    severity: int = 1,
    seed: int = 1,
    batch_size: int = 64,
    workers: int = 0,
    limit: int | None = None,
    strict: bool = False,
) -> tuple[FeatureSet, list[str]]:
    """Encodes all images in their own order.

    Args:
        encoder: the frozen encoder.
        images: the images; labels are kept if every readable image has one.
        class_weights: (D, K) unit-norm.
        classnames: K names.
        views: views an image, all of them kept.
        severity: strength of the AugMix views.
        seed: of the views.
        batch_size: pictures encoded at once.
        workers: data-loading processes.
        limit: only the first so many images.
        strict: stop at an unreadable image.

    Returns:
        The features (on the CPU) and the identifiers of skipped images.

    Raises:
        ValueError: no image could be read.
        UnreadableImage: with ``strict``.
    """
    order = visiting_order(len(images), shuffle=False, seed=0, limit=limit)
    each = max(1, batch_size // views)
    batches = encode_stream(
        encoder,
        images,
        order,
        view_transform(encoder, views, severity, seed),
        images_per_batch=each,
        workers=workers,
        strict=strict,
    )
    blocks, indices, skipped = [], [], []
    for batch in cli.progress(batches, "encoding", total=-(-len(order) // each)):
        if batch.features is not None:
            blocks.append(batch.features.cpu())
        indices += batch.indices
        skipped += batch.skipped
    if not blocks:
        raise ValueError(f"none of the {len(order)} images could be read, the first is {skipped[0]}")
    features = torch.cat(blocks)
    labels = [images.items[index].label for index in indices]
    known = [label for label in labels if label is not None]
    return FeatureSet(
        features=features[:, 0] if views == 1 else features,
        class_weights=class_weights.cpu(),
        labels=torch.tensor(known) if len(known) == len(labels) else None,
        logit_scale=encoder.logit_scale,
        classnames=tuple(classnames),
        identifiers=tuple(images.items[index].identifier for index in indices),
    ), skipped


def command(
    source: options.Source,
    model: options.Model,
    output: Annotated[Path, typer.Option("--output", "-o", help="Feature file, .safetensors.")],
    pretrained: options.Pretrained = None,
    dataset: options.DatasetName = None,
    split: options.Split = "test",
    classnames: options.ClassnamesFile = None,
    templates: options.TemplatesFile = None,
    image_root: options.ImageRoot = None,
    image_column: options.ImageColumn = None,
    label_column: options.LabelColumn = None,
    views: options.Views = 1,
    severity: options.Severity = 1,
    seed: Annotated[int, typer.Option(help="Of the views.")] = 1,
    batch_size: options.BatchSize = 64,
    workers: options.Workers = 0,
    limit: options.Limit = None,
    strict: options.Strict = False,
    device: options.Device = "auto",
    dtype: options.Dtype = "auto",
) -> None:
    """Encode images and class names into one feature file for `dota-clip run`; prints what it holds as JSON."""
    if output.suffix != ".safetensors":
        raise ValueError(f"{output}: features are written as .safetensors, got {output.suffix or 'no ending'!r}")
    if views < 1:
        raise ValueError(f"--views must be at least 1, got {views}")
    images = open_dataset(
        source, name=dataset, split=split, classnames=classnames, image_root=image_root,
        image_column=image_column, label_column=label_column,
    )  # fmt: skip
    names, sentences = options.prompts(images.classnames, images.dataset, templates)
    encoder = load_encoder(model, pretrained=pretrained, device=device, dtype=dtype)
    weights = zero_shot_weights(encoder, names, sentences, allow_duplicates=images.class_ids is not None)
    features, skipped = extract(
        encoder, images, weights, names, views=views, severity=severity, seed=seed, batch_size=batch_size,
        workers=workers, limit=limit, strict=strict,
    )  # fmt: skip
    write_features(output, features)
    told = {
        "images": len(features),
        "views": views,
        "dimension": features.class_weights.shape[0],
        "classes": len(names),
        "labelled": 0 if features.labels is None else len(features.labels),
        "logit_scale": features.logit_scale,
        "skipped": len(skipped),
        "skipped_images": skipped,
        "output": str(output),
    }
    typer.echo(json.dumps(told, indent=2))
