"""The public names: a change here is a change for users."""

from __future__ import annotations

import dataclasses
import inspect

import dota_clip


def test_the_public_names_are_these() -> None:
    assert dota_clip.__all__ == [
        "PRESETS",
        "DotaAdapter",
        "DotaConfig",
        "DotaOutput",
        "HFClipEncoder",
        "HumanFeedback",
        "OpenClipEncoder",
        "TDAAdapter",
        "TDAConfig",
        "TDAOutput",
        "ViewSelection",
        "load_encoder",
        "select_views",
        "zero_shot_weights",
    ]
    assert all(hasattr(dota_clip, name) for name in dota_clip.__all__)


def test_the_settings_are_these_with_these_defaults() -> None:
    defaults = {field.name: field.default for field in dataclasses.fields(dota_clip.DotaConfig)}
    assert defaults == {
        "epsilon": 1e-4,
        "sigma2": 0.002,
        "eta": 0.3,
        "rho": 0.02,
        "mean_init": "constant",
        "covariance": "full",
        "update_first": False,
        "count": "mean",
        "prob_threshold": 0.0,
        "initial_count": 1.0,
    }


def test_outputs_have_these_fields() -> None:
    assert dota_clip.DotaOutput._fields == ("logits", "zero_shot_logits", "dota_logits", "fusion_weight")
    assert dota_clip.TDAOutput._fields == ("logits", "zero_shot_logits")
    assert dota_clip.ViewSelection._fields == ("indices", "features", "probs", "logits", "entropy", "mean_feature")


def test_every_public_name_is_documented() -> None:
    for name in dota_clip.__all__:
        if name != "PRESETS":
            assert inspect.getdoc(getattr(dota_clip, name))


def test_presets_are_those_of_the_release() -> None:
    presets = dota_clip.PRESETS
    assert len(presets) == 15
    assert {preset.sigma2 for preset in presets.values()} == {0.002}
    assert (presets["eurosat"].eta, presets["eurosat"].rho) == (3.0, 0.05)
    assert {name: preset.epsilon for name, preset in presets.items() if preset.epsilon != 1e-4} == {
        "caltech101": 2e-3,
        "food101": 4e-5,
    }
