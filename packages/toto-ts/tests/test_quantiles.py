"""The distribution function and its inverse against scipy."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from toto_ts.output import StudentTParameters
from toto_ts.quantiles import mixture_quantile, student_t_cdf


def test_the_distribution_function_equals_scipys() -> None:
    df = np.array([2.0001, 2.5, 3.0, 7.7, 40.0, 900.0, 1.9e4, 1e6])[:, None]
    t = np.concatenate([-np.logspace(-6, 5, 40), [0.0], np.logspace(-6, 5, 40)])
    actual = student_t_cdf(torch.from_numpy(t), torch.from_numpy(df)).numpy()
    np.testing.assert_allclose(actual, stats.t.cdf(t, df), rtol=1e-7, atol=1e-9)


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.tuples(st.floats(2.001, 1e5), st.floats(-1e3, 1e3), st.floats(1e-3, 1e3), st.floats(0.01, 1)),
        min_size=1,
        max_size=5,
    ),
    st.floats(0.001, 0.999),
)
def test_a_quantile_has_its_probability_below_it(
    components: list[tuple[float, float, float, float]], level: float
) -> None:
    df, loc, scale, weight = torch.tensor(components, dtype=torch.float64).unbind(-1)
    probs = weight / weight.sum()
    x = mixture_quantile(StudentTParameters(df, loc, scale, probs), torch.tensor([level]))
    below = (probs * student_t_cdf((x - loc) / scale, df)).sum()
    density = (probs * torch.from_numpy(stats.t.pdf(((x - loc) / scale).numpy(), df.numpy())) / scale).sum()
    # the quantile itself is exact to 1e-10 of its size, which the density turns into probability
    assert abs(float(below) - level) < 1e-7 + 1e-8 * (1 + float(x.abs())) * float(density)


def test_quantiles_of_a_batch_are_those_of_its_entries() -> None:
    generator = torch.Generator().manual_seed(0)
    df = 2.5 + 5 * torch.rand(2, 3, 4, generator=generator)
    loc, scale = torch.randn(2, 3, 4, generator=generator), 0.1 + torch.rand(2, 3, 4, generator=generator)
    parameters = StudentTParameters(df, loc, scale, torch.softmax(loc, -1))
    levels = torch.tensor([0.05, 0.5, 0.95])
    quantiles = mixture_quantile(parameters, levels)
    assert quantiles.shape == (2, 3, 3)
    assert quantiles.dtype == torch.float32
    assert bool((quantiles.diff(dim=-1) > 0).all())
    alone = mixture_quantile(StudentTParameters(*(field[1, 2] for field in parameters)), levels)
    torch.testing.assert_close(quantiles[1, 2], alone)
