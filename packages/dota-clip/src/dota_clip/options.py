"""Command-line options that several commands share, and what they turn into."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated, Any

import typer

from dota_clip.config import DotaConfig
from dota_clip.presets import PRESETS
from dota_clip.prompts import prepare_classnames, read_templates, templates_for

Source = Annotated[
    str,
    typer.Argument(
        help="Images: a folder (class folders, or flat), a CSV or JSONL list, a CoOp split file, a benchmark's root "
        "with --dataset, a saved Hugging Face data set, or hf:org/name.",
    ),
]
Model = Annotated[
    str,
    typer.Option(help="Encoder: a local folder, an open_clip name (with --pretrained), hf-hub:org/name, or org/name."),
]
Pretrained = Annotated[str | None, typer.Option(help="open_clip tag or checkpoint file for an open_clip name.")]
DatasetName = Annotated[
    str | None, typer.Option("--dataset", help="Benchmark name: eurosat, imagenet-a, ... or I, A, V, R, S.")
]
Split = Annotated[str, typer.Option(help="Which split of the source.")]
ClassnamesFile = Annotated[
    Path | None, typer.Option("--classnames", help="Text file, one class name a line, in label order.")
]
TemplatesFile = Annotated[
    Path | None, typer.Option("--templates", help="Text file, one prompt a line, each with one {}.")
]
ImageRoot = Annotated[Path | None, typer.Option(help="Where relative image paths start.")]
ImageColumn = Annotated[str | None, typer.Option(help="Image column of a Hugging Face data set.")]
LabelColumn = Annotated[str | None, typer.Option(help="Label column of a Hugging Face data set.")]
Views = Annotated[int, typer.Option(help="Views an image: 1, or the image and V - 1 AugMix versions (the paper: 64).")]
Severity = Annotated[int, typer.Option(help="Strength of the AugMix views.")]
ViewFraction = Annotated[float, typer.Option(help="Share of the views to keep, those of lowest entropy.")]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:N or mps.")]
Dtype = Annotated[
    str, typer.Option(help="Precision of the encoder: auto, float32, bfloat16, float16. The state is float32.")
]
BatchSize = Annotated[int, typer.Option(min=1, help="Pictures (images x views) encoded at once.")]
Workers = Annotated[int, typer.Option(min=0, help="Data-loading processes.")]
Limit = Annotated[int | None, typer.Option(min=1, help="Only so many images, the first in the order of the run.")]
Strict = Annotated[
    bool, typer.Option("--strict", help="Stop at an unreadable image instead of skipping and counting it.")
]
Method = Annotated[str, typer.Option(help="dota, tda or zeroshot.")]
Preset = Annotated[
    str | None, typer.Option(help="Released settings of a data set (tuned on its labels); default: general ones.")
]
Epsilon = Annotated[float | None, typer.Option(help="Shrinkage of the covariance, in (0, 1] (1e-4).")]
Sigma2 = Annotated[float | None, typer.Option(help="Initial variance (0.002).")]
Eta = Annotated[float | None, typer.Option(help="Upper bound of the fusion weight (0.3, or the preset's).")]
Rho = Annotated[float | None, typer.Option(help="Growth of the fusion weight (0.02, or the preset's).")]
MeanInitOption = Annotated[str | None, typer.Option("--mean-init", help="constant (the default) or text.")]
CovarianceOption = Annotated[
    str | None, typer.Option("--covariance", help="full (the default), pooled, diagonal or fixed.")
]
UpdateFirst = Annotated[
    bool | None, typer.Option("--update-first/--predict-first", help="Order within an image (default: predict first).")
]
CountOption = Annotated[
    str | None, typer.Option("--count", help="What grows the fusion weight: mean (the default) or samples.")
]
ProbThreshold = Annotated[
    float | None,
    typer.Option(help="Leave covariances of less probable classes alone; 0 (the default) is exact, 1e-4 is fast."),
]
InitialCount = Annotated[float | None, typer.Option(help="Weight of the initial state, in images (1).")]
FeedbackGamma = Annotated[
    float,
    typer.Option(help="Share of the least certain images whose known label is used, as if a human had been asked."),
]


def dota_config(method: str, preset: str | None, **given: Any) -> DotaConfig:
    """The preset's settings (default: the general ones) with those that were given in their place.

    Raises:
        ValueError: an unknown preset (the known ones are listed), a value out of range, or a setting of DOTA given
            for another method.
    """
    told = [f"--{name.replace('_', '-')}" for name, value in given.items() if value is not None]
    if told and method in ("tda", "zeroshot"):
        raise ValueError(f"{', '.join(told)}: a setting of DOTA, which --method {method} does not use")
    if preset is not None and preset not in PRESETS:
        raise ValueError(f"--preset must be one of {', '.join(sorted(PRESETS))}, got {preset!r}")
    base = DotaConfig() if preset is None else PRESETS[preset]
    return dataclasses.replace(base, **{name: value for name, value in given.items() if value is not None})


def prompts(
    classnames: tuple[str, ...], dataset: str | None, templates: Path | None
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Class names as the prompts spell them, and the templates of the file, else of the data set, else the default."""
    chosen = read_templates(templates) if templates is not None else templates_for(dataset)
    return prepare_classnames(classnames, dataset), chosen
