"""The public names: a change here is a change for users."""

from __future__ import annotations

import dataclasses
import inspect
from pathlib import Path

import peft
import pytest

import ridgelora


def test_the_public_names_are_these() -> None:
    assert ridgelora.__all__ == [
        "RidgeLoraConfig",
        "RidgeLoraLayer",
        "RidgeLoraLinear",
        "RidgeLoraModel",
        "RidgeNorm",
        "RidgeSquashingMixin",
        "RidgeSquashingTrainer",
        "convert_third_party",
        "ridge_init",
        "ridge_init_B",
        "ridge_merge",
        "ridge_nuclear_norm",
        "ridge_offset",
        "ridge_param_groups",
        "ridge_squashing_loss",
        "ridge_squashing_terms",
        "ridge_transform",
    ]
    assert all(inspect.getdoc(getattr(ridgelora, name)) for name in ridgelora.__all__)


def test_the_settings_are_these_with_these_defaults() -> None:
    config, shared = ridgelora.RidgeLoraConfig(), {field.name for field in dataclasses.fields(peft.PeftConfig)}
    own = {f.name: getattr(config, f.name) for f in dataclasses.fields(config) if f.name not in shared}
    assert own == {
        "r": 8,
        "ridgelora_alpha": 16,
        "target_modules": None,
        "exclude_modules": None,
        "ridgelora_dropout": 0.0,
        "init_weights": "exact",
        "noise_mean": 2.0,
        "noise_std": 1.0,
        "use_rslora": False,
        "connection": "series",
        "bias": "none",
        "fan_in_fan_out": False,
        "rank_pattern": {},
        "alpha_pattern": {},
        "modules_to_save": None,
        "layers_to_transform": None,
        "layers_pattern": None,
    }


def test_every_setting_says_what_it_is() -> None:
    shared = {field.name for field in dataclasses.fields(peft.PeftConfig)}
    for field in dataclasses.fields(ridgelora.RidgeLoraConfig):
        if field.name not in shared:
            assert field.metadata["help"]
            assert f"{field.name}: " in ridgelora.RidgeLoraConfig.__doc__


@pytest.mark.parametrize(
    ("name", "signature"),
    [
        (
            "ridge_init",
            "(in_features, r, alpha, *, init='exact', noise_mean=2.0, noise_std=1.0, use_rslora=False, generator=None, "
            "dtype=torch.float32)",
        ),
        ("ridge_init_B", "(A, sigma, scaling, lam=1.0)"),
        ("ridge_offset", "(lam, sigma, A, B, scaling)"),
        ("ridge_transform", "(x, lam, sigma, A, B, scaling, offset=None)"),
        ("ridge_merge", "(weight, lam, sigma, A, B, scaling, offset=None)"),
        ("ridge_nuclear_norm", "(lam, sigma, A, B, scaling, offset=None, route='auto')"),
        ("ridge_squashing_loss", "(model, adapter_name=None, max_modules=None, generator=None, route='auto')"),
        ("ridge_squashing_terms", "(model, adapter_name=None, max_modules=None, generator=None, route='auto')"),
        ("RidgeSquashingTrainer", "(*args, beta_rs=0.0, rs_every=1, rs_max_modules=None, **kwargs)"),
        ("ridge_param_groups", "(model, lr, weight_decay, ridge_lr=None)"),
        ("convert_third_party", "(state_dict, ridgelora_alpha=16, prefix='base_model.model.')"),
    ],
)
def test_signatures_are_these(name: str, signature: str) -> None:
    found = inspect.signature(getattr(ridgelora, name))
    parameters = [parameter.replace(annotation=inspect.Parameter.empty) for parameter in found.parameters.values()]
    assert str(inspect.Signature(parameters)) == signature


def test_the_version_is_the_newest_of_the_changelog() -> None:
    changelog = Path(__file__).parents[1].joinpath("CHANGELOG.md").read_text("utf-8")
    assert f"\n## {ridgelora.__version__} " in changelog
