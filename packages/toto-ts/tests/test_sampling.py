"""Samples against the distribution they come from, and where their noise comes from."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats

from toto_ts.output import Projections
from toto_ts.sampling import noise_of, sample


def test_noise_belongs_to_the_sample_and_not_to_the_batch() -> None:
    together = noise_of(5, 2, range(6), (4, 3))
    apart = torch.cat([noise_of(5, 2, range(4), (4, 3)), noise_of(5, 2, range(4, 6), (4, 3))])
    assert torch.equal(together, apart)
    assert not torch.equal(together[0], together[1])
    assert not torch.equal(together, noise_of(6, 2, range(6), (4, 3)))
    assert not torch.equal(together, noise_of(5, 3, range(6), (4, 3)))


def projections(df: list[float], loc: list[float], scale: list[float], probs: list[float]) -> Projections:
    """What the heads give for these parameters: softplus and softmax undone."""

    def inverse_softplus(x: torch.Tensor) -> torch.Tensor:
        return x + torch.log(-torch.expm1(-x))

    as_tensor = [torch.tensor(field, dtype=torch.float64) for field in (df, loc, scale, probs)]
    return Projections(
        inverse_softplus(as_tensor[0] - 2), as_tensor[1], inverse_softplus(as_tensor[2]), as_tensor[3].log()
    )


@pytest.mark.parametrize("df", [2.01, 3.0, 30.0, 1e5])
def test_a_single_component_is_a_student_t(df: float) -> None:
    values = sample(projections([df], [3], [2], [1]), noise_of(0, 0, range(4000), (3,)))
    assert stats.kstest(values.numpy(), stats.t(df, loc=3, scale=2).cdf).pvalue > 0.01


def test_a_mixture_has_its_weights() -> None:
    parameters = [4.0, 50.0, 9.0], [-5.0, 0.0, 5.0], [1.0, 0.1, 3.0], [0.2, 0.5, 0.3]
    values = sample(projections(*parameters), noise_of(1, 0, range(4000), (3,))).numpy()

    def cdf(x: np.ndarray) -> np.ndarray:
        parts = zip(*parameters, strict=True)
        return sum(p * stats.t.cdf(x, df, loc=loc, scale=scale) for df, loc, scale, p in parts)

    assert stats.kstest(values, cdf).pvalue > 0.01


def test_the_ends_of_the_unit_interval_give_finite_values() -> None:
    below_one = float(np.nextafter(np.float32(1), np.float32(0)))
    noise = torch.cartesian_prod(*[torch.tensor([0.0, below_one])] * 3)
    lowest = Projections(*torch.tensor([[-1e4], [0.0], [1.0], [1.0]]))  # degrees of freedom just above 2
    assert bool(sample(lowest, noise).isfinite().all())
