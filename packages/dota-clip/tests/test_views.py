"""View selection and human feedback."""

from __future__ import annotations

import torch
from torch.nn import functional

from dota_clip import DotaAdapter, HumanFeedback, select_views

WEIGHTS = functional.normalize(torch.randn(8, 4, generator=torch.Generator().manual_seed(0)), dim=0)


def images(count: int) -> torch.Tensor:
    return functional.normalize(torch.randn(count, 8, generator=torch.Generator().manual_seed(1)), dim=1)


def test_the_most_confident_views_are_kept_in_order() -> None:
    views = images(64)
    selection = select_views(3 * views, WEIGHTS, fraction=0.1, logit_scale=10.0)
    entropies = torch.special.entr((10 * views @ WEIGHTS).softmax(1)).sum(1)
    assert selection.indices.tolist() == entropies.argsort()[:6].tolist()
    torch.testing.assert_close(selection.features, views[selection.indices])
    torch.testing.assert_close(selection.mean_feature, selection.features.mean(0))


def test_a_share_of_views_is_counted_in_decimals() -> None:
    # 0.29 * 100 is 28.999... in floating point
    assert len(select_views(images(100), WEIGHTS, fraction=0.29).indices) == 29


def test_a_single_view_is_kept_as_it_is() -> None:
    selection = select_views(images(1), WEIGHTS)
    torch.testing.assert_close(selection.features, images(1))


def test_feedback_asks_about_the_least_certain_share() -> None:
    feedback = HumanFeedback(gamma=0.5)
    assert [feedback.is_uncertain(value) for value in (0.9, 0.5, 0.95, 0.4)] == [False, True, False, True]
    assert not any(HumanFeedback(gamma=0.0).is_uncertain(value) for value in (0.9, 0.5, 0.1))


def test_feedback_continued_from_its_confidences_asks_as_before() -> None:
    values = torch.rand(50, generator=torch.Generator().manual_seed(3)).tolist()
    whole = HumanFeedback(0.2)
    expected = [whole.is_uncertain(value) for value in values]
    half = HumanFeedback(0.2)
    answers = [half.is_uncertain(value) for value in values[:25]]
    resumed = HumanFeedback(0.2, half.confidences)
    assert answers + [resumed.is_uncertain(value) for value in values[25:]] == expected


def test_an_uncertain_image_is_fitted_with_the_one_hot_answer() -> None:
    guided, told = DotaAdapter(WEIGHTS, logit_scale=10.0), DotaAdapter(WEIGHTS, logit_scale=10.0)
    feedback = HumanFeedback(gamma=0.999)
    asked = 0
    for image in images(12):
        _, was_asked = feedback.step(guided, image, ask=lambda: 2)
        asked += was_asked
        told.step(image, label=2 if was_asked else None)
    assert 0 < asked < 12
    assert torch.equal(guided.mean, told.mean)
    assert torch.equal(guided.covariance, told.covariance)
