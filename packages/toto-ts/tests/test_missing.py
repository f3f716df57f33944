"""What the network sees at missing points."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from toto_ts import TotoForecaster
from toto_ts.missing import fill_missing

NAN = torch.nan


def test_the_three_fills() -> None:
    series = torch.tensor([NAN, 4.0, NAN, NAN, 7.0, NAN])
    mask = ~series.isnan()
    zero, last, mean = (fill_missing(series, mask, fill) for fill in ("zero", "last", "mean"))
    assert zero.series.tolist() == [0, 4, 0, 0, 7, 0]
    assert last.series.tolist() == [0, 4, 4, 4, 7, 7]
    assert zero.centred.tolist() == [False] * 6
    assert last.centred.tolist() == [True, False, False, False, False, False]
    assert mean.centred.tolist() == (~mask).tolist()


@pytest.mark.parametrize("fill", ["mean", "zero", "last"])
@pytest.mark.parametrize("use_kv_cache", [True, False])
def test_a_series_with_gaps_has_a_finite_forecast(
    make_model: Any, series: Tensor, fill: Any, use_kv_cache: bool
) -> None:
    gaps = series.masked_fill(torch.rand(series.shape, generator=torch.Generator().manual_seed(3)) < 0.3, NAN)
    forecast = TotoForecaster(make_model(), fill=fill).forecast(
        gaps, 20, num_samples=4, seed=0, use_kv_cache=use_kv_cache
    )
    assert bool(forecast.samples.isfinite().all())


def test_what_stands_at_a_masked_point_does_not_matter(make_model: Any, series: Tensor) -> None:
    from toto_ts import MaskedTimeseries

    forecaster, mask = TotoForecaster(make_model()), torch.ones_like(series, dtype=torch.bool)
    mask[:, 1, 15:25] = False
    clock = torch.zeros(series.shape, dtype=torch.long), torch.zeros(2, 3, dtype=torch.long)
    ids = torch.zeros(2, 3, 1, dtype=torch.long)
    means = [
        forecaster.forecast(MaskedTimeseries(values, mask, ids, *clock), 12, num_samples=None).mean
        for values in (series, series.masked_fill(~mask, 1e9), series.masked_fill(~mask, NAN))
    ]
    assert torch.equal(means[0], means[1])
    assert torch.equal(means[0], means[2])


def test_only_the_zero_fill_looks_like_a_drop_to_the_network(make_model: Any) -> None:
    model, seen = make_model(), []
    model.model.patch_embed.register_forward_hook(lambda module, inputs, output: seen.append(inputs[0][0, 0, 17:20]))
    gap = 1000 + torch.randn(1, 40, generator=torch.Generator().manual_seed(0))
    gap[:, 17:20] = NAN
    for fill in ("mean", "last", "zero"):
        TotoForecaster(model, fill=fill).forecast(gap, 8, num_samples=None)  # type: ignore[arg-type]
    mean, last, zero = seen
    assert mean.tolist() == [0, 0, 0]
    assert float(last.abs().max()) < 3
    assert float(zero.max()) < -500


def test_the_last_fill_carries_no_value_from_the_future(make_model: Any, series: Tensor) -> None:
    forecaster, gaps = TotoForecaster(make_model(), fill="last"), series.clone()
    gaps[..., 10:20] = NAN
    changed = gaps.clone()
    changed[..., 24:] += 5
    assert torch.equal(
        forecaster.log_prob(gaps)[..., :24].nan_to_num(), forecaster.log_prob(changed)[..., :24].nan_to_num()
    )
