"""A feature file through any of the methods, over several orders: `dota-clip run`, for experiments."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean, stdev
from typing import Annotated, Any, cast

import typer

from dota_clip import options
from dota_clip.features import FeatureSet, Unnormalised, read_features
from dota_clip.inputs import check_scale
from dota_clip.streaming.accuracy import StreamAccuracy
from dota_clip.streaming.methods import MethodConfig, MethodName, StreamMethod
from dota_clip.streaming.places import visiting_order
from dota_clip.streaming.predictions import PredictionLog, check_output, prediction_rows, write_predictions
from nips_common import cli
from nips_common.runtime import resolve_device

_DEFAULT_SCALE = 100.0  # CLIP's, which the official code fixes
_ROWS = 64


def run_features(
    features: FeatureSet,
    config: MethodConfig,
    *,
    logit_scale: float,
    seed: int,
    shuffle: bool = True,
    device: str = "cpu",
    limit: int | None = None,
    stream: int = 0,
    probabilities: bool = True,
    description: str = "stream",
) -> Iterator[list[dict[str, Any]]]:
    """Runs one stream over features and yields its rows, a few images at a time.

    Args:
        features: what `read_features` gives.
        config: the method.
        logit_scale: multiplies the cosines.
        seed: of the order.
        shuffle: visit the images in a seeded random order.
        device: where state and arithmetic are.
        limit: only so many images.
        stream: number written into the rows.
        probabilities: put all probabilities into the rows.
        description: of the progress bar.
    """
    place = resolve_device(device)
    weights, labels = features.class_weights.to(place), None if features.labels is None else features.labels.tolist()
    method = StreamMethod(config, weights, logit_scale)
    order = visiting_order(len(features), shuffle, seed, limit)
    blocks = [order[i : i + _ROWS] for i in range(0, len(order), _ROWS)]
    for block in cli.progress(blocks, description, total=len(blocks)):
        views = features.features[block].to(place)
        items = [
            (
                index,
                str(index) if features.identifiers is None else features.identifiers[index],
                labels[index] if labels else None,
            )
            for index in block
        ]
        decisions = [method.step(image, label) for image, (_, _, label) in zip(views, items, strict=True)]
        yield prediction_rows(items, decisions, features.names, stream, probabilities)


def command(
    features: Annotated[
        Path, typer.Option(help="Feature file: features [N, D] or [N, V, D], class_weights [D, K], labels [N].")
    ],
    method: options.Method = "dota",
    preset: options.Preset = None,
    epsilon: options.Epsilon = None,
    sigma2: options.Sigma2 = None,
    eta: options.Eta = None,
    rho: options.Rho = None,
    mean_init: options.MeanInitOption = None,
    covariance: options.CovarianceOption = None,
    update_first: options.UpdateFirst = None,
    count: options.CountOption = None,
    prob_threshold: options.ProbThreshold = None,
    initial_count: options.InitialCount = None,
    feedback_gamma: options.FeedbackGamma = 0.0,
    view_fraction: options.ViewFraction = 0.1,
    logit_scale: Annotated[float | None, typer.Option(help="Default: the file's, else 100.")] = None,
    seed: Annotated[
        list[int] | None, typer.Option(help="Order of the images; give several for several streams. Default 1.")
    ] = None,
    shuffle: Annotated[bool, typer.Option(help="Visit the images in a seeded random order.")] = True,
    limit: options.Limit = None,
    unnormalised: Annotated[
        str, typer.Option(help="Vectors without unit norm: warn (and normalise) or error.")
    ] = "warn",
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Predictions of all streams, .jsonl or .parquet.")
    ] = None,
    probabilities: Annotated[bool, typer.Option(help="Write all K probabilities of each image.")] = True,
    device: options.Device = "cpu",
) -> None:
    """Run a feature file through a method and print the accuracy of each stream, and their spread, as JSON."""
    if unnormalised not in ("warn", "error"):
        raise ValueError(f"--unnormalised must be warn or error, got {unnormalised!r}")
    config = options.dota_config(
        method, preset, epsilon=epsilon, sigma2=sigma2, eta=eta, rho=rho, mean_init=mean_init, covariance=covariance,
        update_first=update_first, count=count, prob_threshold=prob_threshold, initial_count=initial_count,
    )  # fmt: skip
    chosen = MethodConfig(
        cast("MethodName", method), config, view_fraction=view_fraction, feedback_gamma=feedback_gamma
    )
    if output is not None:
        check_output(output)
    found = read_features(features, cast("Unnormalised", unnormalised))
    chosen.check_views(found.features.shape[1])
    if feedback_gamma and found.labels is None:
        raise ValueError(f"--feedback-gamma answers with known labels, and {features} has none")
    scale = check_scale(logit_scale if logit_scale is not None else found.logit_scale or _DEFAULT_SCALE)
    seeds = seed or [1]
    rows_file = None if output is None else PredictionLog(output.with_name(output.name + ".partial"))
    streams = []
    for number, order_seed in enumerate(seeds):
        start = time.perf_counter()
        rows: list[dict[str, Any]] = []
        for block in run_features(
            found,
            chosen,
            logit_scale=scale,
            seed=order_seed,
            shuffle=shuffle,
            device=device,
            limit=limit,
            stream=number,
            probabilities=probabilities and output is not None,
            description=f"stream {number + 1} of {len(seeds)}",
        ):
            if rows_file is not None:
                rows_file.write(block)
            rows += [{key: row[key] for key in ("label", "zero_shot", "adapted", "asked")} for row in block]
        accuracy = StreamAccuracy.from_rows(rows)
        seconds = round(time.perf_counter() - start, 3)
        streams.append({"seed": order_seed, **accuracy.summary(), "asked": accuracy.asked, "seconds": seconds})
    if output is not None and rows_file is not None:
        rows_file.flush()
        rows_file.close()
        write_predictions(output, [rows_file.path])
        rows_file.path.unlink()
    typer.echo(json.dumps(_report(chosen, scale, streams), indent=2))


def _report(config: MethodConfig, scale: float, streams: list[dict[str, Any]]) -> dict[str, Any]:
    settings: Any = {"dota": config.dota, "tda": config.tda}.get(config.name)
    report: dict[str, Any] = {
        "method": config.name,
        "settings": dataclasses.asdict(settings) if settings is not None else {},
        "logit_scale": scale,
        "streams": streams,
    }
    for name in ("zero_shot_accuracy", "adapted_accuracy"):
        values = [stream[name] for stream in streams if stream[name] is not None]
        report[name] = fmean(values) if values else None
        report[f"{name}_std"] = stdev(values) if len(values) > 1 else None
    return report
