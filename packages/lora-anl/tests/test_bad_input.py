"""What is refused, in which words."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from peft import get_peft_model
from torch import nn

from lora_anl import AdaptiveNonlinearLayer, AuroraConfig, BSplineBasis, bspline_basis
from nips_common.testing.bad_input import BadInput, bad_inputs

NAN = float("nan")
SETTINGS: list[tuple[dict[str, Any], tuple[str, ...]]] = [
    ({"spline_order": -1}, ("spline_order", "from 0 to 5", "-1")),
    ({"spline_order": 6}, ("spline_order", "from 0 to 5", "6")),
    ({"spline_order": 2.0}, ("spline_order", "2.0")),
    ({"grid_size": 0}, ("grid_size", "at least 1", "0")),
    ({"grid_size": True}, ("grid_size", "True")),
    ({"grid_range": (1.0, -1.0)}, ("grid_range", "increasing", "(1.0, -1.0)")),
    ({"grid_range": (1.0, 1.0)}, ("grid_range", "increasing")),
    ({"grid_range": (NAN, 1.0)}, ("grid_range", "finite", "nan")),
    ({"grid_range": (-1.0, float("inf"))}, ("grid_range", "finite", "inf")),
    ({"grid_range": (0, 1, 2)}, ("grid_range", "two numbers", "(0, 1, 2)")),
    ({"grid_range": "01"}, ("grid_range", "two numbers", "01")),
    ({"grid_range": ["-1", "1"]}, ("grid_range", "two numbers", "'-1'")),
    ({"grid_range": {-1: 0, 1: 0}}, ("grid_range", "two numbers", "{-1: 0, 1: 0}")),
    ({"grid_range": (0, 10**400)}, ("grid_range", "finite")),
    ({"grid_range": (0, 1e-320)}, ("grid_range", "between 1e-30 and 1e30 wide", "1e-320")),
    ({"grid_range": "wide"}, ("grid_range", "two numbers", "wide")),
    ({"spline_mode": "shared"}, ("spline_mode", "pooled, per_channel", "shared")),
    ({"activation": "gelu"}, ("activation", "tanh, leaky_relu, sigmoid, relu", "gelu")),
    ({"use_fixed": 1}, ("use_fixed", "True or False", "1")),
    ({"use_spline": "no"}, ("use_spline", "True or False", "no")),
    ({"use_fixed": False, "use_spline": False}, ("use_fixed", "use_spline", "both")),
    ({"spline_init_scale": -0.1}, ("spline_init_scale", "at least 0", "-0.1")),
    ({"spline_init_scale": 1e39}, ("spline_init_scale", "finite", "1e+39")),
    ({"spline_init_scale": NAN}, ("spline_init_scale", "nan")),
]
CONFIG: list[tuple[dict[str, Any], tuple[str, ...]]] = [
    ({"r": 0}, ("r must", "at least 1", "0")),
    ({"r": -2}, ("r must", "-2")),
    ({"r": 2.0}, ("r must", "whole number", "2.0")),
    ({"r": True}, ("r must", "True")),
    ({"aurora_alpha": 0}, ("aurora_alpha", "above 0", "0")),
    ({"aurora_alpha": NAN}, ("aurora_alpha", "nan")),
    ({"aurora_dropout": 1.0}, ("aurora_dropout", "[0, 1)", "1.0")),
    ({"aurora_dropout": -0.1}, ("aurora_dropout", "[0, 1)", "-0.1")),
    ({"aurora_dropout": NAN}, ("aurora_dropout", "[0, 1)", "nan")),
    ({"aurora_dropout": "much"}, ("aurora_dropout", "much")),
    ({"forward_mode": "both"}, ("forward_mode", "dynamic, static", "both")),
    ({"merge_policy": "calibrated"}, ("merge_policy", "error, static", "calibrated")),
    ({"init_weights": "gaussian"}, ("init_weights", "True, False, kaiming_uniform", "gaussian")),
    ({"init_weights": 1}, ("init_weights", "1")),
    ({"bias": "lora_only"}, ("bias", "none, all, aurora_only", "lora_only")),
    ({"fan_in_fan_out": "yes"}, ("fan_in_fan_out", "True or False", "yes")),
    ({"rank_pattern": {"q_proj": 0}}, ("rank_pattern['q_proj']", "at least 1", "0")),
    ({"alpha_pattern": {"q_proj": -1}}, ("alpha_pattern['q_proj']", "above 0", "-1")),
    ({"aurora_alpha": 10**400}, ("aurora_alpha", "finite", "1000")),
    ({"rank_pattern": [1]}, ("rank_pattern", "dict", "[1]")),
    ({"alpha_pattern": "q_proj"}, ("alpha_pattern", "dict", "q_proj")),
    ({"target_modules": 5}, ("target_modules", "names of modules", "5")),
    ({"target_modules": [1]}, ("target_modules", "names of modules", "[1]")),
    ({"exclude_modules": 5}, ("exclude_modules", "names of modules", "5")),
    ({"modules_to_save": [None]}, ("modules_to_save", "names of modules", "[None]")),
    ({"layers_to_transform": ["a"], "target_modules": ["q"]}, ("layers_to_transform", "at least 0", "['a']")),
    ({"layers_to_transform": -1, "target_modules": ["q"]}, ("layers_to_transform", "at least 0", "-1")),
    ({"layers_pattern": "layers"}, ("layers_pattern='layers'", "layers_to_transform")),
    ({"layers_to_transform": [0], "target_modules": ".*q"}, ("layers_to_transform", "list of target_modules", ".*q")),
]


def case(make: Any, fields: dict[str, Any], words: tuple[str, ...], error: type[Exception] = ValueError) -> BadInput:
    return BadInput(f"{make.__name__}-{fields}", lambda: make(**fields), words, error)


def layer(**fields: Any) -> AdaptiveNonlinearLayer:
    return AdaptiveNonlinearLayer(**{"rank": 2, **fields})


def basis(**fields: Any) -> torch.Tensor:
    return bspline_basis(torch.zeros(3), **fields)


CASES = [
    *(case(AuroraConfig, fields, words) for fields, words in [*SETTINGS, *CONFIG]),
    *(case(layer, fields, words) for fields, words in [*SETTINGS, ({"rank": 0}, ("rank", "at least 1", "0"))]),
    case(BSplineBasis, {"order": 7}, ("from 0 to 5", "7")),
    case(BSplineBasis, {"grid_size": -1}, ("grid_size", "-1")),
    case(basis, {"knots": torch.zeros(4), "order": 3}, ("knots", "at least order + 2 = 5", "(4,)")),
    case(basis, {"knots": torch.zeros(2, 6), "order": 3}, ("knots", "vector", "(2, 6)")),
    case(basis, {"knots": torch.arange(12.0), "order": 9}, ("from 0 to 5", "9")),
]


@bad_inputs(CASES)
def test_a_setting_out_of_range_is_named_with_what_is_accepted(case: BadInput) -> None:
    case.check()


class Net(nn.Module):
    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.part = module


def test_a_config_that_was_changed_is_checked_when_a_layer_is_adapted() -> None:
    config = AuroraConfig(target_modules=["part"])
    config.forward_mode = "statik"
    with pytest.raises(ValueError, match=r"forward_mode must be one of dynamic, static; got 'statik'"):
        get_peft_model(Net(nn.Linear(4, 4)), config)
