"""What a text encoder is: strings in, one vector each out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor


class Encoder(Protocol):
    """Any object with `dim` and `encode(list of str)` -> (n, dim) tensor or array."""

    @property
    def dim(self) -> int:
        """Size of the vectors."""
        ...

    def encode(self, texts: Sequence[str]) -> Any:
        """(n, dim) vectors of n texts."""
        ...


def encode(encoder: Encoder, texts: Sequence[str]) -> Tensor:
    """(n, dim) float32 on the CPU.

    Raises:
        ValueError: the encoder gives another number or size of vectors than it says, no numbers, or NaN or infinity.
    """
    if not texts:
        return torch.empty(0, encoder.dim)
    found = encoder.encode(list(texts))
    try:
        # an array is copied: the encoder may use it again, or forbid to write to it
        vectors = (found if isinstance(found, Tensor) else torch.from_numpy(np.array(found))).detach().float().cpu()
    except (TypeError, ValueError, RuntimeError) as error:
        raise ValueError(
            f"the encoder must give a tensor or an array of ({len(texts)}, dim={encoder.dim}) numbers for "
            f"{len(texts)} texts, got {type(found).__name__}"
        ) from error
    if tuple(vectors.shape) != (len(texts), encoder.dim):
        raise ValueError(f"the encoder gave {tuple(vectors.shape)} for {len(texts)} texts and dim={encoder.dim}")
    finite = vectors.isfinite().all(1)
    if not bool(finite.all()):
        text = texts[int(finite.logical_not().nonzero()[0])]
        raise ValueError(f"the encoder gave NaN or infinity for the text {text[:60]!r}")
    return vectors
