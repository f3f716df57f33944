"""Sends streams of digits through zero-shot, TDA and DOTA, image by image, over models and stream orders."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import Tensor

from dota_clip.adapter import DotaAdapter
from dota_clip.config import DotaConfig, TDAConfig
from dota_clip.experiment import tiny_clip
from dota_clip.experiment.digits import CLASSNAMES, Images
from dota_clip.tda import TDAAdapter
from dota_clip.zero_shot import zero_shot_weights
from nips_common.cli import progress

Method = DotaConfig | TDAConfig | None  # None: zero-shot

# (models, orders, N) of bool by (method, stream): was the n-th image to come classified correctly?
Results = dict[tuple[str, str], Tensor]


class Job(NamedTuple):
    """One method on one stream."""

    method: str
    config: Method
    stream: str


class ModelView(NamedTuple):
    """What one trained model makes of the task: class weights (D, K), logit scale, features (N, D) by stream."""

    class_weights: Tensor
    logit_scale: float
    features: dict[str, Tensor]


@torch.no_grad()
def view_of(model: tiny_clip.TinyClip, streams: Mapping[str, Images]) -> ModelView:
    """Encodes the class prompts and every stream."""
    weights = zero_shot_weights(model, CLASSNAMES, tiny_clip.TEMPLATES)
    features = {name: model.encode_image(images.pixels) for name, images in streams.items()}
    return ModelView(weights, float(model.logit_scale), features)


@torch.inference_mode()
def predictions(config: Method, view: ModelView, features: Tensor) -> Tensor:
    """Sends one stream through one method, one image at a time, from a fresh state.

    Args:
        config: of the adapter, or None for zero-shot.
        view: class weights and logit scale of the model.
        features: (N, D) in the order in which the images come.

    Returns:
        (N,) predicted classes.
    """
    if config is None:
        return (features @ view.class_weights).argmax(1)
    if isinstance(config, TDAConfig):
        cache = TDAAdapter(view.class_weights, config, view.logit_scale)
        return torch.stack([cache.step(feature).logits.argmax() for feature in features])
    adapter = DotaAdapter(view.class_weights, config, view.logit_scale)
    return torch.stack([adapter.step(feature).logits.argmax() for feature in features])


def run_streams(
    jobs: Sequence[Job],
    training: Images,
    streams: Mapping[str, Images],
    model_seeds: Sequence[int],
    order_seeds: Sequence[int],
    epochs: int,
) -> Results:
    """Trains one model a seed and runs every job on each model in each order; all methods see the same orders.

    Args:
        jobs: what to run.
        training: images the models are trained on.
        streams: test images by name.
        model_seeds: one a model.
        order_seeds: one an order in which the images come.
        epochs: of training.

    Returns:
        Correct or not, image by image, in the order of the stream.
    """
    with one_thread():
        models = [
            view_of(tiny_clip.train_tiny_clip(training, seed, epochs), streams)
            for seed in progress(model_seeds, "training", len(model_seeds))
        ]
        results: Results = {}
        for job in progress(jobs, "streams", len(jobs)):
            labels = streams[job.stream].labels
            orders = [stream_order(len(labels), seed) for seed in order_seeds]
            runs = [
                predictions(job.config, view, view.features[job.stream][order]) == labels[order]
                for view in models
                for order in orders
            ]
            results[job.method, job.stream] = torch.stack(runs).unflatten(0, (len(models), len(orders)))
    return results


def stream_order(images: int, seed: int) -> Tensor:
    """The permutation (N,) in which the images of a stream come."""
    return torch.randperm(images, generator=torch.Generator().manual_seed(seed))


def accuracy_per_model(results: Results, method: str, *streams: str) -> list[float]:
    """Top-1 accuracy in % of each model: mean over its stream orders and over the streams."""
    per_stream = [results[method, stream].double().mean((1, 2)) for stream in streams]
    return [100 * value for value in torch.stack(per_stream).mean(0).tolist()]


@contextmanager
def one_thread() -> Iterator[None]:
    """Matrices of 64 x 64 lose time to threads; and sums then do not depend on how many cores there are."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
