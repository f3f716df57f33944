"""What is refused, in which words, and that a refusal changes nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from dota_clip import DotaAdapter, DotaConfig, HumanFeedback, TDAAdapter, TDAConfig, select_views

WEIGHTS = torch.eye(4)[:, :3].contiguous()
VIEW = torch.tensor([0.6, 0.8, 0.0, 0.0])


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"epsilon": 0}, "epsilon must be in (0, 1], got 0"),
        ({"epsilon": 1.5}, "epsilon must be in (0, 1], got 1.5"),
        ({"epsilon": float("nan")}, "epsilon"),
        ({"sigma2": 0}, "sigma2"),
        ({"eta": -1}, "eta"),
        ({"rho": float("inf")}, "rho"),
        ({"mean_init": "random"}, "mean_init must be one of constant, text, got 'random'"),
        ({"covariance": "low-rank"}, "one of full, pooled, diagonal, fixed"),
        ({"count": 3}, "one of mean, samples"),
        ({"update_first": 1}, "True or False"),
        ({"prob_threshold": 1.0}, "prob_threshold must be in [0, 1)"),
        ({"initial_count": -1}, "initial_count"),
    ],
)
def test_a_dota_setting_out_of_range_is_named(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError) as caught:
        DotaConfig(**fields)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"positive_shot_capacity": 0}, "positive_shot_capacity"),
        ({"negative_alpha": -1}, "negative_alpha"),
        ({"negative": "no"}, "negative must be True or False"),
        ({"negative_entropy": (0.5, 0.2)}, "negative_entropy must be a pair (low, high)"),
        ({"negative_mask": 0.5}, "negative_mask"),
    ],
)
def test_a_tda_setting_out_of_range_is_named(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError) as caught:
        TDAConfig(**fields)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("views", "words"),
    [
        (torch.tensor([float("nan"), 0, 0, 0]), "finite"),
        (torch.tensor([[1.0, 0, 0, 0], [0, float("inf"), 0, 0]]), "row 1"),
        (torch.ones(5), "4"),
        (torch.ones(1, 5), "(1, 5)"),
        (torch.ones(0, 4), "at least one row"),
        (torch.ones(1, 1, 4), "(1, 1, 4)"),
        ([1.0, 0.0, 0.0, 0.0], "tensor"),
    ],
)
@pytest.mark.parametrize("make", [DotaAdapter, TDAAdapter])
def test_views_that_do_not_fit_are_refused_and_change_nothing(make: Any, views: Any, words: str) -> None:
    adapter = make(WEIGHTS)
    adapter.step(VIEW)
    before = adapter.state_dict()
    with pytest.raises(ValueError) as caught:
        adapter.step(views)
    assert words in str(caught.value)
    assert all(torch.equal(value, before[key]) for key, value in adapter.state_dict().items())


@pytest.mark.parametrize(
    ("probs", "words"),
    [
        (torch.tensor([0.5, 0.3, 0.1]), "sums to 0.9"),
        (torch.tensor([1.2, -0.2, 0.0]), "non-negative"),
        (torch.tensor([float("nan"), 0.5, 0.5]), "row 0"),
        (torch.tensor([0.5, 0.5]), "(1, 3)"),
        (torch.full((2, 3), 1 / 3), "(1, 3)"),
    ],
)
def test_probabilities_that_do_not_fit_are_refused_and_change_nothing(probs: torch.Tensor, words: str) -> None:
    adapter = DotaAdapter(WEIGHTS)
    before = adapter.state_dict()
    with pytest.raises(ValueError) as caught:
        adapter.update(VIEW, probs)
    assert words in str(caught.value)
    assert all(torch.equal(value, before[key]) for key, value in adapter.state_dict().items())


def test_probabilities_within_one_percent_of_one_are_taken() -> None:
    DotaAdapter(WEIGHTS).update(VIEW, torch.tensor([0.5, 0.3, 0.209]))


@pytest.mark.parametrize("bad", [torch.ones(4), torch.ones(0, 3), torch.full((4, 3), float("nan")), "weights"])
def test_class_weights_that_do_not_fit_are_refused(bad: Any) -> None:
    with pytest.raises(ValueError, match="class_weights must be"):
        DotaAdapter(bad)


@pytest.mark.parametrize("scale", [0, -1.0, float("nan")])
def test_a_logit_scale_must_be_above_zero(scale: float) -> None:
    with pytest.raises(ValueError, match="logit_scale"):
        DotaAdapter(WEIGHTS, logit_scale=scale)


@pytest.mark.parametrize("label", [-1, 3, 1.0, True])
def test_a_label_outside_the_classes_is_refused(label: Any) -> None:
    with pytest.raises(ValueError, match="from 0 to 2"):
        DotaAdapter(WEIGHTS).step(VIEW, label=label)


def test_tda_takes_one_view_an_image() -> None:
    with pytest.raises(ValueError, match="one view an image, got 2"):
        TDAAdapter(WEIGHTS).step(VIEW.expand(2, -1))


def test_a_selection_that_keeps_no_view_says_how_many_are_needed() -> None:
    with pytest.raises(ValueError, match="at least 10 views"):
        select_views(VIEW.expand(9, -1), WEIGHTS)
    with pytest.raises(ValueError, match="fraction"):
        select_views(VIEW.expand(9, -1), WEIGHTS, fraction=0.0)
    with pytest.raises(ValueError, match="zero vectors"):
        select_views(torch.zeros(10, 4), WEIGHTS)


def test_feedback_refuses_a_share_outside_its_range() -> None:
    with pytest.raises(ValueError, match="gamma"):
        HumanFeedback(1.0)


def test_a_state_that_does_not_fit_names_every_key_and_changes_nothing() -> None:
    adapter = DotaAdapter(WEIGHTS)
    before = adapter.state_dict()
    state = adapter.state_dict()
    state["surplus"] = state.pop("count")
    state["mean"] = torch.ones(2, 4)
    state["covariance"] += 1
    with pytest.raises(ValueError) as caught:
        adapter.load_state_dict(state)
    for word in ("surplus", "count", "mean", "(2, 4)", "(3, 4)"):
        assert word in str(caught.value)
    assert all(torch.equal(value, before[key]) for key, value in adapter.state_dict().items())


def test_a_truncated_state_file_is_named(tmp_path: Path) -> None:
    DotaAdapter(WEIGHTS).save_pretrained(tmp_path / "state")
    file = tmp_path / "state" / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-20])
    with pytest.raises(ValueError) as caught:
        DotaAdapter.from_pretrained(tmp_path / "state")
    assert str(file) in str(caught.value)


def test_a_state_of_another_method_is_refused(tmp_path: Path) -> None:
    TDAAdapter(WEIGHTS).save_pretrained(tmp_path / "state")
    with pytest.raises(ValueError, match=r"dota-clip/tda"):
        DotaAdapter.from_pretrained(tmp_path / "state")
