"""The nonlinear layer: its parts, its gradients, its bounds, its precision, and what it keeps for the backward."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from lora_anl import AdaptiveNonlinearLayer
from lora_anl.nonlinear import nonlinear

PARTS = [
    {"spline_mode": mode, "activation": activation, "use_fixed": fixed, "use_spline": spline}
    for mode, activation, (fixed, spline) in itertools.product(
        ("pooled", "per_channel"),
        ("tanh", "leaky_relu", "sigmoid", "relu"),
        ((True, True), (True, False), (False, True)),
    )
]
each_part = pytest.mark.parametrize("parts", PARTS, ids=lambda parts: "-".join(map(str, parts.values())))


def make(rank: int = 3, dtype: torch.dtype = torch.float64, seed: int = 0, **options: Any) -> AdaptiveNonlinearLayer:
    torch.manual_seed(seed)
    return AdaptiveNonlinearLayer(rank, **options).to(dtype)


def plain(layer: AdaptiveNonlinearLayer, z: Tensor) -> Tensor:
    settings = (layer.activation, layer.spline_mode, layer.grid_size, layer.spline_order, *layer.grid_range)
    return nonlinear(z, layer.proj, layer.spline_weight, *settings)


@each_part
@pytest.mark.parametrize("order", [0, 1, 3, 5])
def test_gradients_equal_those_of_plain_autograd(parts: dict[str, Any], order: int) -> None:
    layer = make(spline_order=order, **parts)
    z = torch.randn(2, 5, 3, dtype=torch.float64)
    grad = torch.randn(2, 5, 3, dtype=torch.float64)
    results = []
    for function in (layer, lambda z: plain(layer, z)):
        leaf = z.clone().requires_grad_()
        layer.zero_grad()
        value = function(leaf)
        # without the fixed part a spline of order 0 has no slope, and plain autograd no graph to z
        gradients = torch.autograd.grad(value, [leaf, *layer.parameters()], grad, materialize_grads=True)
        results.append([value, *gradients])
    for ours, theirs in zip(*results, strict=True):
        assert (ours - theirs).abs().max() <= 1e-12


@each_part
def test_first_and_second_derivatives_pass_gradcheck(parts: dict[str, Any]) -> None:
    layer = make(2, **parts)
    z = torch.tensor([[0.31, -0.52], [1.27, -1.93]], dtype=torch.float64, requires_grad=True)  # away from the knots
    parameters = list(layer.parameters())

    def call(z: Tensor, *_: Tensor) -> Tensor:
        return layer(z)

    assert torch.autograd.gradcheck(call, (z, *parameters))
    assert torch.autograd.gradgradcheck(call, (z, *parameters))


def test_nothing_of_the_size_of_the_basis_is_kept_for_the_backward() -> None:
    for mode in ("pooled", "per_channel"):
        layer, kept = make(2, torch.float32, spline_mode=mode), []
        z = torch.randn(4, 50, 2, requires_grad=True)
        with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t.numel()) or t, lambda t: t):  # noqa: B023
            layer(z).sum()
        assert max(kept) == z.numel()
        assert sum(kept) <= z.numel() + 2 * 2 + 2 * 8


def test_with_one_coordinate_both_splines_are_the_same() -> None:
    layers = [make(1, spline_mode=mode) for mode in ("pooled", "per_channel")]
    layers[1].load_state_dict(layers[0].state_dict())
    z = torch.randn(40, 1, dtype=torch.float64)
    assert torch.equal(layers[0](z), layers[1](z))
    gradients = [torch.autograd.grad(layer(z).sum(), list(layer.parameters())) for layer in layers]
    assert all(torch.equal(left, right) for left, right in zip(*gradients, strict=True))


def test_the_pooled_spline_does_not_see_the_order_of_coordinates() -> None:
    layer = make(4, use_fixed=False)
    z = torch.randn(20, 4, dtype=torch.float64)
    assert (layer(z.flip(-1)) - layer(z)).abs().max() <= 1e-15
    assert (make(4, use_fixed=False, spline_mode="per_channel")(z.flip(-1)) - layer(z)).abs().max() > 1e-3


@given(st.integers(0, 10_000), st.integers(1, 6), st.floats(0.01, 30))
def test_its_values_and_slopes_stay_within_the_bounds(seed: int, rank: int, scale: float) -> None:
    layer = make(rank, seed=seed)
    z = scale * torch.randn(7, rank, dtype=torch.float64)
    assert layer.proj is not None
    assert layer.spline_weight is not None
    largest = layer.spline_weight.abs().max()
    assert (layer(z).abs() <= 1 + rank * largest).all()
    fixed = AdaptiveNonlinearLayer(rank, use_spline=False).double()
    fixed.load_state_dict({"proj": layer.proj})
    assert (fixed(z).abs() < 1).all() or scale > 5  # tanh rounds to 1 far out
    spline = AdaptiveNonlinearLayer(rank, use_fixed=False).double()
    spline.load_state_dict({"spline_weight": layer.spline_weight})
    for row in z:
        jacobian = torch.autograd.functional.jacobian(fixed, row)
        assert torch.linalg.matrix_norm(jacobian, 2) <= torch.linalg.matrix_norm(layer.proj, 2) + 1e-12
        assert torch.autograd.functional.jacobian(spline, row).abs().max() <= 3.75 * largest + 1e-12


def test_near_zero_without_a_spline_weight_it_is_the_identity() -> None:
    layer = make(3)
    layer.load_state_dict({"proj": torch.eye(3), "spline_weight": torch.zeros(3, 8)})
    z = 1e-3 * torch.rand(50, 3, dtype=torch.float64)
    assert ((layer(z) - z).abs() / z).max() <= 1e-6


def test_beyond_the_knots_the_spline_is_zero_and_learns_nothing() -> None:
    for mode in ("pooled", "per_channel"):
        layer = make(2, use_fixed=False, spline_mode=mode)
        z = torch.tensor([[2.3, -5.0], [1e6, -2.25]], dtype=torch.float64, requires_grad=True)
        value = layer(z)
        assert not value.any()
        value.sum().backward()
        assert not layer.spline_weight.grad.any()
        assert not z.grad.any()


def test_parts_switched_off_have_no_parameters() -> None:
    assert list(make().state_dict()) == ["proj", "spline_weight"]
    assert list(make(use_fixed=False).state_dict()) == ["spline_weight"]
    assert list(make(use_spline=False).state_dict()) == ["proj"]


def test_it_starts_as_described() -> None:
    layer = make(200, torch.float32, spline_init_scale=0.25)
    assert float(layer.proj.detach().std()) == pytest.approx((2 / 400) ** 0.5, rel=0.02)
    assert 0.249 < layer.spline_weight.abs().max() <= 0.25
    assert abs(float(layer.spline_weight.detach().mean())) < 0.02


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_half_precision_is_computed_in_float32_and_rounded_once(dtype: torch.dtype) -> None:
    layer = make(3, dtype)
    z = torch.randn(50, 3).to(dtype)
    exact = make(3, torch.float32)
    exact.load_state_dict(layer.state_dict())
    value = layer(z)
    assert value.dtype == dtype
    assert torch.equal(value, exact(z.float()).to(dtype))


def test_under_autocast_it_computes_in_float32() -> None:
    layer, z = make(3, torch.float32), torch.randn(50, 3)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(layer(z), layer.forward(z))
        half = layer(z.bfloat16())
    assert half.dtype == torch.bfloat16
    assert torch.equal(half, layer(z.bfloat16().float()).bfloat16())
    assert (layer(z) - plain(layer, z)).abs().max() <= 1e-6


def test_float64_weights_or_inputs_make_it_compute_in_float64() -> None:
    layer, z = make(3), torch.randn(5, 3)
    assert layer(z).dtype == torch.float32
    assert torch.equal(layer(z), layer(z.double()).float())
    single = make(3, torch.float32)
    assert single(z.double()).dtype == torch.float64


def test_gradients_per_sample_come_from_vmap() -> None:
    layer = make(2)
    parameters = dict(layer.named_parameters())
    z = torch.randn(6, 2, dtype=torch.float64)

    def loss(parameters: dict[str, Tensor], z: Tensor) -> Tensor:
        return torch.func.functional_call(layer, parameters, (z,)).square().sum()

    per_sample = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0))(parameters, z)
    whole = torch.func.grad(loss)(parameters, z)
    for name, value in whole.items():
        assert (per_sample[name].sum(0) - value).abs().max() <= 1e-12


def test_it_runs_on_the_meta_device_and_on_nothing() -> None:
    layer = AdaptiveNonlinearLayer(2).to("meta")
    assert layer(torch.zeros(3, 2, device="meta")).shape == (3, 2)
    empty = torch.zeros(0, 2, requires_grad=True)
    make(2, torch.float32)(empty).sum().backward()
    assert empty.grad.shape == (0, 2)


def test_it_prints_its_settings() -> None:
    assert repr(make(2)) == (
        "AdaptiveNonlinearLayer(rank=2, activation='tanh', spline_mode='pooled', grid_size=5, spline_order=3, "
        "grid_range=(-1.0, 1.0))"
    )


@pytest.mark.parametrize(("order", "grid_size"), [(2, 5), (3, 4), (4, 5), (5, 4)])
def test_the_second_derivative_is_right_at_the_centre_of_a_function(order: int, grid_size: int) -> None:
    torch.manual_seed(0)
    layer = AdaptiveNonlinearLayer(1, grid_size=grid_size, spline_order=order, use_fixed=False).double()

    def second(at: float) -> float:
        z = torch.tensor([at], dtype=torch.float64, requires_grad=True)
        (slope,) = torch.autograd.grad(layer(z).sum(), z, create_graph=True)
        return float(torch.autograd.grad(slope.sum(), z)[0])

    assert second(0.0) == pytest.approx(second(1e-9), rel=1e-6, abs=1e-7)


@pytest.mark.parametrize("mode", ["pooled", "per_channel"])
@pytest.mark.parametrize("width", [1, 3])
def test_another_number_of_coordinates_is_refused(mode: str, width: int) -> None:
    layer = AdaptiveNonlinearLayer(2, use_fixed=False, spline_mode=mode)
    with pytest.raises(ValueError, match=rf"rank=2 coordinates in its last dimension, got \(4, {width}\)"):
        layer(torch.zeros(4, width))


@pytest.mark.parametrize(("width", "least"), [(32, 0.5), (4096, 1.5)])
def test_on_columns_it_is_another_function_and_more_so_in_a_wide_layer(width: int, least: float) -> None:
    generator = torch.Generator().manual_seed(0)
    differences = []
    for seed in range(5):
        torch.manual_seed(seed)
        layer, down = AdaptiveNonlinearLayer(2), torch.randn(2, width, generator=generator) / width**0.5
        x = torch.randn(256, width, generator=generator)
        dynamic, static = layer(x @ down.T), x @ layer(down.T)
        differences.append(float((dynamic - static).norm() / dynamic.norm()))
    assert sorted(differences)[2] > least
