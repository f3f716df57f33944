"""Keys and values of the time blocks: those of the context once for all samples, those of generated patches per sample.

The context is the same for every sample, so its keys and values are computed and stored once, as `(batch * variates,
heads, tokens, head_dim)` a block; only generated patches are stored per sample. Attention over both parts is exact.
Keys are stored rotated and scaled, so that the centre of the xPos scale must stay the same for cached decoding to equal
decoding without a cache ("fixed"); the official code moves it in each call ("per_call", for its published numbers).
"""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor

from toto_ts.scalers import ScalerState

XPosCenter = Literal["fixed", "per_call"]


def attend_shared(query: Tensor, context: tuple[Tensor, Tensor], own: tuple[Tensor, Tensor]) -> Tensor:
    """Attention of one new token per sample over shared context tokens and the sample's own.

    Args:
        query: `(samples, rows, heads, head_dim)`.
        context: keys and values `(rows, heads, tokens, head_dim)`.
        own: keys and values `(samples, rows, heads, generated, head_dim)`.

    Returns:
        `(samples, rows, heads, head_dim)`.
    """
    scaled = query * query.shape[-1] ** -0.5
    tokens = context[0].shape[-2]
    over_context = torch.einsum("srhd,rhnd->srhn", scaled, context[0])
    over_own = torch.einsum("srhd,srhnd->srhn", scaled, own[0])
    weights = torch.cat([over_context, over_own], -1).float().softmax(-1).to(query.dtype)
    attended = torch.einsum("srhn,rhnd->srhd", weights[..., :tokens], context[1])
    return attended + torch.einsum("srhn,srhnd->srhd", weights[..., tokens:], own[1])


class LayerCache:
    """The cache of one time block."""

    def __init__(self) -> None:
        self.context: tuple[Tensor, Tensor] | None = None
        self.generated: tuple[Tensor, Tensor] | None = None
        self.length = 0

    def store_context(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Keep the first call's keys and values, `(rows, heads, tokens, head_dim)`, and return what is kept."""
        # The value is a view, which would keep the whole projection alive; the rotated key is a tensor of its own.
        self.context = (key.contiguous(), value.clone(memory_format=torch.contiguous_format))
        return self.context

    def attend(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Append one token per sample, `(samples * rows, heads, 1, head_dim)`, and attend over all tokens so far."""
        if self.context is None:
            raise ValueError("the first call with a cache must be the whole context")
        rows, heads, _, head_dim = self.context[0].shape
        samples = len(query) // rows
        keys, values = self._room(samples)
        keys[:, :, :, self.length] = key.reshape(samples, rows, heads, head_dim)
        values[:, :, :, self.length] = value.reshape(samples, rows, heads, head_dim)
        self.length += 1
        own = keys[:, :, :, : self.length], values[:, :, :, : self.length]
        return attend_shared(query.reshape(samples, rows, heads, head_dim), self.context, own).reshape(query.shape)

    def reserve(self, samples: int, tokens: int) -> None:
        """Make room for so many generated tokens of so many samples, and forget those that are there."""
        assert self.context is not None
        rows, heads, _, head_dim = self.context[0].shape
        shape = (samples, rows, heads, tokens, head_dim)
        if self.generated is None or self.generated[0].shape != shape:
            self.generated = None  # free the old room first
            self.generated = self.context[0].new_empty(shape), self.context[0].new_empty(shape)
        self.length = 0

    def _room(self, samples: int) -> tuple[Tensor, Tensor]:
        if self.generated is None or (self.length == 0 and len(self.generated[0]) != samples):
            self.reserve(samples, 8)
        assert self.generated is not None
        keys, values = self.generated
        if len(keys) != samples:
            raise ValueError(f"this cache holds generated tokens of {len(keys)} samples, got {samples}")
        if self.length == keys.shape[3]:
            more = [*keys.shape[:3], self.length, keys.shape[4]]
            self.generated = torch.cat([keys, keys.new_empty(more)], 3), torch.cat([values, values.new_empty(more)], 3)
        return self.generated

    def tensors(self) -> list[Tensor]:
        """All that is stored."""
        return [*(self.context or ()), *(self.generated or ())]


class KVCache:
    """What cached decoding remembers: keys and values of each time block, and the scaler's running statistics.

    Args:
        xpos_center: "fixed" (exact) or "per_call" (as the official code).

    Raises:
        ValueError: another centre.
    """

    def __init__(self, xpos_center: XPosCenter = "fixed") -> None:
        check_center(xpos_center)
        self.xpos_center = xpos_center
        self.layers: dict[int, LayerCache] = {}
        self.length = 0
        self.center: float | None = None
        self.scaler_state: ScalerState | None = None

    def layer(self, index: int) -> LayerCache:
        """The cache of the time block with this index."""
        return self.layers.setdefault(index, LayerCache())

    def centre_of_call(self, tokens: int) -> float | None:
        """The xPos centre of a call of so many new tokens; the first call fixes it unless it is per call."""
        if self.xpos_center == "per_call":
            return None
        if self.center is None:
            self.center = float((tokens - 1) // 2)
        return self.center

    def fork(self, samples: int, tokens: int) -> None:
        """Go on from the context with so many samples, each generating at most so many patches, in reused memory."""
        for layer in self.layers.values():
            self.length = layer.context[0].shape[-2] if layer.context else 0
            layer.reserve(samples, tokens)

    @property
    def nbytes(self) -> int:
        """Bytes of all keys and values."""
        return sum(t.numel() * t.element_size() for layer in self.layers.values() for t in layer.tensors())


def check_center(xpos_center: str) -> None:
    """ValueError unless it is one of the two."""
    if xpos_center not in get_args(XPosCenter):
        raise ValueError(f"xpos_center must be one of {', '.join(get_args(XPosCenter))}, got {xpos_center!r}")
