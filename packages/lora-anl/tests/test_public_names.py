"""The public names: a change here is a change for users."""

from __future__ import annotations

import dataclasses
import inspect
from pathlib import Path

import peft
import pytest

import lora_anl


def test_the_public_names_are_these() -> None:
    assert lora_anl.__all__ == [
        "AdaptiveNonlinearLayer",
        "AuroraConfig",
        "AuroraLayer",
        "AuroraLinear",
        "AuroraModel",
        "BSplineBasis",
        "StaticMergeWarning",
        "bspline_basis",
        "calibrated_delta_weight",
        "convert_third_party",
        "measure_merge_gap",
        "merge_calibrated",
    ]
    assert all(inspect.getdoc(getattr(lora_anl, name)) for name in lora_anl.__all__)


def test_the_settings_are_these_with_these_defaults() -> None:
    config, shared = lora_anl.AuroraConfig(), {field.name for field in dataclasses.fields(peft.PeftConfig)}
    own = {f.name: getattr(config, f.name) for f in dataclasses.fields(config) if f.name not in shared}
    assert own == {
        "r": 2,
        "aurora_alpha": 4,
        "target_modules": None,
        "exclude_modules": None,
        "aurora_dropout": 0.0,
        "activation": "tanh",
        "use_fixed": True,
        "use_spline": True,
        "grid_size": 5,
        "spline_order": 3,
        "grid_range": (-1.0, 1.0),
        "spline_mode": "pooled",
        "spline_init_scale": 0.1,
        "forward_mode": "dynamic",
        "merge_policy": "error",
        "init_weights": True,
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
    for field in dataclasses.fields(lora_anl.AuroraConfig):
        if field.name not in shared:
            assert field.metadata["help"]
            assert f"{field.name}: " in lora_anl.AuroraConfig.__doc__


@pytest.mark.parametrize(
    ("name", "signature"),
    [
        ("bspline_basis", "(x, knots, order)"),
        ("BSplineBasis", "(grid_size=5, order=3, grid_range=(-1.0, 1.0))"),
        (
            "AdaptiveNonlinearLayer",
            "(rank, grid_size=5, spline_order=3, grid_range=(-1.0, 1.0), spline_mode='pooled', activation='tanh', "
            "use_fixed=True, use_spline=True, spline_init_scale=0.1)",
        ),
        ("measure_merge_gap", "(model, dataloader, adapter_name=None)"),
        ("calibrated_delta_weight", "(layer, inputs, eps=0.0001, adapter_name=None)"),
        ("merge_calibrated", "(model, dataloader, eps=0.0001, adapter_name=None)"),
        ("convert_third_party", "(state_dict, aurora_alpha=4, prefix='base_model.model.')"),
    ],
)
def test_signatures_are_these(name: str, signature: str) -> None:
    found = inspect.signature(getattr(lora_anl, name))
    parameters = [parameter.replace(annotation=inspect.Parameter.empty) for parameter in found.parameters.values()]
    assert str(inspect.Signature(parameters)) == signature


def test_the_version_is_the_newest_of_the_changelog() -> None:
    changelog = Path(__file__).parents[1].joinpath("CHANGELOG.md").read_text("utf-8")
    assert f"\n## {lora_anl.__version__} " in changelog
