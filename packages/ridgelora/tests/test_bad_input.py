"""What is refused, in which words."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from peft import get_peft_model
from torch import nn

from nips_common.testing.bad_input import BadInput, bad_inputs
from nips_common.testing.tiny_models import PLAIN
from ridgelora import RidgeLoraConfig, ridge_init, ridge_init_B

NAN = float("nan")
CONFIG: list[tuple[dict[str, Any], tuple[str, ...]]] = [
    ({"r": 0}, ("r must", "at least 1", "0")),
    ({"r": -2}, ("r must", "-2")),
    ({"r": 2.0}, ("r must", "whole number", "2.0")),
    ({"r": True}, ("r must", "True")),
    ({"ridgelora_alpha": 0}, ("ridgelora_alpha", "above 0", "0")),
    ({"ridgelora_alpha": -1}, ("ridgelora_alpha", "above 0", "-1")),
    ({"ridgelora_alpha": NAN}, ("ridgelora_alpha", "nan")),
    ({"ridgelora_dropout": 1.0}, ("ridgelora_dropout", "[0, 1)", "1.0")),
    ({"ridgelora_dropout": -0.1}, ("ridgelora_dropout", "[0, 1)", "-0.1")),
    ({"ridgelora_dropout": NAN}, ("ridgelora_dropout", "[0, 1)", "nan")),
    ({"ridgelora_dropout": "much"}, ("ridgelora_dropout", "much")),
    ({"init_weights": "svd"}, ("init_weights", "exact, diagonal, gaussian, gaussian_calibrated", "svd")),
    ({"init_weights": True}, ("init_weights", "True")),
    ({"noise_mean": NAN}, ("noise_mean", "finite", "nan")),
    ({"noise_mean": "two"}, ("noise_mean", "two")),
    ({"noise_std": -0.1}, ("noise_std", "at least 0", "-0.1")),
    ({"use_rslora": 1}, ("use_rslora", "True, False", "1")),
    ({"connection": "both"}, ("connection", "series, parallel", "both")),
    ({"bias": "lora_only"}, ("bias", "none, all, ridgelora_only", "lora_only")),
    ({"fan_in_fan_out": "yes"}, ("fan_in_fan_out", "True, False", "yes")),
    ({"rank_pattern": {"q_proj": 0}}, ("rank_pattern['q_proj']", "at least 1", "0")),
    ({"alpha_pattern": {"q_proj": -1}}, ("alpha_pattern['q_proj']", "above 0", "-1")),
    ({"ridgelora_alpha": 10**400}, ("ridgelora_alpha", "finite", "1000")),
    ({"rank_pattern": [1]}, ("rank_pattern", "dict", "[1]")),
    ({"alpha_pattern": "q_proj"}, ("alpha_pattern", "dict", "q_proj")),
    ({"target_modules": 5}, ("target_modules", "names of modules", "5")),
    ({"target_modules": [1]}, ("target_modules", "names of modules", "[1]")),
    ({"exclude_modules": 5}, ("exclude_modules", "names of modules", "5")),
    ({"modules_to_save": [None]}, ("modules_to_save", "names of modules", "[None]")),
    ({"layers_to_transform": ["a"], "target_modules": ["q"]}, ("layers_to_transform", "at least 0", "['a']")),
    ({"layers_to_transform": 1.5, "target_modules": ["q"]}, ("layers_to_transform", "at least 0", "1.5")),
    ({"layers_to_transform": -1, "target_modules": ["q"]}, ("layers_to_transform", "at least 0", "-1")),
    ({"layers_pattern": "layers"}, ("layers_pattern='layers'", "layers_to_transform")),
    ({"layers_to_transform": [0], "target_modules": ".*q"}, ("layers_to_transform", "list of target_modules", ".*q")),
]
START: list[tuple[dict[str, Any], tuple[str, ...]]] = [
    ({"r": 0}, ("r must", "at least 1", "in_features=12", "0")),
    ({"r": 13}, ("r must", "at most in_features=12", "13")),
    ({"alpha": 0}, ("alpha", "above 0", "0")),
    ({"init": "orthogonal"}, ("init must be one of", "xavier_uniform", "orthogonal")),
    ({"noise_std": -1}, ("noise_std", "-1")),
    ({"noise_mean": NAN}, ("noise_mean", "nan")),
    ({"in_features": 12.0}, ("in_features", "whole number", "12.0")),
    ({"in_features": 0}, ("in_features", "at least 1", "0")),
]


def start(**fields: Any) -> Any:
    return ridge_init(**{"in_features": 12, "r": 2, "alpha": 4, **fields})


def solve(A: tuple[int, ...] = (2, 12), sigma: int = 12, scaling: float = 1.0) -> torch.Tensor:
    return ridge_init_B(torch.ones(A), torch.ones(sigma), scaling)


def layer(**fields: Any) -> Any:
    return get_peft_model(PLAIN.build(), RidgeLoraConfig(target_modules=["lin0"], **fields))


def case(make: Any, fields: dict[str, Any], words: tuple[str, ...]) -> BadInput:
    return BadInput(f"{make.__name__}-{fields}", lambda: make(**fields), words)


CASES = [
    *(case(RidgeLoraConfig, fields, words) for fields, words in CONFIG),
    *(case(start, fields, words) for fields, words in START),
    case(solve, {"scaling": 0.0}, ("scaling", "above 0", "0.0")),
    case(solve, {"A": (2, 11)}, ("A must be (r, in)", "(2, 11)", "(12,)")),
    case(solve, {"A": (12,)}, ("A must be (r, in)", "(12,)")),
    case(solve, {"A": (13, 12)}, ("r, the rows of A,", "at most in_features=12", "13")),
    case(layer, {"r": 13}, ("r must", "at most in_features=12", "13")),
    case(layer, {"r": 4, "rank_pattern": {"lin0": 99}}, ("r must", "at most in_features=12", "99")),
]


@bad_inputs(CASES)
def test_a_setting_out_of_range_is_named_with_what_is_accepted(case: BadInput) -> None:
    case.check()


def test_too_large_a_rank_leaves_the_model_as_it_was() -> None:
    base = PLAIN.build()
    with pytest.raises(ValueError, match="at most in_features=12"):
        get_peft_model(base, RidgeLoraConfig(r=20, target_modules=["lin0", "lin1"]))
    assert type(base.lin0) is nn.Linear


class Net(nn.Module):
    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.part = module


def test_a_config_that_was_changed_is_checked_when_a_layer_is_adapted() -> None:
    config = RidgeLoraConfig(target_modules=["part"])
    config.connection = "serial"  # type: ignore[assignment]
    with pytest.raises(ValueError, match=r"connection must be one of series, parallel; got 'serial'"):
        get_peft_model(Net(nn.Linear(4, 4)), config)
