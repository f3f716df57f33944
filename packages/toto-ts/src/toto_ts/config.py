"""Architecture of a Toto model: one frozen dataclass with the keys of the published config.json, validated."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nips_common.artifacts import read_json, write_json

SCALERS = ("StdMeanScaler", "CausalStdMeanScaler", "CausalPatchStdMeanScaler")
OUTPUTS = ("StudentTOutput", "MixtureOfStudentTsOutput")


def _published(module: str, name: str) -> str:
    return f"<class 'model.{module}.{name}'>"


def class_name(text: object, known: tuple[str, ...], field: str) -> str:
    """The bare class name in a published string such as ``<class 'model.scaler.StdMeanScaler'>``.

    Raises:
        ValueError: the class is none of the ``known`` ones.
    """
    name = str(text).removeprefix("<class '").removesuffix("'>").rsplit(".", 1)[-1]
    if not isinstance(text, str) or name not in known:
        raise ValueError(f"{field} must name one of {', '.join(known)}, got {text!r}")
    return name


def _whole(name: str, value: object) -> None:
    if not (isinstance(value, int) and not isinstance(value, bool) and value >= 1):
        raise ValueError(f"{name} must be a whole number of at least 1, got {value!r}")


@dataclasses.dataclass(frozen=True)
class TotoConfig:
    """Constructor arguments of a model, by the names that the published ``config.json`` uses.

    The defaults are the sizes of the released model, except ``spacewise_first``, where the published code's default is
    True and its released config says False.

    Args:
        patch_size: time steps P a patch holds; one patch is one token.
        stride: steps between patches; must equal ``patch_size``.
        embed_dim: width D of the residual stream.
        num_layers: blocks L.
        num_heads: attention heads; must divide ``embed_dim`` into an even head width (xPos rotates pairs).
        mlp_hidden_dim: width M of the gated feed-forward layer.
        dropout: of attention and feed-forward, in training only.
        spacewise_every_n_layers: each group of so many blocks holds one that attends over variates; -1 means none.
        spacewise_first: whether that block is the first of its group, or the last.
        scaler_cls: published string of the scaler's class.
        output_distribution_classes: published strings; the first is used.
        output_distribution_kwargs: ``{"k_components": K}`` for the mixture, ``{}`` for the single Student-T.
        use_memory_efficient_attention: accepted for the sake of published configs; attention is always torch's own.
        stabilize_with_global: clamp the patch scaler's scales to a range around the global one.
        scale_factor_exponent: that range in powers of ten.

    Raises:
        ValueError: a value outside its range; the message names field, value and what is accepted.
    """

    patch_size: int = 64
    stride: int = 64
    embed_dim: int = 768
    num_layers: int = 12
    num_heads: int = 12
    mlp_hidden_dim: int = 3072
    dropout: float = 0.1
    spacewise_every_n_layers: int = 12
    spacewise_first: bool = True
    scaler_cls: str = _published("scaler", "CausalPatchStdMeanScaler")
    output_distribution_classes: list[str] = dataclasses.field(
        default_factory=lambda: [_published("distribution", "MixtureOfStudentTsOutput")]
    )
    output_distribution_kwargs: dict[str, Any] = dataclasses.field(default_factory=lambda: {"k_components": 24})
    use_memory_efficient_attention: bool = False
    stabilize_with_global: bool = True
    scale_factor_exponent: float = 10.0

    def __post_init__(self) -> None:
        for name in ("patch_size", "stride", "embed_dim", "num_layers", "num_heads", "mlp_hidden_dim"):
            _whole(name, getattr(self, name))
        if self.stride != self.patch_size:
            raise ValueError(
                f"stride must equal patch_size={self.patch_size}: patches do not overlap, got {self.stride}"
            )
        if self.embed_dim % self.num_heads or self.embed_dim // self.num_heads % 2:
            raise ValueError(
                f"embed_dim must be num_heads={self.num_heads} times an even head width, got {self.embed_dim}"
            )
        self._check_layers()
        for name in ("spacewise_first", "use_memory_efficient_attention", "stabilize_with_global"):
            if not isinstance(getattr(self, name), bool):
                raise ValueError(f"{name} must be True or False, got {getattr(self, name)!r}")
        for name, low, high in (("dropout", 0.0, 1.0), ("scale_factor_exponent", 0.0, math.inf)):
            value = getattr(self, name)
            number = isinstance(value, (int, float)) and not isinstance(value, bool)
            if not (number and low <= value < high):
                raise ValueError(f"{name} must be in [{low:g}, {high:g}), got {value!r}")
        self._check_outputs()

    def _check_layers(self) -> None:
        every = self.spacewise_every_n_layers
        if not isinstance(every, int) or isinstance(every, bool) or not (every == -1 or every >= 1):
            raise ValueError(f"spacewise_every_n_layers must be -1 (none) or at least 1, got {every!r}")
        if every > 0 and self.num_layers % every:
            raise ValueError(f"spacewise_every_n_layers must divide num_layers={self.num_layers}, got {every}")

    def _check_outputs(self) -> None:
        class_name(self.scaler_cls, SCALERS, "scaler_cls")
        if not isinstance(self.output_distribution_classes, list) or not self.output_distribution_classes:
            raise ValueError(
                f"output_distribution_classes must be a list of class names, got {self.output_distribution_classes!r}"
            )
        if not isinstance(self.output_distribution_kwargs, dict):
            raise ValueError(
                f"output_distribution_kwargs must be a dictionary, got {self.output_distribution_kwargs!r}"
            )
        if self.output_name == "MixtureOfStudentTsOutput":
            _whole("output_distribution_kwargs['k_components']", self.output_distribution_kwargs.get("k_components"))

    @property
    def scaler_name(self) -> str:
        """The scaler's bare class name."""
        return class_name(self.scaler_cls, SCALERS, "scaler_cls")

    @property
    def output_name(self) -> str:
        """The output distribution's bare class name."""
        return class_name(self.output_distribution_classes[0], OUTPUTS, "output_distribution_classes[0]")

    @property
    def num_components(self) -> int:
        """Components K of the mixture; 1 for the single Student-T."""
        mixture = self.output_name == "MixtureOfStudentTsOutput"
        return int(self.output_distribution_kwargs["k_components"]) if mixture else 1

    @property
    def head_dim(self) -> int:
        """Width d of one attention head."""
        return self.embed_dim // self.num_heads

    @property
    def attention_axes(self) -> tuple[str, ...]:
        """``"time"`` or ``"space"`` for each block: proportional factorised attention (paper, section 3)."""
        every = self.spacewise_every_n_layers
        if every == -1:
            return ("time",) * self.num_layers
        group = ["time"] * every
        group[0 if self.spacewise_first else -1] = "space"
        return tuple(group) * (self.num_layers // every)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> TotoConfig:
        """A config from published keys; keys that it does not know are left out.

        Raises:
            ValueError: a known key holds what :class:`TotoConfig` refuses.
        """
        names = {field.name for field in dataclasses.fields(cls)}
        given = {name: value for name, value in values.items() if name in names}
        if given.get("output_distribution_kwargs", {}) is None:
            given["output_distribution_kwargs"] = {}
        return cls(**given)

    @classmethod
    def from_json(cls, path: str | Path) -> TotoConfig:
        """Read a ``config.json``, published or ours; unknown keys are ignored.

        Raises:
            ValueError: not a JSON object, or a value that is refused; the message names the file.
            FileNotFoundError: there is no such file.
        """
        values = read_json(path)
        try:
            return cls.from_dict(values)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error

    def to_json(self, path: str | Path) -> None:
        """Write the published keys, atomically."""
        write_json(path, dataclasses.asdict(self))
