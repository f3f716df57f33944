"""The objective and the schedule: limits, symmetry, bounds and masks."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.distributions import StudentT

from nips_common.testing.bad_input import BadInput, bad_inputs
from toto_ts import CompositeLoss, TotoOutput, WarmupStableDecay, general_robust_loss, next_patch_loss, nll

ALPHAS = [2.0, 1.0, 0.5, 0.0, -2.0, -math.inf]


@pytest.mark.parametrize("alpha", ALPHAS)
def test_the_robust_loss_is_zero_at_zero_and_even(alpha: float) -> None:
    residual = torch.linspace(0.01, 50, 40)
    assert float(general_robust_loss(torch.zeros(1), 0.1, alpha)) == 0
    assert torch.equal(general_robust_loss(residual, 0.1, alpha), general_robust_loss(-residual, 0.1, alpha))


def test_the_robust_loss_is_continuous_in_alpha_at_zero() -> None:
    residual = torch.linspace(-3, 3, 61)
    near, at = general_robust_loss(residual, 0.5, 1e-4), general_robust_loss(residual, 0.5, 0.0)
    torch.testing.assert_close(near, at, rtol=0, atol=1e-3)


def test_the_cauchy_gradient_is_bounded_and_the_square_one_is_not() -> None:
    residual = torch.linspace(-1e4, 1e4, 200_001, dtype=torch.float64, requires_grad=True)
    (cauchy,) = torch.autograd.grad(general_robust_loss(residual, 0.1, 0.0).sum(), residual)
    (square,) = torch.autograd.grad(general_robust_loss(residual, 0.1, 2.0).sum(), residual)
    assert float(cauchy.abs().max()) <= 1 / (0.1 * math.sqrt(2)) + 1e-9
    assert float(square.abs().max()) == pytest.approx(1e4 / 0.01)


def test_the_composite_loss_is_the_weighted_sum() -> None:
    distribution, target = (
        StudentT(torch.full((3,), 4.0), torch.tensor([0.0, 1.0, -1.0])),
        torch.tensor([0.5, 0.5, 0.5]),
    )
    expected = 0.3 * nll(distribution, target) + 0.7 * general_robust_loss(distribution.mean - target, 0.2, 0.0)
    torch.testing.assert_close(CompositeLoss(0.3, 0.2)(distribution, target), expected)


@pytest.fixture
def output() -> TotoOutput:
    generator = torch.Generator().manual_seed(0)
    loc = torch.randn(2, 3, 8, generator=generator)
    distribution = StudentT(torch.full((2, 3, 8), 4.0), loc, torch.ones(2, 3, 8))
    return TotoOutput(distribution, 10 * loc, 2 + loc.square())


def test_only_valid_targets_count(output: TotoOutput) -> None:
    targets, mask = torch.randn(2, 3, 8), torch.rand(2, 3, 8) > 0.5
    normalised = (targets - output.loc) / output.scale
    expected = CompositeLoss()(output.distribution, normalised)[mask].mean()
    torch.testing.assert_close(next_patch_loss(output, targets, mask), expected)
    torch.testing.assert_close(next_patch_loss(output, torch.where(mask, targets, torch.nan)), expected)


def test_exogenous_variates_never_count(output: TotoOutput) -> None:
    targets = torch.randn(2, 3, 8)
    expected = next_patch_loss(output, targets, torch.tensor([True, True, False]).view(1, 3, 1).expand(2, 3, 8))
    assert torch.equal(next_patch_loss(output, targets, num_exogenous=1), expected)


def test_masked_targets_leave_gradients_finite_whatever_they_hold() -> None:
    loc = torch.zeros(1, 1, 4, requires_grad=True)
    output = TotoOutput(StudentT(torch.full((1, 1, 4), 3.0), loc), torch.zeros(1, 1, 4), torch.ones(1, 1, 4))
    next_patch_loss(
        output, torch.tensor([[[1.0, torch.nan, torch.inf, 2.0]]]), torch.tensor([[[1, 1, 0, 1]]])
    ).backward()
    assert bool(loc.grad.isfinite().all())
    assert float(loc.grad[0, 0, 1]) == float(loc.grad[0, 0, 2]) == 0


def test_no_valid_target_gives_a_loss_of_zero(output: TotoOutput) -> None:
    assert float(next_patch_loss(output, torch.full((2, 3, 8), torch.nan))) == 0


def make_schedule(**options: Any) -> tuple[torch.optim.Optimizer, WarmupStableDecay]:
    optimizer = torch.optim.AdamW([{"params": [torch.zeros(1)], "lr": 1e-3}, {"params": [torch.zeros(1)], "lr": 1e-4}])
    return optimizer, WarmupStableDecay(optimizer, 2, 3, 4, **options)


def test_each_group_follows_its_own_rate_unless_one_is_given() -> None:
    optimizer, schedule = make_schedule()
    optimizer.step()
    schedule.step()
    assert [group["lr"] for group in optimizer.param_groups] == [1e-3, 1e-4]
    optimizer, schedule = make_schedule(base_lr=5e-4)
    optimizer.step()
    schedule.step()
    assert [group["lr"] for group in optimizer.param_groups] == [5e-4, 5e-4]


def test_the_rate_ends_at_the_minimum_and_stays_there() -> None:
    optimizer, schedule = make_schedule(min_lr=3e-5)
    rates = []
    for _ in range(15):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    assert rates[8:] == [3e-5] * 7
    assert rates == sorted(rates[:2]) + sorted(rates[2:], reverse=True)


def test_a_schedule_resumes_where_it_was() -> None:
    optimizer, schedule = make_schedule()
    for _ in range(6):
        optimizer.step()
        schedule.step()
    again, resumed = make_schedule()
    resumed.load_state_dict(schedule.state_dict())
    again.load_state_dict(optimizer.state_dict())
    for _ in range(2):
        for one, two in ((optimizer, schedule), (again, resumed)):
            one.step()
            two.step()
    assert again.param_groups[0]["lr"] == optimizer.param_groups[0]["lr"]


@bad_inputs(
    [
        BadInput("alpha", lambda output: general_robust_loss(torch.zeros(1), 0.1, 2.5), ("at most 2", "2.5")),
        BadInput("nan alpha", lambda output: general_robust_loss(torch.zeros(1), 0.1, math.nan), ("at most 2", "nan")),
        BadInput("delta", lambda output: general_robust_loss(torch.zeros(1), 0.0, 1.0), ("above 0", "0.0")),
        BadInput("lambda", lambda output: CompositeLoss(1.5), ("[0, 1]", "1.5")),
        BadInput("composite alpha", lambda output: CompositeLoss(alpha=3), ("at most 2", "3")),
        BadInput("targets", lambda output: next_patch_loss(output, torch.zeros(2, 3, 4)), ("(2, 3, 8)", "(2, 3, 4)")),
        BadInput(
            "mask",
            lambda output: next_patch_loss(output, torch.zeros(2, 3, 8), torch.ones(2, 3)),
            ("target_padding_mask", "(2, 3)"),
        ),
        BadInput(
            "exogenous", lambda output: next_patch_loss(output, torch.zeros(2, 3, 8), num_exogenous=3), ("0 and 2", "3")
        ),
        BadInput("steps", lambda output: WarmupStableDecay(make_schedule()[0], -1, 0, 0), ("warmup_steps", "-1")),
        BadInput("minimum", lambda output: make_schedule(min_lr=1e-2), ("min_lr", "0.01")),
    ]
)
def test_what_cannot_be_is_refused(case: BadInput, output: Tensor) -> None:
    case.check(output)
