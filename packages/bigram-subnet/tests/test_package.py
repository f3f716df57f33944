"""The public names: a change here is a change for users."""

from __future__ import annotations

import dataclasses
import inspect
import re
from pathlib import Path

import pytest

import bigram_subnet


def test_the_version_is_the_newest_of_the_changelog() -> None:
    changelog = Path(__file__).parents[1].joinpath("CHANGELOG.md").read_text(encoding="utf-8")
    assert re.findall(r"^## (\S+)", changelog, flags=re.MULTILINE)[0] == bigram_subnet.__version__


def test_the_public_names_are_these() -> None:
    assert bigram_subnet.__all__ == [
        "BigramCounts",
        "ContinuousSparsifier",
        "LensResult",
        "MaskCounts",
        "NgramTarget",
        "OverlapResult",
        "Rotation",
        "SelfTarget",
        "SparsifyConfig",
        "SubnetworkMask",
        "TrainLog",
        "ablation_report",
        "apply_mask",
        "block_shares",
        "covariance_similarity",
        "distribution_cross_entropy",
        "evaluate_subnetwork",
        "layer_lens",
        "layer_rotations",
        "loss_is_stable",
        "mask_overlap",
        "maskable_weights",
        "masked",
        "residual_states",
        "ridge_map",
        "rotation_angle",
        "select_subnetwork",
        "should_stop",
        "surprisal",
        "surprisal_correlation",
        "train_subnetwork",
    ]
    assert all(hasattr(bigram_subnet, name) for name in bigram_subnet.__all__)
    assert set(bigram_subnet.__all__) < set(dir(bigram_subnet))


def test_a_name_that_there_is_not_is_an_attribute_error_and_a_function_is_not_its_module() -> None:
    import bigram_subnet.surprisal

    assert inspect.isfunction(bigram_subnet.surprisal)
    with pytest.raises(AttributeError, match="module 'bigram_subnet' has no attribute 'subnetwork'"):
        bigram_subnet.subnetwork  # noqa: B018


def test_every_public_name_is_documented() -> None:
    assert all(inspect.getdoc(getattr(bigram_subnet, name)) for name in bigram_subnet.__all__)


def test_results_have_these_fields() -> None:
    assert bigram_subnet.MaskCounts._fields == ("below", "above", "undecided")
    assert bigram_subnet.Rotation._fields == ("to_input", "to_output")
    names = {field.name for field in dataclasses.fields(bigram_subnet.OverlapResult)}
    assert {"overlap", "expected", "contained", "p_value"} <= names


def test_the_signatures_keep_their_names_and_defaults() -> None:
    overlap = inspect.signature(bigram_subnet.mask_overlap).parameters
    assert {name: overlap[name].default for name in list(overlap)[2:]} == {
        "null": "uniform",
        "draws": 10000,
        "layout": "per_head",
        "config": None,
        "seed": 0,
    }
    counts = inspect.signature(bigram_subnet.BigramCounts.from_files).parameters
    assert list(counts) == ["paths", "vocab_size", "order", "min_count", "prune_every"]
    head = inspect.signature(bigram_subnet.SubnetworkMask.set_attention_head).parameters
    assert list(head) == ["self", "layer", "head", "keep", "config", "layout"]
