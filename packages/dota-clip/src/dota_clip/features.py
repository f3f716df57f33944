"""Feature files: what `dota-clip extract` writes and `dota-clip run` reads, one safetensors file.

Tensors: ``features`` (N, D) or (N, V, D), ``class_weights`` (D, K), optionally ``labels`` (N,) int64. Metadata
(optional, JSON in strings): ``logit_scale``, ``classnames``, ``identifiers``.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn.functional import normalize

from dota_clip.inputs import check_scale, unit_norm
from nips_common.artifacts import atomic_file, check_keys

log = logging.getLogger(__name__)

Unnormalised = Literal["warn", "error"]


@dataclasses.dataclass(frozen=True)
class FeatureSet:
    """Image features with the classifier they belong to.

    Attributes:
        features: (N, V, D) unit-norm, V = 1 without augmented views.
        class_weights: (D, K) unit-norm.
        labels: (N,) int64, or None.
        logit_scale: multiplies the cosines; None if the file does not say.
        classnames: K names, or None.
        identifiers: N names of the images, or None.
    """

    features: Tensor
    class_weights: Tensor
    labels: Tensor | None = None
    logit_scale: float | None = None
    classnames: tuple[str, ...] | None = None
    identifiers: tuple[str, ...] | None = None

    def __len__(self) -> int:
        return len(self.features)

    @property
    def names(self) -> tuple[str, ...]:
        """The class names, or the class numbers where no names are known."""
        return self.classnames or tuple(str(k) for k in range(self.class_weights.shape[1]))


def check_feature_set(found: FeatureSet, where: str, unnormalised: Unnormalised = "warn") -> FeatureSet:
    """A feature set whose parts fit together, with features (N, V, D) of unit norm.

    Args:
        found: features may be (N, D) or (N, V, D), of any floating type.
        where: names the set in errors.
        unnormalised: what to do with features or class weights that have no unit norm: normalise them with a warning,
            or refuse them.

    Raises:
        ValueError: shapes that do not fit (both widths are named), values that are not finite, labels outside the
            classes (position and value are named), or, by choice, vectors without unit norm.
    """
    features, weights = found.features, found.class_weights
    if features.ndim not in (2, 3) or 0 in features.shape or not features.is_floating_point():
        raise ValueError(
            f"{where}: features must be (N, D) or (N, V, D) numbers, got {tuple(features.shape)} {features.dtype}"
        )
    if weights.ndim != 2 or 0 in weights.shape or not weights.is_floating_point():
        raise ValueError(f"{where}: class_weights must be (D, K) numbers, got {tuple(weights.shape)} {weights.dtype}")
    if features.shape[-1] != weights.shape[0]:
        raise ValueError(
            f"{where}: features have width {features.shape[-1]} but class_weights have width {weights.shape[0]} "
            f"(shapes {tuple(features.shape)} and {tuple(weights.shape)})"
        )
    for name, tensor in (("features", features), ("class_weights", weights)):
        if not bool(tensor.isfinite().all()):
            raise ValueError(f"{where}: {name} must be finite, found NaN or infinity")
    _check_labels(found.labels, len(features), weights.shape[1], where)
    for name, values, count in (
        ("classnames", found.classnames, weights.shape[1]),
        ("identifiers", found.identifiers, len(features)),
    ):
        if values is not None and len(values) != count:
            raise ValueError(f"{where}: {len(values)} {name} for {count} rows")
    return dataclasses.replace(
        found,
        features=_unit(
            features if features.ndim == 3 else features.unsqueeze(1), -1, f"{where}: features", unnormalised
        ),
        class_weights=_unit(weights, 0, f"{where}: class_weights", unnormalised),
    )


def _check_labels(labels: Tensor | None, count: int, classes: int, where: str) -> None:
    if labels is None:
        return
    if labels.shape != (count,) or labels.is_floating_point() or labels.dtype == torch.bool:
        raise ValueError(f"{where}: labels must be {count} whole numbers, got {tuple(labels.shape)} {labels.dtype}")
    outside = ((labels < 0) | (labels >= classes)).nonzero()
    if len(outside):
        first = int(outside[0])
        raise ValueError(
            f"{where}: label {int(labels[first])} of image {first} is outside 0..{classes - 1} ({len(outside)} such)"
        )


def _unit(vectors: Tensor, dim: int, what: str, unnormalised: Unnormalised) -> Tensor:
    wide = vectors if vectors.dtype == torch.float64 else vectors.float()
    norms = wide.norm(dim=dim)
    if not bool((norms > 0).all()):
        raise ValueError(f"{what} hold a zero vector, which has no direction")
    if unit_norm(wide, dim):
        return vectors
    if unnormalised == "error":
        raise ValueError(f"{what} are not of unit norm (norms from {float(norms.min()):g} to {float(norms.max()):g})")
    log.warning("%s are not of unit norm (from %g to %g): normalised", what, float(norms.min()), float(norms.max()))
    return normalize(wide, dim=dim)


def read_features(path: str | Path, unnormalised: Unnormalised = "warn") -> FeatureSet:
    """Reads a feature file.

    Raises:
        FileNotFoundError: no such file.
        ValueError: truncated, unknown or missing tensors, or parts that do not fit, see `check_feature_set`.
    """
    from safetensors import SafetensorError, safe_open

    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such feature file (`dota-clip extract` makes one)")
    try:
        with safe_open(path, "pt") as file:
            metadata: dict[str, str] = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a dict
    except SafetensorError as error:
        raise ValueError(f"{path}: truncated or not a safetensors file ({error})") from error
    check_keys(tensors, ("labels",), ("features", "class_weights"), str(path))
    scale = _from_json(metadata, "logit_scale", path)
    found = FeatureSet(
        **tensors,
        logit_scale=None if scale is None else check_scale(scale),
        classnames=_names(metadata, "classnames", path),
        identifiers=_names(metadata, "identifiers", path),
    )
    return check_feature_set(found, str(path), unnormalised)


def _from_json(metadata: dict[str, str], key: str, path: Path) -> Any:
    try:
        return json.loads(metadata.get(key, "null"))
    except ValueError as error:
        raise ValueError(f"{path}: metadata {key} is not JSON: {metadata[key][:80]!r}") from error


def _names(metadata: dict[str, str], key: str, path: Path) -> tuple[str, ...] | None:
    value = _from_json(metadata, key, path)
    if value is not None and not (isinstance(value, list) and all(isinstance(name, str) for name in value)):
        raise ValueError(f"{path}: metadata {key} must be a JSON list of strings")
    return None if value is None else tuple(value)


def write_features(path: str | Path, features: FeatureSet) -> None:
    """Writes a feature file, atomically; what `read_features` gives back."""
    from safetensors.torch import save_file

    check_feature_set(features, str(path), "error")
    tensors = {"features": features.features, "class_weights": features.class_weights}
    if features.labels is not None:
        tensors["labels"] = features.labels
    metadata: dict[str, Sequence[str] | float | None] = {
        "logit_scale": features.logit_scale,
        "classnames": features.classnames,
        "identifiers": features.identifiers,
    }
    with atomic_file(path) as temporary:
        ordinary = temporary.with_name("mode")  # safetensors makes files that only their owner may read
        ordinary.touch()
        save_file(
            {name: tensor.contiguous().cpu() for name, tensor in tensors.items()},
            temporary,
            metadata={key: json.dumps(value) for key, value in metadata.items() if value is not None},
        )
        shutil.copymode(ordinary, temporary)
