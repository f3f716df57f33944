"""Known-future variates: the one shift, and what the forecaster does with them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from toto_ts import TotoForecaster, shift_exogenous
from toto_ts.context import SeriesBatch, make_context


def test_a_shifted_position_holds_the_value_of_the_patch_it_predicts() -> None:
    past, future = torch.arange(12.0).unsqueeze(0), torch.arange(12.0, 16.0).unsqueeze(0)
    shifted = shift_exogenous(past, future, context_length=12, patch_size=4)
    assert shifted[0].tolist() == [*range(4, 16), 0, 0, 0, 0]


def test_a_context_longer_than_what_is_known_is_refused() -> None:
    with pytest.raises(ValueError, match="cover context_length=20 steps, got 16"):
        shift_exogenous(torch.zeros(1, 12), torch.zeros(1, 4), context_length=20, patch_size=4)


@pytest.mark.parametrize("horizon", [16, 8])
@pytest.mark.parametrize("labels", [False, True])
def test_shifting_inside_equals_shifting_before(make_model: Any, series: Tensor, horizon: int, labels: bool) -> None:
    forecaster = TotoForecaster(make_model(labels=labels))
    future = 500 + 100 * torch.randn(2, 1, horizon, generator=torch.Generator().manual_seed(5))
    inside = forecaster.forecast(series, horizon, num_samples=None, future_exogenous=future, shift_exogenous=True)
    both = torch.cat([series[:, 2:], future, torch.zeros(2, 1, 8)], -1)[..., 8:]
    before = forecaster.forecast(
        torch.cat([series[:, :2], both[..., :40]], 1), horizon, num_samples=None, future_exogenous=both[..., 40:]
    )
    torch.testing.assert_close(inside.mean[:, :2], before.mean[:, :2])
    assert torch.equal(inside.mean[:, 2:], future)


@pytest.mark.parametrize("use_kv_cache", [True, False])
def test_the_known_future_is_what_the_network_is_fed(make_model: Any, series: Tensor, use_kv_cache: bool) -> None:
    forecaster, known = TotoForecaster(make_model(labels=True)), torch.full((2, 1, 24), 450.0)
    options: dict[str, Any] = {"num_samples": 3, "seed": 0, "use_kv_cache": use_kv_cache}
    low = forecaster.forecast(series, 24, future_exogenous=known, **options)
    high = forecaster.forecast(series, 24, future_exogenous=known + 300, **options)
    assert torch.equal(low.samples[:, 2:], known.unsqueeze(-1).expand(-1, -1, -1, 3))
    # without a shift the first patch cannot know the future, later ones have been fed it
    assert torch.equal(low.samples[:, :2, :8], high.samples[:, :2, :8])
    assert not torch.equal(low.samples[:, :2, 8:], high.samples[:, :2, 8:])


def test_with_a_shift_the_first_patch_knows_its_future(make_model: Any, series: Tensor) -> None:
    forecaster, known = TotoForecaster(make_model(labels=True)), torch.full((2, 1, 8), 450.0)
    options: dict[str, Any] = {"num_samples": None, "shift_exogenous": True}
    low = forecaster.forecast(series, 8, future_exogenous=known, **options).mean
    high = forecaster.forecast(series, 8, future_exogenous=known + 300, **options).mean
    assert not torch.equal(low[:, :2], high[:, :2])


def test_the_unknown_last_patch_is_masked_after_a_shift() -> None:
    series = torch.arange(48.0).view(1, 2, 24)
    future = torch.arange(100.0, 112.0).view(1, 1, 12)
    batch = SeriesBatch(series, ~series.isnan(), torch.zeros(1, 2, 24, dtype=torch.long), future)
    context = make_context(batch, 8, 12, "zero", shift=True)
    assert context.series[0, 1].tolist() == [*range(32, 48), *range(100, 108)]
    assert bool(context.mask.all())
    assert context.future[0, 0].tolist() == [108, 109, 110, 111, *[0] * 12]
    assert context.future_mask[0, 0].tolist() == [True] * 4 + [False] * 12


def test_a_horizon_shorter_than_a_patch_leaves_the_end_of_the_context_unknown() -> None:
    series = torch.arange(48.0).view(1, 2, 24)
    batch = SeriesBatch(series, ~series.isnan(), torch.zeros(1, 2, 24, dtype=torch.long), torch.full((1, 1, 3), 9.0))
    context = make_context(batch, 8, 3, "mean", shift=True)
    assert context.mask[0, 1].tolist() == [True] * 19 + [False] * 5
    assert context.centred[0, 1].tolist() == [False] * 19 + [True] * 5
    assert bool(context.mask[0, 0].all())
