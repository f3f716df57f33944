"""Images in, adapted predictions out: the job of a training-free method. `dota-clip adapt`, also under torchrun.

Each process runs one stream: it encodes its images in batches, then decides and learns from them one by one. With a
state folder the run can be stopped at any moment and resumed with the same outcome.
"""

from __future__ import annotations

import itertools
import json
import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, cast

import typer
from torch import Tensor

from dota_clip import options
from dota_clip.data.image_stream import ImageStream
from dota_clip.data.opening import open_dataset
from dota_clip.encoders import load_encoder
from dota_clip.encoders.contract import ClipEncoder
from dota_clip.streaming.accuracy import StreamAccuracy, plot_running_accuracy
from dota_clip.streaming.checkpoint import (
    Progress,
    forget,
    read_adapter,
    read_confidences,
    read_progress,
    save_stream,
    start_adapter,
    stream_folder,
)
from dota_clip.streaming.encoding import EncodedBatch, encode_stream, view_transform
from dota_clip.streaming.job import AdaptOptions, describe_job, state_bytes
from dota_clip.streaming.methods import MethodConfig, MethodName, StreamMethod
from dota_clip.streaming.places import StreamPlace, stream_place, visiting_order
from dota_clip.streaming.predictions import PredictionLog, prediction_rows, read_log, write_predictions
from dota_clip.zero_shot import zero_shot_weights
from nips_common import cli
from nips_common.artifacts import read_json, write_json
from nips_common.runtime import describe, require

log = logging.getLogger(__name__)


def adapt(
    encoder: ClipEncoder,
    images: ImageStream,
    class_weights: Tensor,
    classnames: Sequence[str],
    options: AdaptOptions,
    job: dict[str, Any] | None = None,
) -> dict[str, Any] | None:
    """Adapts to a stream of images and writes its predictions, metrics and plot.

    Args:
        encoder: the frozen encoder.
        images: the images.
        class_weights: (D, K) unit-norm zero-shot weights.
        classnames: K names for the rows.
        options: everything else.
        job: see `describe_job`; needed to resume safely.

    Returns:
        The metrics (also written beside the output), or None in the processes that do not join the results.

    Raises:
        ValueError: a state of another job or another number of streams, a damaged state file.
        UnreadableImage: with ``strict``.
    """
    with stream_place() as place:
        if options.restart and options.state is not None:
            if place.is_first:
                forget(options.state)
            place.wait()
        mine = visiting_order(len(images), options.shuffle, options.seed, options.limit)[place.rank :: place.world]
        progress = _run_stream(encoder, images, mine, class_weights, classnames, options, job or {}, place)
        write_json(_skipped_path(options, place), {"skipped": progress.skipped})
        place.wait()
        places = [StreamPlace(rank, place.world) for rank in range(place.world)]
        metrics = _join(options, places, job or {}) if place.is_first else None
        place.wait()
        return metrics


def _run_stream(
    encoder: ClipEncoder,
    images: ImageStream,
    order: Sequence[int],
    class_weights: Tensor,
    classnames: Sequence[str],
    options: AdaptOptions,
    job: dict[str, Any],
    place: StreamPlace,
) -> Progress:
    folder = None if options.state is None else stream_folder(options.state, place.rank, place.world)
    saved = None if folder is None else read_progress(folder, job)
    progress = saved or Progress(job)
    if folder is not None and saved is not None:
        adapter = read_adapter(folder, encoder.device)
        method = StreamMethod(options.method, class_weights, encoder.logit_scale, adapter, read_confidences(folder))
        log.info("resuming at image %d of %d", progress.position, len(order))
    else:
        learned = (
            None if options.start_from is None else start_adapter(options.start_from, options.method, class_weights)
        )
        method = StreamMethod(options.method, class_weights, encoder.logit_scale, learned)
    rows = PredictionLog(options.log_path(place), progress.log_size)
    batches = encode_stream(
        encoder,
        images,
        order[progress.position :],
        view_transform(encoder, options.views, options.severity, options.seed),
        images_per_batch=options.images_per_batch,
        workers=options.workers,
        strict=options.strict,
    )
    last_saved = progress.position
    remaining = -(-(len(order) - progress.position) // options.images_per_batch)
    for batch in cli.progress(batches, "adapting", total=remaining):
        rows.write(_decide(batch, images, method, classnames, options, place.rank))
        progress.position += batch.size
        progress.skipped += batch.skipped
        if folder is not None and (
            progress.position - last_saved >= options.save_every or progress.position == len(order)
        ):
            progress.log_size = rows.flush()
            save_stream(folder, method, progress)
            last_saved = progress.position
    rows.flush()
    rows.close()
    return progress


def _decide(
    batch: EncodedBatch,
    images: ImageStream,
    method: StreamMethod,
    classnames: Sequence[str],
    options: AdaptOptions,
    stream: int,
) -> list[dict[str, Any]]:
    if batch.features is None:
        return []
    items = [(index, images.items[index].identifier, images.items[index].label) for index in batch.indices]
    decisions = [method.step(views, label) for views, (_, _, label) in zip(batch.features, items, strict=True)]
    return prediction_rows(items, decisions, classnames, stream, options.probabilities)


def _skipped_path(options: AdaptOptions, place: StreamPlace) -> Path:
    return options.log_path(place).with_suffix(".skipped.json")


def _join(options: AdaptOptions, places: Sequence[StreamPlace], job: dict[str, Any]) -> dict[str, Any]:
    """Joins what the streams left: predictions, metrics, plot; removes the logs once the output stands."""
    logs = [options.log_path(place) for place in places]
    notes = [_skipped_path(options, place) for place in places]
    skipped = [identifier for note in notes for identifier in read_json(note)["skipped"]]
    # the streams side by side, as they ran
    side_by_side = (row for rows in itertools.zip_longest(*map(read_log, logs)) for row in rows if row is not None)
    accuracy = StreamAccuracy.from_rows(side_by_side)
    write_predictions(options.output, logs)
    metrics = {
        "method": options.method.name,
        **accuracy.summary(),
        "asked": accuracy.asked,
        "skipped": len(skipped),
        "skipped_images": skipped,
        "streams": len(places),
        "output": str(options.output),
        "run": job,
    }
    write_json(options.beside("-metrics.json"), metrics)
    if options.plot and len(accuracy.adapted):
        title = f"{options.method.name} on {accuracy.images} images"
        plot_running_accuracy(accuracy, options.beside("-accuracy.png"), title)
    for path in notes if options.state is not None else [*notes, *logs]:  # a saved state still needs its log
        path.unlink()
    return metrics


def command(
    source: options.Source,
    model: options.Model,
    output: Annotated[Path, typer.Option("--output", "-o", help="Predictions: a .jsonl or .parquet file.")],
    pretrained: options.Pretrained = None,
    dataset: options.DatasetName = None,
    split: options.Split = "test",
    classnames: options.ClassnamesFile = None,
    templates: options.TemplatesFile = None,
    image_root: options.ImageRoot = None,
    image_column: options.ImageColumn = None,
    label_column: options.LabelColumn = None,
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
    views: options.Views = 1,
    view_fraction: options.ViewFraction = 0.1,
    severity: options.Severity = 1,
    state: Annotated[
        Path | None, typer.Option(help="Folder to save to and, if it holds a state of this run, resume from.")
    ] = None,
    save_every: Annotated[int, typer.Option(min=1, help="Images between two saves.")] = 1000,
    start_from: Annotated[
        Path | None, typer.Option(help="Folder of a saved adapter to go on from, for new images of the same classes.")
    ] = None,
    restart: Annotated[bool, typer.Option("--restart", help="Forget what --state holds.")] = False,
    batch_size: options.BatchSize = 64,
    workers: options.Workers = 0,
    seed: Annotated[int, typer.Option(help="Order of the images, and their views.")] = 1,
    shuffle: Annotated[bool, typer.Option(help="Visit the images in a seeded random order.")] = True,
    limit: options.Limit = None,
    strict: options.Strict = False,
    probabilities: Annotated[bool, typer.Option(help="Write all K probabilities of each image.")] = True,
    plot: Annotated[bool, typer.Option(help="Draw the running accuracy if labels are known.")] = True,
    device: options.Device = "auto",
    dtype: options.Dtype = "auto",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check everything, print what would run, and stop.")
    ] = False,
) -> None:
    """Adapt a CLIP-like classifier to a stream of images and write each image's zero-shot and adapted prediction.

    Prints the metrics as JSON; they are also written beside the output, with a plot of the running accuracy where
    labels are known. Under torchrun each process adapts on its own share of the images, as an independent stream.
    """
    config = options.dota_config(
        method, preset, epsilon=epsilon, sigma2=sigma2, eta=eta, rho=rho, mean_init=mean_init, covariance=covariance,
        update_first=update_first, count=count, prob_threshold=prob_threshold, initial_count=initial_count,
    )  # fmt: skip
    chosen = MethodConfig(
        cast("MethodName", method), config, view_fraction=view_fraction, feedback_gamma=feedback_gamma
    )
    settings = AdaptOptions(
        output,
        chosen,
        state,
        save_every,
        views,
        severity,
        batch_size,
        workers,
        seed,
        shuffle,
        limit,
        strict,
        probabilities,
        plot,
        start_from,
        restart,
    )
    images = open_dataset(
        source, name=dataset, split=split, classnames=classnames, image_root=image_root,
        image_column=image_column, label_column=label_column,
    )  # fmt: skip
    if feedback_gamma and not images.has_labels:
        raise ValueError(f"--feedback-gamma answers with known labels, and {source} has none")
    names, sentences = options.prompts(images.classnames, images.dataset, templates)
    encoder = load_encoder(model, pretrained=pretrained, device=device, dtype=dtype)
    if plot and images.has_labels:
        require("matplotlib", "dota-clip[images]")
    count_of_images = min(len(images), limit or len(images))
    place = describe(encoder.device, encoder.dtype)
    log.info("%s: %d images, %d classes, on %s", source, count_of_images, len(names), place)
    job = describe_job(settings, f"{model} {pretrained or ''}".strip(), encoder, images, [*names, *sentences])
    if state is not None and not restart:
        world = int(os.environ.get("WORLD_SIZE", "1"))
        for rank in range(world):
            read_progress(stream_folder(state, rank, world), job)
    if dry_run:
        typer.echo(json.dumps(_plan(settings, encoder, images, job), indent=2))
        return
    weights = zero_shot_weights(encoder, names, sentences, allow_duplicates=images.class_ids is not None)
    metrics = adapt(encoder, images, weights, names, settings, job)
    if metrics is not None:
        typer.echo(json.dumps(metrics, indent=2))


def _plan(settings: AdaptOptions, encoder: ClipEncoder, images: ImageStream, job: dict[str, Any]) -> dict[str, Any]:
    classes = len(images.classnames)
    return {
        "images": min(len(images), settings.limit or len(images)),
        "labelled": sum(label is not None for label in images.labels),
        "classes": classes,
        "dimension": encoder.embedding_dim,
        "encoder_parameters": sum(parameter.numel() for parameter in encoder.model.parameters()),
        "device": describe(encoder.device, encoder.dtype),
        "state_bytes_per_stream": state_bytes(settings.method, encoder.embedding_dim, classes),
        "output": str(settings.output),
        "run": job,
    }


def main(argv: Sequence[str] | None = None) -> None:
    """Runs the command alone: ``python -m dota_clip.adapt``, ``torchrun -m dota_clip.adapt``."""
    app = cli.make_app("dota-clip", "dota-clip", "Distributional test-time adaptation of CLIP-like classifiers.")
    app.command("adapt")(command)
    cli.run(app, ["adapt", *(sys.argv[1:] if argv is None else argv)])


if __name__ == "__main__":
    main()
