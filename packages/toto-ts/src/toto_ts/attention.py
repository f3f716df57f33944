"""Attention over time (causal, xPos) and over variates (both ways, within groups) with the published weight layout."""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from toto_ts.kv_cache import LayerCache
from toto_ts.rotary import XPos


class Attention(nn.Module):
    """The projections that both kinds of attention share.

    ``wQKV`` gives 3 D features in the order (part, channel, head), so that the head index runs fastest; ``wO`` takes
    (head, channel), the ordinary order.

    Args:
        embed_dim: D.
        num_heads: heads; divides D.
        dropout: of the attention weights, in training.
    """

    def __init__(self, embed_dim: int, num_heads: int, dropout: float) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.dropout = dropout
        self.wQKV = nn.Linear(embed_dim, 3 * embed_dim)
        self.wO = nn.Linear(embed_dim, embed_dim)

    def _heads(self, features: Tensor) -> Tensor:
        """`(..., parts * D)` -> `(parts, ..., heads, head_dim)`."""
        width = self.wO.in_features
        parts: Tensor = features.unflatten(-1, (features.shape[-1] // width, width // self.num_heads, self.num_heads))
        return parts.movedim(-3, 0).transpose(-1, -2)

    def _attend(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, is_causal: bool) -> Tensor:
        attended: Tensor = functional.scaled_dot_product_attention(
            query, key.to(query.dtype), value.to(query.dtype), mask, self.dropout if self.training else 0.0, is_causal
        )
        return attended


class TimeAttention(Attention):
    """Causal attention of each variate over its own patches."""

    def forward(self, x: Tensor, xpos: XPos, cache: LayerCache | None, *, keep_last: bool) -> Tensor:
        """Attend.

        Args:
            x: `(batch, variates, tokens, D)`.
            xpos: tables of the tokens' positions.
            cache: keys and values of this block; if it holds a context, x is one new token per sample.
            keep_last: return the last token only; keys and values of all tokens still enter the cache.

        Returns:
            `(batch, variates, tokens or 1, D)`.
        """
        batch, variates, _, width = x.shape
        # (parts, batch, variates, tokens, heads, head_dim) -> (parts, rows, heads, tokens, head_dim)
        if keep_last and type(self.wQKV) is nn.Linear:  # a wrapped projection must be called as it is
            weight, bias = self.wQKV.weight, self.wQKV.bias
            query = self._rows(functional.linear(x[:, :, -1:], weight[:width], bias[:width]))[0]
            key, value = self._rows(functional.linear(x, weight[width:], bias[width:]))
        else:
            query, key, value = self._rows(self.wQKV(x))
            query = query[:, :, -1:] if keep_last else query
        query = (xpos.last() if keep_last else xpos).query(query)
        key = xpos.key(key)
        if cache is not None and cache.context is not None:
            attended = cache.attend(query, key.to(query.dtype), value.to(query.dtype))
        else:
            if cache is not None:
                key, value = cache.store_context(key.to(query.dtype), value.to(query.dtype))
            attended = self._attend(query, key, value, None, is_causal=not keep_last)
        return cast(Tensor, self.wO(attended.transpose(1, 2).reshape(batch, variates, -1, width)))

    def _rows(self, features: Tensor) -> Tensor:
        # contiguous, as torch's fused attention wants the channels side by side
        return self._heads(features).flatten(1, 2).transpose(2, 3).contiguous()


class SpaceAttention(Attention):
    """Attention over the variates of one patch, both ways, without positions."""

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """Attend.

        Args:
            x: `(batch, variates, tokens, D)`.
            mask: `(batch, tokens, 1, variates, variates)`, True where two variates are of one group; None for one
                group.

        Returns:
            `(batch, variates, tokens, D)`.
        """
        # (parts, batch, variates, tokens, heads, head_dim) -> (parts, batch, tokens, heads, variates, head_dim)
        query, key, value = self._heads(self.wQKV(x)).permute(0, 1, 3, 4, 2, 5).contiguous()
        attended = self._attend(query, key, value, mask, is_causal=False)
        return cast(Tensor, self.wO(attended.permute(0, 3, 1, 2, 4).flatten(-2)))


def group_mask(ids: Tensor) -> Tensor | None:
    """Which variates of a patch may see each other.

    Args:
        ids: `(batch, variates, tokens)` group of each patch.

    Returns:
        `(batch, tokens, 1, variates, variates)` bool, or None if all are of one group, which is faster.
    """
    if bool((ids == ids[:, :1]).all()):
        return None
    by_token = ids.transpose(1, 2)
    return torch.eq(by_token.unsqueeze(-1), by_token.unsqueeze(-2)).unsqueeze(2)
