"""The transformer of Toto: pre-norm blocks whose attention runs over time or over variates, in a fixed order."""

from __future__ import annotations

from typing import NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from toto_ts.attention import SpaceAttention, TimeAttention, group_mask
from toto_ts.config import TotoConfig
from toto_ts.kv_cache import KVCache
from toto_ts.rotary import XPos

NORM_EPSILON = 1e-8


class RMSNorm(nn.Module):
    """x / sqrt(mean(x^2) + 1e-8) * scale, with the mean in float32 at least.

    Args:
        width: D.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        """Normalise the last axis."""
        wide = x if x.dtype == torch.float64 else x.float()
        rate = (wide.square().mean(-1, keepdim=True) + NORM_EPSILON).rsqrt()
        return (wide * rate).to(x.dtype) * self.scale


class SwiGLU(nn.Module):
    """silu(a) * b, where a is the first half of the features and b the last."""

    def forward(self, x: Tensor) -> Tensor:
        """`(..., 2 M)` -> `(..., M)`."""
        gate, value = x.chunk(2, -1)
        return functional.silu(gate) * value


class Call(NamedTuple):
    """What the blocks of one call share.

    Attributes:
        xpos: tables of the positions of the call's tokens.
        group_mask: `(batch, tokens, 1, variates, variates)`, or None for one group.
        cache: of the keys and values, or None.
    """

    xpos: XPos
    group_mask: Tensor | None
    cache: KVCache | None


class Block(nn.Module):
    """h = x + Attention(norm1(x)); y = h + MLP(norm2(h)); what the attention runs over is the subclass's.

    Args:
        config: the model's.
        attention: the block's.
    """

    def __init__(self, config: TotoConfig, attention: nn.Module) -> None:
        super().__init__()
        width, hidden = config.embed_dim, config.mlp_hidden_dim
        self.norm1 = RMSNorm(width)
        self.attention = attention
        self.norm2 = RMSNorm(width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 2 * hidden), SwiGLU(), nn.Linear(hidden, width), nn.Dropout(config.dropout)
        )

    def _finish(self, x: Tensor, attended: Tensor) -> Tensor:
        """The two residual sums and the feed-forward layer."""
        h = x + attended
        return h + cast(Tensor, self.mlp(self.norm2(h)))


class TimeBlock(Block):
    """A block that attends over the patches of each variate.

    Args:
        config: the model's.
        index: its place among the time blocks, which is its place in the cache.
    """

    def __init__(self, config: TotoConfig, index: int) -> None:
        super().__init__(config, TimeAttention(config.embed_dim, config.num_heads, config.dropout))
        self.index = index

    def forward(self, x: Tensor, call: Call, keep_last: bool = False) -> Tensor:
        """`(batch, variates, tokens, D)` -> the same, or only the last token."""
        cache = None if call.cache is None else call.cache.layer(self.index)
        attended = self.attention(self.norm1(x), call.xpos, cache, keep_last=keep_last)
        return self._finish(x[:, :, -1:] if keep_last else x, attended)


class SpaceBlock(Block):
    """A block that attends over the variates of each patch.

    Args:
        config: the model's.
    """

    def __init__(self, config: TotoConfig) -> None:
        super().__init__(config, SpaceAttention(config.embed_dim, config.num_heads, config.dropout))

    def forward(self, x: Tensor, call: Call, keep_last: bool = False) -> Tensor:
        """`(batch, variates, tokens, D)` -> the same, or only the last token."""
        mask = call.group_mask
        if keep_last:
            x, mask = x[:, :, -1:], None if mask is None else mask[:, -1:]
        return self._finish(x, self.attention(self.norm1(x), mask))


class Transformer(nn.Module):
    """All blocks in their order; no norm follows the last one.

    Args:
        config: the model's.
    """

    def __init__(self, config: TotoConfig) -> None:
        super().__init__()
        self.head_dim = config.head_dim
        axes = config.attention_axes
        self.layers = nn.ModuleList(
            TimeBlock(config, axes[:i].count("time")) if axis == "time" else SpaceBlock(config)
            for i, axis in enumerate(axes)
        )
        # From the last time block on, a token reads other tokens through keys and values only.
        self.first_local = max((i for i, axis in enumerate(axes) if axis == "time"), default=0)

    def forward(self, x: Tensor, ids: Tensor, cache: KVCache | None = None, *, keep_last: bool = False) -> Tensor:
        """Run the blocks.

        Args:
            x: `(batch, variates, tokens, D)` embedded patches; with a cache that holds a context, one new token.
            ids: `(batch, variates, tokens)` group of each patch.
            cache: filled by the first call, read and extended by later ones.
            keep_last: compute only what the last token needs, where no later block reads the others.

        Returns:
            `(batch, variates, tokens or 1, D)`.
        """
        tokens, offset, center = x.shape[2], 0, None
        if cache is not None:
            offset, center = cache.length, cache.centre_of_call(x.shape[2])
        dtype = torch.float64 if x.dtype == torch.float64 else torch.float32
        positions = torch.arange(offset, offset + tokens, device=x.device, dtype=dtype)
        call = Call(XPos.at(positions, self.head_dim, center), group_mask(ids), cache)
        for i, layer in enumerate(self.layers):
            x = layer(x, call, keep_last=keep_last and i >= self.first_local)
        if cache is not None:
            cache.length += tokens
        return x
