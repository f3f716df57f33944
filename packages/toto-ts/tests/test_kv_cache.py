"""The cache: exact, stored once, and of the size that its formula says."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from toto_ts import TotoForecaster
from toto_ts.context import SeriesBatch, make_context
from toto_ts.decoding import CachedDecoder
from toto_ts.kv_cache import KVCache, attend_shared


def test_attention_over_shared_and_own_tokens_equals_attention_over_their_union() -> None:
    generator = torch.Generator().manual_seed(0)
    samples, rows, heads, tokens, own, width = 3, 2, 4, 5, 2, 8
    query = torch.randn(samples, rows, heads, width, generator=generator)
    context = [torch.randn(rows, heads, tokens, width, generator=generator) for _ in range(2)]
    generated = [torch.randn(samples, rows, heads, own, width, generator=generator) for _ in range(2)]
    keys, values = (
        torch.cat([shared.expand(samples, -1, -1, -1, -1), mine], 3)
        for shared, mine in zip(context, generated, strict=True)
    )
    expected = scaled_dot_product_attention(query.unsqueeze(3), keys, values).squeeze(3)
    torch.testing.assert_close(attend_shared(query, tuple(context), tuple(generated)), expected)


@pytest.mark.parametrize("labels", [False, True])
def test_a_call_a_patch_equals_one_call_over_everything(make_model: Any, series: Tensor, labels: bool) -> None:
    model, cache = make_model(labels=labels), KVCache()
    with torch.no_grad():
        whole = model(series, prefix_length=24)
        pieces = [model(series[..., :24], kv_cache=cache, prefix_length=24)]
        pieces += [model(series[..., start : start + 8], kv_cache=cache) for start in (24, 32)]
    joined = torch.cat([piece.distribution.mean for piece in pieces], -1)
    torch.testing.assert_close(joined, whole.distribution.mean, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(torch.cat([piece.scale for piece in pieces], -1), whole.scale)
    assert cache.length == 5 + labels


def test_the_cache_grows_beyond_its_first_room(make_model: Any) -> None:
    model, cache = make_model(), KVCache()
    long = torch.randn(1, 2, 8 * 14, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        whole = model(long, prefix_length=8)
        pieces = [model(long[..., :8], kv_cache=cache, prefix_length=8)]
        pieces += [model(long[..., start : start + 8], kv_cache=cache) for start in range(8, 8 * 14, 8)]
    joined = torch.cat([piece.distribution.mean for piece in pieces], -1)
    torch.testing.assert_close(joined, whole.distribution.mean, rtol=1e-4, atol=1e-4)


def test_the_context_is_stored_once_for_all_samples(make_model: Any, series: Tensor) -> None:
    model = make_model()
    batch = SeriesBatch(series, ~series.isnan(), torch.zeros(series.shape, dtype=torch.long))
    decoder = CachedDecoder(model.model, make_context(batch, 8, 24, "mean"), None, "fixed")
    with torch.no_grad():
        decoder.start()
    time_blocks, entries, variates, patches, width, itemsize = 2, 2, 3, 5, 32, 4
    context = time_blocks * 2 * entries * variates * patches * width * itemsize
    assert decoder.cache.nbytes == context
    decoder.fork(7, 2)
    assert decoder.cache.nbytes == context + 7 * time_blocks * 2 * entries * variates * 2 * width * itemsize


def test_the_memory_of_the_samples_is_used_again(make_model: Any, series: Tensor) -> None:
    model = make_model()
    batch = SeriesBatch(series, ~series.isnan(), torch.zeros(series.shape, dtype=torch.long))
    decoder = CachedDecoder(model.model, make_context(batch, 8, 24, "mean"), None, "fixed")
    with torch.no_grad():
        decoder.start()
    decoder.fork(4, 2)
    before = [tensor.data_ptr() for layer in decoder.cache.layers.values() for tensor in layer.tensors()]
    decoder.fork(4, 2)
    assert [t.data_ptr() for layer in decoder.cache.layers.values() for t in layer.tensors()] == before


def test_the_official_centre_differs_from_the_exact_one(make_model: Any, series: Tensor) -> None:
    model = make_model()
    exact = TotoForecaster(model).forecast(series, 40, num_samples=None)
    moving = TotoForecaster(model, xpos_center="per_call").forecast(series, 40, num_samples=None)
    assert torch.equal(exact.mean[..., :8], moving.mean[..., :8])
    assert not torch.equal(exact.mean[..., 8:], moving.mean[..., 8:])


def test_a_cache_keeps_to_its_number_of_samples(make_model: Any, series: Tensor) -> None:
    model, cache = make_model(), KVCache()
    with torch.no_grad():
        model(series[..., :8], kv_cache=cache)
        model(series[..., 8:16], kv_cache=cache)
    with pytest.raises(ValueError, match="generated tokens of 1 samples, got 2"), torch.no_grad():
        cache.layer(0).attend(*[torch.zeros(12, 4, 1, 8)] * 3)


def test_an_unknown_centre_is_refused() -> None:
    with pytest.raises(ValueError, match="one of fixed, per_call, got 'middle'"):
        KVCache("middle")  # type: ignore[arg-type]
