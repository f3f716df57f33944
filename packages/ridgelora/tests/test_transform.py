"""The factored transform and merge against the explicit matrix."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from ridgelora import ridge_init, ridge_merge, ridge_transform
from ridgelora.transform import transform_with_dropout

each_offset = pytest.mark.parametrize("offset", [False, True], ids=["", "offset"])


def parts(d: int = 12, r: int = 3, dtype: torch.dtype = torch.float64, seed: int = 0) -> list[Tensor]:
    """lambda, sigma, A, B."""
    generator = torch.Generator().manual_seed(seed)
    normal = lambda *shape: torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)
    return [1 + 0.1 * normal(1), 1 + 0.3 * normal(d), normal(r, d), normal(d, r)]


def rows(q: int, d: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(q, d, generator=torch.Generator().manual_seed(9), dtype=torch.float64).to(dtype)


def explicit(parts: list[Tensor], scaling: float, offset: Tensor | None = None) -> Tensor:
    """M in torch layout: x' = M x."""
    lam, sigma, A, B = parts
    M = torch.diag(lam * sigma) + scaling * B @ A
    if offset is not None:
        M = torch.cat([M[: len(offset)] + offset, M[len(offset) :]])
    return M


@each_offset
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-5)], ids=str)
def test_the_factored_transform_is_the_explicit_one(offset: bool, dtype: torch.dtype, tolerance: float) -> None:
    p, x, weight = parts(dtype=dtype), rows(20, 12, dtype).view(4, 5, 12), rows(7, 12, dtype)
    constant = 0.3 * rows(3, 12, dtype) if offset else None
    M = explicit(p, 1.5, constant)
    out = ridge_transform(x, *p, 1.5, constant)
    assert out.shape == x.shape
    assert (out - x @ M.T).abs().max() <= tolerance
    assert (ridge_merge(weight, *p, 1.5, constant) - weight @ M).abs().max() <= tolerance
    assert (out @ weight.T - x @ ridge_merge(weight, *p, 1.5, constant).T).abs().max() <= 10 * tolerance


@each_offset
def test_gradients_of_first_and_second_order_are_those_of_finite_differences(offset: bool) -> None:
    leaves = [rows(4, 5), *parts(5, 2)]
    leaves = [leaf.clone().requires_grad_() for leaf in leaves]
    constant = 0.3 * rows(2, 5) if offset else None
    function = lambda *tensors: ridge_transform(*tensors, 1.5, constant)
    assert torch.autograd.gradcheck(function, leaves)
    assert torch.autograd.gradgradcheck(function, leaves)


def test_gradients_that_nobody_asks_for_are_not_needed() -> None:
    lam, sigma, A, B = parts()
    x = rows(4, 12).requires_grad_()
    ridge_transform(x, lam, sigma, A, B, 1.0).sum().backward()
    M = explicit([lam, sigma, A, B], 1.0)
    assert torch.allclose(x.grad, M.sum(0).expand(4, 12))
    lam.requires_grad_()
    ridge_transform(x.detach(), lam, sigma, A, B, 1.0).sum().backward()
    assert torch.allclose(lam.grad, (x.detach() * sigma).sum().view(1))


def test_it_works_under_torch_func() -> None:
    lam, sigma, A, B = parts()
    x = rows(4, 12)
    gradient = torch.func.grad(lambda s: ridge_transform(x, lam, s, A, B, 1.0).sum())(sigma)
    assert torch.allclose(gradient, lam * x.sum(0))


def test_an_identity_passes_everything_on_and_a_bare_ridge_scales_columns() -> None:
    lam, sigma, A, B = parts()
    x, weight = rows(4, 12), rows(7, 12)
    one, none = torch.ones_like(sigma), torch.zeros_like(B)
    assert torch.equal(ridge_transform(x, torch.ones(1), one, A, none, 2.0), x)
    assert torch.equal(ridge_transform(x, lam, sigma, torch.zeros_like(A), none, 2.0), x * (lam * sigma))
    assert torch.equal(ridge_merge(weight, lam, sigma, torch.zeros_like(A), none, 2.0), weight * (lam * sigma))


def test_with_full_rank_it_can_be_any_matrix() -> None:
    torch.manual_seed(0)
    target = torch.randn(8, 8)
    _, sigma, A, _ = parts(8, 8, torch.float32)
    B = torch.linalg.solve(A.T, (target - torch.diag(sigma)).T).T
    x = torch.randn(50, 8)
    assert (ridge_transform(x, torch.ones(1), sigma, A, B, 1.0) - x @ target.T).abs().max() <= 1e-4


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_half_precision_is_computed_in_single_precision_and_rounded_once(dtype: torch.dtype) -> None:
    p, x, weight = parts(200, 8, torch.float32), rows(6, 200).to(dtype), rows(7, 200).to(dtype)
    out = ridge_transform(x, *p, 0.5)
    assert out.dtype == dtype
    exact = ridge_transform(x.double(), *(part.double() for part in p), 0.5)
    spacing = torch.finfo(dtype).eps * exact.abs()
    assert bool(((out.double() - exact).abs() <= 0.51 * spacing + 1e-4).all())
    merged = ridge_merge(weight, *p, 0.5)
    exact = ridge_merge(weight.double(), *(part.double() for part in p), 0.5)
    assert merged.dtype == dtype
    assert bool(((merged.double() - exact).abs() <= 0.51 * torch.finfo(dtype).eps * exact.abs() + 1e-4).all())
    rounded = [part.to(dtype) for part in p]
    assert torch.equal(ridge_transform(x, *rounded, 0.5), ridge_transform(x, *(r.float() for r in rounded), 0.5))


def test_autocast_does_not_reach_it() -> None:
    p, x = parts(64, 4, torch.float32), rows(6, 64, torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        inside = ridge_transform(x, *p, 0.5)
        dropped = transform_with_dropout(x, *p, 0.5, None, torch.nn.Identity())
    outside = ridge_transform(x, *p, 0.5)
    assert torch.equal(inside, outside)
    assert (dropped - outside).abs().max() <= 1e-5


@each_offset
def test_dropout_reaches_the_low_rank_path_only(offset: bool) -> None:
    lam, sigma, A, B = parts()
    x, constant = rows(4, 12), 0.3 * rows(3, 12) if offset else None
    everything = torch.nn.Dropout(1.0)
    out = transform_with_dropout(x, lam, sigma, A, B, 2.0, constant, everything)
    bare = ridge_transform(x, lam, sigma, A, torch.zeros_like(B), 2.0, constant)
    assert (out - bare).abs().max() <= 1e-12
    nothing = transform_with_dropout(x, lam, sigma, A, B, 2.0, constant, torch.nn.Dropout(0.0))
    assert (nothing - ridge_transform(x, lam, sigma, A, B, 2.0, constant)).abs().max() <= 1e-12


def test_between_forward_and_backward_it_keeps_the_input_and_r_numbers_a_row() -> None:
    p = [part.requires_grad_() for part in parts(256, 4, torch.float32)]
    x = rows(100, 256).bfloat16()
    kept: dict[int, int] = {}
    known = {tensor.untyped_storage().data_ptr() for tensor in (x, *p)}

    def pack(tensor: Tensor) -> Tensor:
        if tensor.untyped_storage().data_ptr() not in known:
            kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        out = ridge_transform(x, *p, 0.5)
    assert out.requires_grad
    assert sum(kept.values()) <= 4 * (100 * 4 + 2 * 256)  # A x in float32, and lambda sigma


def test_an_empty_batch_is_fine() -> None:
    p = [part.requires_grad_() for part in parts()]
    out = ridge_transform(torch.zeros(0, 3, 12, dtype=torch.float64), *p, 1.0)
    assert out.shape == (0, 3, 12)
    out.sum().backward()
    assert not p[2].grad.any()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"x": torch.zeros(3, 7)}, r"\(3, 7\).*sigma \(8,\)"),
        ({"x": torch.tensor(1.0)}, r" \(\), lambda"),
        ({"sigma": torch.ones(1)}, r"sigma \(1,\)"),  # would be broadcast
        ({"lam": torch.ones(8)}, r"lambda \(8,\)"),
        ({"A": torch.zeros(8)}, r"A \(8,\)"),
        ({"B": torch.zeros(2, 8)}, r"B \(2, 8\)"),
    ],
    ids=lambda value: "" if isinstance(value, str) else next(iter(value)),
)
def test_shapes_that_do_not_fit_are_named(change: dict[str, Tensor], words: str) -> None:
    lam, sigma, A, B = ridge_init(8, 2, 4)
    parts = {"x": torch.zeros(3, 8), "lam": lam, "sigma": sigma, "A": A, "B": B} | change
    for compute in (ridge_transform, ridge_merge):
        with pytest.raises(ValueError, match=words):
            compute(*parts.values(), 2.0)


@pytest.mark.parametrize("compute", [ridge_transform, ridge_merge])
def test_whole_numbers_are_refused_as_the_result_would_be_rounded(compute: Any) -> None:
    with pytest.raises(TypeError, match=r"must be a floating tensor, got torch.int64"):
        compute(torch.ones(3, 8, dtype=torch.int64), *ridge_init(8, 2, 4), 2.0)
