"""Hyperparameters of the graph network of GFM-RAG (arXiv 2502.01113), validated on construction."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal, get_args

Message = Literal["distmult", "transe", "rotate"]
Aggregate = Literal["sum", "mean", "max", "pna"]
Activation = Literal["relu", "gelu", "silu", "elu", "leaky_relu", "tanh", "sigmoid"]


def _require(holds: bool, name: str, value: object, accepted: str) -> None:
    if not holds:
        raise ValueError(f"{name} must be {accepted}, got {value!r}")


def _count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


@dataclasses.dataclass(frozen=True)
class GFMConfig:
    """Hyperparameters of the network; the defaults are those of the released weights (8,144,897 parameters).

    Args:
        input_dim: size d of question and relation vectors and of H^0.
        hidden_dims: output size of each layer. All but the last must be ``input_dim``, as every layer multiplies its
            input with relation vectors of that size.
        text_dim: size of the sentence embeddings of relations and questions (768 for all-mpnet-base-v2).
        message: "distmult" multiplies a neighbour's state with the relation vector (the paper), "transe" adds it,
            "rotate" multiplies as complex numbers, the halves being real and imaginary part (needs an even d).
        aggregate: how a node joins its messages: "sum" (the paper), "mean", "max" or "pna".
        short_cut: add a layer's input to its output where their sizes agree.
        layer_norm: normalise before the activation.
        activation: of the layers; the head always uses ReLU.
        concat_hidden: the head reads the states of all layers, not only of the last.
        num_mlp_layer: linear layers of the head.

    Raises:
        ValueError: a value outside its range, or an unknown option; the message names field, value and range.
    """

    input_dim: int = 512
    hidden_dims: tuple[int, ...] = (512,) * 6
    text_dim: int = 768
    message: Message = "distmult"
    aggregate: Aggregate = "sum"
    short_cut: bool = True
    layer_norm: bool = True
    activation: Activation = "relu"
    concat_hidden: bool = False
    num_mlp_layer: int = 2

    def __post_init__(self) -> None:
        for name in ("input_dim", "text_dim", "num_mlp_layer"):
            _require(_count(getattr(self, name)), name, getattr(self, name), "a whole number of at least 1")
        dims: Any = self.hidden_dims
        sizes = isinstance(dims, (tuple, list)) and len(dims) > 0 and all(map(_count, dims))
        _require(sizes, "hidden_dims", dims, "a non-empty list of whole numbers of at least 1")
        object.__setattr__(self, "hidden_dims", tuple(dims))  # JSON gives lists back
        fits = all(size == self.input_dim for size in dims[:-1])
        _require(fits, "hidden_dims", dims, f"input_dim={self.input_dim} in every layer before the last")
        for name, options in (("message", Message), ("aggregate", Aggregate), ("activation", Activation)):
            value = getattr(self, name)
            _require(value in get_args(options), name, value, "one of " + ", ".join(get_args(options)))
        for name in ("short_cut", "layer_norm", "concat_hidden"):
            _require(isinstance(getattr(self, name), bool), name, getattr(self, name), "True or False")
        even = self.message != "rotate" or self.input_dim % 2 == 0
        _require(even, "input_dim", self.input_dim, "even for message='rotate', which reads halves as complex numbers")

    @property
    def feature_dim(self) -> int:
        """Size of what the head reads: the last state, or all of them, and the question vector."""
        states = sum(self.hidden_dims) if self.concat_hidden else self.hidden_dims[-1]
        return states + self.input_dim
