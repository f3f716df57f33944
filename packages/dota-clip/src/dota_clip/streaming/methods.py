"""One face for the methods a stream can be run with: DOTA, the cache baseline TDA, and plain zero-shot."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import torch
from torch import Tensor

from dota_clip.adapter import DotaAdapter
from dota_clip.config import DotaConfig, TDAConfig
from dota_clip.feedback import HumanFeedback
from dota_clip.tda import TDAAdapter
from dota_clip.views import select_views
from nips_common.artifacts import write_json

MethodName = Literal["dota", "tda", "zeroshot"]


@dataclasses.dataclass(frozen=True)
class MethodConfig:
    """Which method, with which settings.

    Args:
        name: "dota", "tda" or "zeroshot".
        dota: settings of DOTA.
        tda: settings of TDA.
        view_fraction: share of an image's views that is kept where there are several.
        feedback_gamma: share of the least certain images whose label is asked for; 0 for none, DOTA only.

    Raises:
        ValueError: an unknown method, a share outside its range, or feedback with another method than DOTA.
    """

    name: MethodName = "dota"
    dota: DotaConfig = dataclasses.field(default_factory=DotaConfig)
    tda: TDAConfig = dataclasses.field(default_factory=TDAConfig)
    view_fraction: float = 0.1
    feedback_gamma: float = 0.0

    def __post_init__(self) -> None:
        if self.name not in get_args(MethodName):
            raise ValueError(f"method must be one of {', '.join(get_args(MethodName))}, got {self.name!r}")
        if not 0 < self.view_fraction <= 1:
            raise ValueError(f"view_fraction must be in (0, 1], got {self.view_fraction!r}")
        if not 0 <= self.feedback_gamma < 1:
            raise ValueError(f"feedback_gamma must be in [0, 1), got {self.feedback_gamma!r}")
        if self.feedback_gamma and self.name != "dota":
            raise ValueError(f"feedback_gamma needs method dota, got {self.name!r}")

    def settings(self) -> dict[str, Any]:
        """The settings that this method uses, flat, as JSON values."""
        chosen: Any = {"dota": self.dota, "tda": self.tda}.get(self.name)
        used = json.loads(json.dumps(dataclasses.asdict(chosen))) if chosen is not None else {}
        return {"method": self.name, **used, "view_fraction": self.view_fraction, "feedback_gamma": self.feedback_gamma}

    def check_views(self, views: int) -> None:
        """ValueError if an image with this many views would keep none."""
        if views > 1 and int(self.view_fraction * views + 1e-9) < 1:
            raise ValueError(
                f"view_fraction={self.view_fraction:g} of {views} views keeps none: use at least "
                f"{math.ceil(1 / self.view_fraction)} views, a larger fraction, or 1 view"
            )


class Decision(NamedTuple):
    """The outcome for one image: logits (K,) each, lambda where the method has one, and whether a human was asked."""

    logits: Tensor
    zero_shot_logits: Tensor
    fusion_weight: Tensor | None
    asked: bool


class StreamMethod:
    """A method with its state on one stream.

    Args:
        config: which method.
        class_weights: (D, K) unit-norm.
        logit_scale: multiplies the cosines.
        adapter: a state to go on with, in place of a new one.
        confidences: of the images that a feedback run has seen.
    """

    def __init__(
        self,
        config: MethodConfig,
        class_weights: Tensor,
        logit_scale: float,
        adapter: DotaAdapter | TDAAdapter | None = None,
        confidences: tuple[float, ...] = (),
    ) -> None:
        self.config = config
        # zero-shot keeps no state; the frozen DOTA adapter holds its classifier
        fresh: dict[str, Callable[[], DotaAdapter | TDAAdapter]] = {
            "dota": lambda: DotaAdapter(class_weights, config.dota, logit_scale),
            "tda": lambda: TDAAdapter(class_weights, config.tda, logit_scale),
            "zeroshot": lambda: DotaAdapter(class_weights, DotaConfig(covariance="fixed"), logit_scale),
        }
        self.adapter: DotaAdapter | TDAAdapter = adapter if adapter is not None else fresh[config.name]()
        self.feedback = HumanFeedback(config.feedback_gamma, confidences) if config.feedback_gamma else None

    @torch.no_grad()
    def step(self, views: Tensor, label: int | None = None) -> Decision:
        """Decides one image and, where the method does so, learns from it.

        Args:
            views: (V, D) unit-norm views, selected here if there are several.
            label: the true class, looked at only when human feedback asks for it.
        """
        if len(views) > 1:
            adapter = self.adapter
            selection = select_views(views, adapter.class_weights, self.config.view_fraction, adapter.logit_scale)
            # the caches of TDA hold one feature an image
            views = selection.mean_feature.unsqueeze(0) if self.config.name == "tda" else selection.features
        if isinstance(self.adapter, TDAAdapter):
            tda = self.adapter.step(views)
            return Decision(tda.logits, tda.zero_shot_logits, None, False)
        if self.config.name == "zeroshot":
            logits = self.adapter.zero_shot_logits(views).mean(0)
            return Decision(logits, logits, None, False)
        if self.feedback is not None and label is not None:
            output, asked = self.feedback.step(self.adapter, views, ask=lambda: label)
        else:
            output, asked = self.adapter.step(views), False
        return Decision(output.logits, output.zero_shot_logits, output.fusion_weight, asked)

    def save(self, folder: Path) -> None:
        """Writes the state into a folder: the adapter's own files and, with feedback, the confidences seen."""
        self.adapter.save_pretrained(folder)
        if self.feedback is not None:
            write_json(folder / "feedback.json", {"confidences": self.feedback.confidences})
