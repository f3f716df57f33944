"""The scalers against numpy, and what holds for any data."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from toto_ts import CausalPatchStdMeanScaler, CausalStdMeanScaler, StdMeanScaler

PATCH = 4


@pytest.mark.parametrize("offset", [0.0, 1e4, 1e9])
def test_a_patch_has_mean_and_deviation_of_all_valid_points_so_far(offset: float) -> None:
    generator = np.random.default_rng(0)
    data = offset + generator.normal(size=(3, 40))
    mask = generator.random(size=(3, 40)) > 0.2
    _, loc, scale = CausalPatchStdMeanScaler(PATCH)(torch.from_numpy(data), torch.from_numpy(mask))
    for row in range(3):
        for end in range(PATCH, 41, PATCH):
            seen = data[row, :end][mask[row, :end]]
            assert float(loc[row, end - 1]) == pytest.approx(seen.mean(), rel=1e-6)
            assert float(scale[row, end - 1]) == pytest.approx(math.sqrt(seen.var(ddof=1) + 0.1), rel=1e-6)


def test_one_patch_has_one_statistic() -> None:
    _, loc, scale = CausalPatchStdMeanScaler(PATCH)(torch.randn(2, 3, 24))
    for statistic in (loc, scale):
        patches = statistic.unflatten(-1, (-1, PATCH))
        assert torch.equal(patches, patches[..., :1].expand_as(patches))


def test_a_masked_start_has_loc_zero_and_the_smallest_scale() -> None:
    mask = torch.arange(16) >= 8
    _, loc, scale = CausalPatchStdMeanScaler(PATCH)(torch.full((1, 16), 7e6), mask.unsqueeze(0))
    assert torch.equal(loc[0, :8], torch.zeros(8))
    torch.testing.assert_close(scale[0, :8], torch.full((8,), math.sqrt(0.1)))
    assert torch.equal(loc[0, 8:], torch.full((8,), 7e6))


def test_a_constant_series_is_scaled_to_zero() -> None:
    scaled, _, scale = CausalPatchStdMeanScaler(PATCH)(torch.full((1, 16), 3.3))
    assert torch.equal(scaled, torch.zeros(1, 16))
    torch.testing.assert_close(scale, torch.full((1, 16), math.sqrt(0.1)))


def test_missing_values_are_left_out_of_all_statistics() -> None:
    data = torch.randn(1, 16, generator=torch.Generator().manual_seed(0))
    mask = torch.ones(1, 16, dtype=torch.bool)
    mask[0, [0, 5, 15]] = False
    for scaler in (StdMeanScaler(), CausalStdMeanScaler(), CausalPatchStdMeanScaler(PATCH)):
        with_nan = scaler(torch.where(mask, data, torch.nan))
        with_mask = scaler(torch.where(mask, data, 1e6), mask)
        assert torch.equal(with_nan.loc, with_mask.loc)
        assert torch.equal(with_nan.scale, with_mask.scale)


def test_the_future_has_no_influence_on_the_causal_scalers() -> None:
    data = torch.randn(2, 32, generator=torch.Generator().manual_seed(0))
    changed = torch.cat([data[:, :16], 1e6 * data[:, 16:]], 1)
    for scaler in (CausalStdMeanScaler(), CausalPatchStdMeanScaler(PATCH, stabilize_with_global=True)):
        for before, after in zip(scaler(data), scaler(changed), strict=True):
            assert torch.equal(before[:, :16], after[:, :16])


def test_the_global_bound_is_that_of_the_prefix() -> None:
    data = torch.cat([torch.randn(1, 16, generator=torch.Generator().manual_seed(0)), torch.full((1, 16), 1e6)], 1)
    scaler = CausalStdMeanScaler(stabilize_with_global=True, scale_factor_exponent=0.0)
    _, _, scale = scaler(data, prefix_length=16)
    expected = math.sqrt(float(data[0, :16].double().var(correction=0)) + 0.1)
    torch.testing.assert_close(scale, torch.full((1, 32), expected))


@pytest.mark.parametrize(
    "scaler",
    [
        StdMeanScaler(),
        CausalStdMeanScaler(),
        CausalStdMeanScaler(use_bessel_correction=False, stabilize_with_global=True, scale_factor_exponent=0.2),
        CausalPatchStdMeanScaler(PATCH, stabilize_with_global=True, scale_factor_exponent=0.2),
    ],
)
def test_going_on_from_a_state_equals_one_call_over_everything(scaler: StdMeanScaler) -> None:
    generator = torch.Generator().manual_seed(0)
    data = 1e3 + torch.randn(2, 3, 32, generator=generator).double()
    mask = torch.rand(2, 3, 32, generator=generator) > 0.3
    whole = scaler(data, mask, prefix_length=16)
    (_, loc, scale), state = scaler.start(data[..., :16], mask[..., :16], prefix_length=16)
    pieces = [(loc, scale)]
    for start in (16, 24):
        window = slice(start, start + 8)
        (_, loc, scale), state = scaler.extend(state, data[..., window], mask[..., window])
        pieces.append((loc, scale))
    if whole.loc.shape[-1] == 1:
        assert all(torch.equal(loc, whole.loc) and torch.equal(scale, whole.scale) for loc, scale in pieces)
    else:
        torch.testing.assert_close(torch.cat([loc for loc, _ in pieces], -1), whole.loc, rtol=1e-12, atol=0)
        torch.testing.assert_close(torch.cat([scale for _, scale in pieces], -1), whole.scale, rtol=1e-12, atol=0)


def test_weights_count_points_in_parts() -> None:
    data, weights = torch.tensor([[1.0, 5.0, 3.0]]), torch.tensor([[1.0, 0.0, 3.0]])
    _, loc, scale = StdMeanScaler(minimum_scale=0.25)(data, weights=weights)
    assert float(loc) == pytest.approx(2.5)
    assert float(scale) == pytest.approx(math.sqrt(0.75 + 0.25))


def test_no_gradient_flows_through_the_statistics() -> None:
    data = torch.randn(1, 8, requires_grad=True)
    scaled, loc, scale = CausalPatchStdMeanScaler(PATCH)(data)
    assert not loc.requires_grad
    assert not scale.requires_grad
    scaled.sum().backward()
    torch.testing.assert_close(data.grad, 1 / scale)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.one_of(st.just(0.0), st.floats(-1e6, 1e6, width=32)), min_size=16, max_size=16))
def test_intermittent_series_are_scaled_to_finite_values(values: list[float]) -> None:
    scaled, loc, scale = CausalPatchStdMeanScaler(PATCH, stabilize_with_global=True)(torch.tensor([values]))
    assert bool(scaled.isfinite().all() and loc.isfinite().all())
    assert float(scale.min()) >= math.sqrt(0.1) * (1 - 1e-6)
    # no point lies further than sqrt(n) deviations from the mean of n points that it is one of
    assert float(scaled[:, -PATCH:].abs().max()) <= math.sqrt(16) + 1e-3


def test_a_time_axis_of_half_patches_is_refused() -> None:
    with pytest.raises(ValueError, match="multiple of patch_size=4, got 10"):
        CausalPatchStdMeanScaler(PATCH)(torch.zeros(1, 10))
