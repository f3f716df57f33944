"""The figure of the small experiment: accuracy by stream, and how it develops along the stream."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from nips_common.artifacts import atomic_file
from nips_common.runtime import require

# Okabe and Ito's palette, told apart by colour-blind readers too; the markers tell them apart in grey.
STYLES = (("#555555", "o"), ("#E69F00", "s"), ("#0072B2", "D"), ("#56B4E9", "^"))
FIRST_SHOWN = 25  # before this, an accuracy so far is mostly chance


def draw(
    path: Path,
    results: Mapping[tuple[str, str], Tensor],
    methods: Sequence[str],
    shifts: Sequence[str],
    others: Sequence[str],
) -> Path:
    """Draws the figure as PNG.

    Args:
        path: the file.
        results: (models, orders, N) bool by (method, stream): correct or not, in the order of the stream.
        methods: at most four, in the order of the legend.
        shifts: streams whose mean the right panel follows.
        others: further streams of the left panel; a method that did not see one has no mark there.

    Returns:
        ``path``.

    Raises:
        ImportError: matplotlib is missing; names the extra.
    """
    figure = require("matplotlib.figure", "dota-clip[reproduce]").Figure(figsize=(13, 5), layout="constrained")
    by_stream, along = figure.subplots(1, 2, width_ratios=(1.6, 1))
    _accuracy_by_stream(by_stream, results, methods, [*shifts, *others])
    _accuracy_along(along, results, methods, shifts)
    figure.legend(*by_stream.get_legend_handles_labels(), loc="outside upper center", ncols=len(methods), frameon=False)
    for axes in (by_stream, along):
        axes.grid(axis="y", color="#dddddd")
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
        axes.set_ylabel("accuracy in %")
    with atomic_file(path) as temporary:
        figure.savefig(temporary, format="png", dpi=110)
    return path


def _accuracy_by_stream(
    axes: Any, results: Mapping[tuple[str, str], Tensor], methods: Sequence[str], streams: Sequence[str]
) -> None:
    for index, (method, (colour, marker)) in enumerate(zip(methods, STYLES, strict=False)):
        seen = [place for place, stream in enumerate(streams) if (method, stream) in results]
        per_seed = torch.stack([100 * results[method, streams[place]].double().mean((1, 2)) for place in seen])
        mean = per_seed.mean(1)
        reach = torch.stack([mean - per_seed.amin(1), per_seed.amax(1) - mean])
        positions = [place + 0.17 * (index - (len(methods) - 1) / 2) for place in seen]
        axes.errorbar(
            positions, mean.tolist(), reach.tolist(), fmt=marker, color=colour, label=method, capsize=3, markersize=6
        )
    axes.set_xticks(range(len(streams)), [stream.replace(" ", "\n", 1) for stream in streams])
    axes.set_title("By stream: mean over models and orders, least and greatest model", fontsize=11)


def _accuracy_along(
    axes: Any, results: Mapping[tuple[str, str], Tensor], methods: Sequence[str], shifts: Sequence[str]
) -> None:
    for method, (colour, _) in zip(methods, STYLES, strict=False):
        correct = torch.stack([results[method, stream].double().mean((0, 1)) for stream in shifts]).mean(0)  # (N,)
        images = torch.arange(1, len(correct) + 1)
        so_far = 100 * correct.cumsum(0) / images
        axes.plot(images[FIRST_SHOWN - 1 :].tolist(), so_far[FIRST_SHOWN - 1 :].tolist(), color=colour, linewidth=1.8)
    axes.set_xlabel("images seen")
    axes.set_title("Accuracy so far: mean of the five corruptions", fontsize=11)
