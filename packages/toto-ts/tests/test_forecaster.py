"""Forecasts: samples, seeds, batches, quantiles, likelihoods."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

from toto_ts import MaskedTimeseries, TotoForecaster
from toto_ts.memory import PREFILL_TOKENS, Plan, make_plan


@pytest.fixture
def forecaster(make_model: Any) -> TotoForecaster:
    return TotoForecaster(make_model())


def container(series: Tensor, ids: Tensor | None = None) -> MaskedTimeseries:
    ids = torch.zeros((*series.shape[:-1], 1), dtype=torch.long) if ids is None else ids
    clock = torch.zeros(series.shape, dtype=torch.long), torch.zeros(series.shape[:-1], dtype=torch.long)
    return MaskedTimeseries(series, ~series.isnan(), ids, *clock)


# Cache


@pytest.mark.parametrize("labels", [False, True])
@pytest.mark.parametrize("horizon", [1, 8, 21])
def test_the_cached_mean_is_the_uncached_one(make_model: Any, series: Tensor, labels: bool, horizon: int) -> None:
    forecaster = TotoForecaster(make_model(labels=labels))
    cached = forecaster.forecast(series[..., :37], horizon, num_samples=None)
    plain = forecaster.forecast(series[..., :37], horizon, num_samples=None, use_kv_cache=False)
    assert cached.mean.shape == (2, 3, horizon)
    torch.testing.assert_close(cached.mean, plain.mean, rtol=1e-5, atol=1e-4)


def test_the_same_seed_gives_the_same_samples_with_and_without_cache(
    forecaster: TotoForecaster, series: Tensor
) -> None:
    cached = forecaster.forecast(series, 20, num_samples=6, seed=3)
    plain = forecaster.forecast(series, 20, num_samples=6, seed=3, use_kv_cache=False)
    torch.testing.assert_close(cached.samples, plain.samples, rtol=1e-4, atol=1e-3)


def test_groups_are_kept_apart_in_every_step(forecaster: TotoForecaster, series: Tensor) -> None:
    ids = torch.tensor([0, 0, 1]).view(1, 3, 1).expand(2, 3, 1)
    grouped = forecaster.forecast(container(series, ids), 20, num_samples=None).mean
    alone = forecaster.forecast(series[:, :2], 20, num_samples=None).mean
    torch.testing.assert_close(grouped[:, :2], alone, rtol=1e-5, atol=1e-4)


# Samples and seeds


@pytest.mark.parametrize("samples_per_batch", [1, 4, 6, 12])
def test_the_samples_do_not_depend_on_how_many_are_drawn_together(
    forecaster: TotoForecaster, series: Tensor, samples_per_batch: int
) -> None:
    together = forecaster.forecast(series, 20, num_samples=12, seed=7)
    apart = forecaster.forecast(series, 20, num_samples=12, samples_per_batch=samples_per_batch, seed=7)
    torch.testing.assert_close(together.samples, apart.samples, rtol=1e-4, atol=1e-3)


def test_more_samples_begin_with_the_fewer(forecaster: TotoForecaster, series: Tensor) -> None:
    few, many = (forecaster.forecast(series, 12, num_samples=n, seed=7).samples for n in (3, 9))
    torch.testing.assert_close(many[..., :3], few, rtol=1e-4, atol=1e-3)


def test_without_a_seed_torchs_generator_decides(forecaster: TotoForecaster, series: Tensor) -> None:
    results = []
    for torch_seed in (1, 1, 2):
        torch.manual_seed(torch_seed)
        results.append(forecaster.forecast(series, 4, num_samples=3).samples)
    assert torch.equal(results[0], results[1])
    assert not torch.equal(results[0], results[2])


def test_the_first_patch_has_the_quantiles_of_its_distribution(forecaster: TotoForecaster, series: Tensor) -> None:
    levels, number = (0.1, 0.25, 0.5, 0.75, 0.9), 4000
    forecast = forecaster.forecast(series, 8, num_samples=number, seed=0, quantile_levels=levels)
    for i, level in enumerate(levels):
        below = (forecast.samples < forecast.quantiles[..., i : i + 1]).double().mean(-1)
        # 48 binomial shares at once: five deviations
        assert float((below - level).abs().max()) < 5 * (level * (1 - level) / number) ** 0.5


def test_the_sample_mean_of_the_first_patch_is_the_mean_of_its_distribution(
    forecaster: TotoForecaster, series: Tensor
) -> None:
    sampled = forecaster.forecast(series, 8, num_samples=4000, seed=0)
    exact = forecaster.forecast(series, 8, num_samples=None)
    assert float(((sampled.mean - exact.mean).abs() / (sampled.std / 4000**0.5)).max()) < 5


@pytest.mark.parametrize("name", ["mixture_last", "causal_pertimestep", "studentt_timeonly_std"])
def test_sample_quantiles_agree_with_the_reference_samples(golden: Any, load_model: Any, name: str) -> None:
    data, info = golden.tensors(f"{name}.io"), golden.values(f"{name}.info")
    inputs = container(data["fc.series"])._replace(
        padding_mask=data["fc.padding_mask"].bool(), id_mask=data["fc.id_mask"]
    )
    forecaster = TotoForecaster(load_model(name), fill="zero", xpos_center="per_call")
    samples = forecaster.forecast(inputs, info["horizon"], num_samples=1024, seed=0).samples
    # 6 reference samples a point: where they stand among ours is uniform
    ranks = (samples.unsqueeze(-1) < data["fc.out.samples_kv"].unsqueeze(-2)).double().mean(-2)
    independent = ranks.numel() / info["horizon"]  # at worst, the steps of one sample move together
    assert abs(float(ranks.mean()) - 0.5) < 5 * (1 / 12 / independent) ** 0.5
    assert 0.6 < float(((ranks > 0.1) & (ranks < 0.9)).double().mean()) < 0.95


def test_the_shared_prefill_has_the_distribution_of_the_plain_route(make_model: Any, series: Tensor) -> None:
    plain_samples = runpy.run_path(str(Path(__file__).parent / "plain_toto.py"))["plain_samples"]
    model = make_model()
    torch.manual_seed(0)
    with torch.no_grad():
        plain = plain_samples(model, series[0], 24, 1024, batch=256)
    ours = TotoForecaster(model).forecast(series[0], 24, num_samples=1024, seed=0).samples[0]
    for variate in range(3):
        for step in (0, 7, 8, 23):
            test = stats.ks_2samp(plain[variate, step].numpy(), ours[variate, step].numpy())
            assert test.pvalue > 1e-3  # twelve tests


# Batches


def test_a_series_alone_has_the_forecast_it_has_in_a_batch(forecaster: TotoForecaster, series: Tensor) -> None:
    batch = forecaster.forecast(series, 20, num_samples=None).mean
    alone = torch.cat([forecaster.forecast(entry, 20, num_samples=None).mean for entry in series])
    torch.testing.assert_close(batch, alone, rtol=1e-5, atol=1e-4)


def test_a_batch_in_pieces_is_the_batch(
    forecaster: TotoForecaster, series: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    options: dict[str, Any] = {"num_samples": 5, "seed": 1, "quantile_levels": (0.2, 0.8)}
    whole, scores = forecaster.forecast(series, 12, **options), forecaster.log_prob(series)
    monkeypatch.setitem(PREFILL_TOKENS, "cpu", 1)
    pieces = forecaster.forecast(series, 12, **options)
    torch.testing.assert_close(whole.samples, pieces.samples, rtol=1e-4, atol=1e-3)
    torch.testing.assert_close(whole.quantiles, pieces.quantiles, rtol=1e-4, atol=1e-3)
    torch.testing.assert_close(scores, forecaster.log_prob(series), equal_nan=True)


def test_a_list_is_padded_on_the_left(forecaster: TotoForecaster, series: Tensor) -> None:
    short, long = series[0, :, 7:], series[1]
    batch = forecaster.forecast([short, long], 12, num_samples=None).mean
    torch.testing.assert_close(batch[1:], forecaster.forecast(long, 12, num_samples=None).mean)
    padded = torch.cat([torch.full((3, 7), torch.nan), short], 1)
    torch.testing.assert_close(batch[:1], forecaster.forecast(padded, 12, num_samples=None).mean)
    # as many patches either way: what is padded to whole patches does not matter
    torch.testing.assert_close(batch[:1], forecaster.forecast(short, 12, num_samples=None).mean)


@pytest.mark.parametrize(
    "make",
    [
        lambda s: s.numpy(),
        lambda s: [s[0], s[1]],
        lambda s: [entry.numpy() for entry in s],
        lambda s: s.numpy().astype(">f4"),
        lambda s: s.numpy().astype("longdouble"),
        container,
        lambda s: container(s)._replace(padding_mask=np.ones(s.shape, bool), id_mask=np.zeros(s.shape, int)),
    ],
)
def test_every_form_of_the_inputs_gives_the_same(forecaster: TotoForecaster, series: Tensor, make: Any) -> None:
    expected = forecaster.forecast(series, 12, num_samples=None).mean
    mean = forecaster.forecast(make(series), 12, num_samples=None).mean
    torch.testing.assert_close(mean, expected, check_dtype=mean.dtype == torch.float32)


def test_numpys_own_mask_says_what_is_missing(forecaster: TotoForecaster, series: Tensor) -> None:
    missing = np.arange(series.shape[-1]) % 5 == 0
    masked = np.ma.array(series.numpy(), mask=np.broadcast_to(missing, series.shape))
    expected = forecaster.forecast(series.masked_fill(torch.from_numpy(missing), torch.nan), 12, num_samples=None).mean
    mean = forecaster.forecast(masked, 12, num_samples=None).mean
    torch.testing.assert_close(mean, expected, check_dtype=False)


def test_a_single_series_gets_its_axes(forecaster: TotoForecaster, series: Tensor) -> None:
    expected = forecaster.forecast(series[:1, :1], 5, num_samples=None).mean
    for one in (series[0, 0], series[0, :1], series[0, 0].tolist(), [series[0, 0]], container(series[0, :1])):
        forecast = forecaster.forecast(one, 5, num_samples=None)
        torch.testing.assert_close(forecast.mean, expected, check_dtype=False)


def test_float64_and_integers_keep_the_digits_of_a_large_counter(forecaster: TotoForecaster) -> None:
    small = torch.randint(0, 9, (1, 40), generator=torch.Generator().manual_seed(0)).double()
    expected = forecaster.forecast(small, 16, num_samples=None).mean
    for large in (small + 1e12, (small + 1e12).long()):
        mean = forecaster.forecast(large, 16, num_samples=None).mean
        assert mean.dtype == torch.float64
        torch.testing.assert_close(mean - 1e12, expected, rtol=0, atol=1e-3)


def test_a_half_precision_input_is_widened(forecaster: TotoForecaster, series: Tensor) -> None:
    mean = forecaster.forecast(series.half(), 4, num_samples=None).mean
    torch.testing.assert_close(mean, forecaster.forecast(series.half().float(), 4, num_samples=None).mean)


# The model is left alone


def test_the_model_keeps_its_mode_and_gets_no_gradients(make_model: Any, series: Tensor) -> None:
    model = make_model(dropout=0.5).train()
    model.model.unembed.eval()
    first = TotoForecaster(model).forecast(series, 12, num_samples=None).mean
    assert torch.equal(first, TotoForecaster(model).forecast(series, 12, num_samples=None).mean)
    assert model.training
    assert not model.model.unembed.training
    assert not first.requires_grad
    assert not first.is_inference()


def test_a_bfloat16_model_forecasts_near_the_float32_one(make_model: Any, series: Tensor) -> None:
    exact = TotoForecaster(make_model()).forecast(series, 20, num_samples=64, seed=0)
    rough = TotoForecaster(make_model().to(torch.bfloat16)).forecast(series, 20, num_samples=64, seed=0)
    assert rough.samples.dtype == torch.float32
    assert float(((rough.median - exact.median).abs() / exact.std).max()) < 0.5


def test_extreme_values_become_zero_and_do_not_spread(make_model: Any, series: Tensor) -> None:
    model = make_model()
    with torch.no_grad():
        model.model.output_distribution.loc_proj.bias.fill_(3e38)
    mean = TotoForecaster(model).forecast(series, 20, num_samples=None).mean
    assert torch.equal(mean, torch.zeros_like(mean))


@pytest.mark.parametrize("value", [0.0, 3.3, -1e6])
def test_constant_series_have_a_finite_forecast(forecaster: TotoForecaster, value: float) -> None:
    forecast = forecaster.forecast(torch.full((2, 30), value), 20, num_samples=8, seed=0)
    assert bool(forecast.samples.isfinite().all())


def test_a_variate_without_a_value_is_told_and_its_forecast_is_finite(
    forecaster: TotoForecaster, series: Tensor
) -> None:
    series[1, 2] = torch.nan
    with pytest.warns(UserWarning, match="variate 2 of entry 1 has no valid value"):
        forecast = forecaster.forecast(series, 20, num_samples=4, seed=0)
    assert bool(forecast.samples.isfinite().all())


def test_deterministic_mode_is_no_hindrance(forecaster: TotoForecaster, series: Tensor) -> None:
    expected = forecaster.forecast(series, 20, num_samples=4, seed=0).samples
    torch.use_deterministic_algorithms(True)
    try:
        assert torch.equal(forecaster.forecast(series, 20, num_samples=4, seed=0).samples, expected)
        assert torch.are_deterministic_algorithms_enabled()
    finally:
        torch.use_deterministic_algorithms(False)


# Quantiles and likelihoods


def test_quantiles_of_the_first_patch_need_no_samples(forecaster: TotoForecaster, series: Tensor) -> None:
    forecast = forecaster.forecast(series, 8, num_samples=None, quantile_levels=[0.1, 0.9])
    assert forecast.samples is None
    assert forecast.quantiles.shape == (2, 3, 8, 2)
    assert torch.equal(forecast.quantile(0.9), forecast.quantiles[..., 1])
    assert bool((forecast.quantile(0.1) < forecast.quantile(0.9)).all())
    with pytest.raises(ValueError, match=r"no exact 0\.5-quantile"):
        forecast.quantile(0.5)
    with pytest.raises(ValueError, match="forecast with num_samples"):
        forecast.std  # noqa: B018


def test_later_patches_have_the_quantiles_of_their_samples(forecaster: TotoForecaster, series: Tensor) -> None:
    forecast = forecaster.forecast(series, 20, num_samples=32, seed=0, quantile_levels=(0.5,))
    assert torch.equal(forecast.quantiles[:, :, 8:, 0], forecast.median[..., 8:])


@pytest.mark.parametrize("q", [0.0, 0.1, 0.5, 0.77, 1.0])
def test_a_quantile_is_linear_between_samples(forecaster: TotoForecaster, series: Tensor, q: float) -> None:
    forecast = forecaster.forecast(series, 5, num_samples=11, seed=0)
    expected = np.quantile(forecast.samples.numpy(), q, axis=-1)
    np.testing.assert_allclose(forecast.quantile(q).numpy(), expected, rtol=1e-5)


def test_a_forecast_says_its_mean_and_deviation(forecaster: TotoForecaster, series: Tensor) -> None:
    forecast = forecaster.forecast(series, 5, num_samples=9, seed=0)
    assert forecast.samples.shape == (2, 3, 5, 9)
    torch.testing.assert_close(forecast.mean, forecast.samples.mean(-1))
    torch.testing.assert_close(forecast.std, forecast.samples.std(-1))
    torch.testing.assert_close(forecast.median, forecast.samples.median(-1).values)


def test_log_prob_is_the_density_predicted_one_patch_before(make_model: Any, series: Tensor) -> None:
    model = make_model()
    output = model(series)
    scores = TotoForecaster(model).log_prob(series)
    shifted = torch.distributions.TransformedDistribution(
        output.distribution,
        torch.distributions.AffineTransform(output.loc, output.scale),
        validate_args=False,
    )
    expected = shifted.log_prob(torch.cat([series[..., 8:], series[..., :8]], -1))[..., :-8]
    assert bool(scores[..., :8].isnan().all())
    torch.testing.assert_close(scores[..., 8:], expected, rtol=1e-4, atol=1e-4)


def test_missing_points_and_padding_have_no_log_prob(forecaster: TotoForecaster, series: Tensor) -> None:
    gaps = series[..., :37].clone()
    gaps[:, 1, 20] = torch.nan
    scores = forecaster.log_prob(gaps)
    assert scores.shape == gaps.shape
    # 37 steps are padded by 3: the first patch holds 5 of them
    expected = gaps.isnan()
    expected[..., :5] = True
    assert torch.equal(scores.isnan(), expected)


def test_exogenous_variates_have_no_log_prob(make_model: Any, series: Tensor) -> None:
    scores = TotoForecaster(make_model(labels=True)).log_prob(container(series)._replace(num_exogenous_variables=1))
    assert bool(scores[:, 2].isnan().all())
    assert bool(scores[:, :2, 8:].isfinite().all())


def test_one_patch_alone_has_no_log_prob(forecaster: TotoForecaster) -> None:
    assert bool(forecaster.log_prob(torch.randn(1, 6)).isnan().all())


def test_an_outlier_has_the_highest_anomaly_score(forecaster: TotoForecaster, series: Tensor) -> None:
    series[0, 1, 30] += 500
    scores = forecaster.anomaly_score(series)
    assert torch.equal(scores.nan_to_num(), -forecaster.log_prob(series).nan_to_num())
    assert int(scores[0, 1].nan_to_num(-torch.inf).argmax()) == 30


# Pieces


def test_pieces_keep_memory_flat() -> None:
    assert make_plan(32, 7, 64, 256, None, "cpu") == Plan(entries=9, samples=4)
    assert make_plan(1, 7, 64, 256, None, "cpu") == Plan(entries=1, samples=32)
    assert make_plan(1, 7, 64, 256, 64, "cpu") == Plan(entries=1, samples=64)
    assert make_plan(1, 7, 64, None, None, "cpu") == Plan(entries=1, samples=1)
    assert make_plan(1, 1000, 64, 10, None, "cpu") == Plan(entries=1, samples=1)
