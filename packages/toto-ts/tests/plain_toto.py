"""Sampling without a shared prefill: the context is repeated for every sample, and every position is sampled."""

from __future__ import annotations

import torch
from torch import Tensor

from toto_ts import Toto
from toto_ts.kv_cache import KVCache


def plain_samples(model: Toto, series: Tensor, horizon: int, num_samples: int, batch: int = 32) -> Tensor:
    """Samples `(variates, horizon, samples)` of one series `(variates, time)`, time a multiple of P.

    A cache spares the context in later steps, but each sample has its own; the scaler sees everything in each step; the
    first step unembeds and samples all positions and keeps the last patch.
    """
    backbone, patch, time = model.model, model.config.patch_size, series.shape[-1]
    results = []
    for _ in range(0, num_samples, batch):
        rows, cache = series.expand(batch, -1, -1), KVCache()
        ids = torch.zeros(rows.shape, dtype=torch.long)
        for _ in range(-(-horizon // patch)):
            scaled, loc, scale = backbone.scaler(rows, prefix_length=time)
            new = slice(cache.length * patch, None)  # all patches at first, then the newest
            hidden = backbone.encode(scaled[..., new], backbone.patch_embed.patch_ids(ids[..., new]), cache)
            features = backbone.unembed(hidden).unflatten(-1, (patch, -1)).flatten(2, 3)
            values = backbone.output_distribution(features).sample() * scale[..., new] + loc[..., new]
            rows = torch.cat([rows, values[..., -patch:]], -1)
            ids = torch.cat([ids, ids[..., -patch:]], -1)
        results.append(rows[..., time : time + horizon])
    return torch.cat(results).permute(1, 2, 0)
