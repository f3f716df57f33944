"""Weights of the third party's layers."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from peft import PeftModel
from safetensors.torch import save_file
from torch import Tensor, nn

from nips_common.testing.tiny_models import PLAIN
from ridgelora import RidgeLoraLinear, convert_third_party


def their_weights(rank: int = 2, second_rank: int = 2) -> dict[str, Tensor]:
    torch.manual_seed(0)
    state = dict(PLAIN.build().state_dict())
    for name, r, width in (("lin0", rank, 12), ("lin1", second_rank, 24)):
        state |= {f"{name}.weight_a": torch.randn(r, width), f"{name}.weight_b": torch.randn(width, r)}
        state |= {f"{name}.weight_ridge": 1 + 0.3 * torch.randn(width), f"{name}.ridge_intensity": torch.tensor(0.9)}
    return state


def their_output(state: dict[str, Tensor], x: Tensor, alpha: float) -> Tensor:
    """Their forward pass, from the published equation 1: X (lambda Sigma + alpha / r A B) W."""
    for name in ("lin0", "lin1"):
        a, b, ridge, intensity = (
            state[f"{name}.{key}"] for key in ("weight_a", "weight_b", "weight_ridge", "ridge_intensity")
        )
        M = torch.diag(intensity * ridge) + alpha / len(a) * a.T @ b.T
        x = torch.relu(x @ M @ state[f"{name}.weight"].T + state[f"{name}.bias"])
    return x @ state["head.weight"].T + state["head.bias"]


@pytest.mark.parametrize("ranks", [(2, 2), (2, 3)], ids=str)
def test_their_weights_become_an_adapter_that_computes_the_same(ranks: tuple[int, int], tmp_path: Path) -> None:
    state, x = their_weights(*ranks), PLAIN.inputs["x"]
    config, tensors = convert_third_party(state, ridgelora_alpha=6)
    assert config.r == 2
    assert config.rank_pattern == ({"^lin1": 3} if ranks[1] == 3 else {})
    config.save_pretrained(tmp_path)
    save_file(tensors, tmp_path / "adapter_model.safetensors")
    model = PeftModel.from_pretrained(PLAIN.build(), tmp_path)
    expected = their_output(state, x, 6)
    assert (model(x) - expected).abs().max() <= 1e-4 * expected.abs().max()


def test_keys_may_go_without_pefts_prefix() -> None:
    _, tensors = convert_third_party(their_weights(), prefix="")
    assert "lin0.ridgelora_sigma" in tensors
    assert tensors["lin1.ridgelora_lambda"].shape == (1,)
    assert len(tensors) == 8


def test_only_the_modules_of_that_full_name_are_adapted(tmp_path: Path) -> None:
    state = {key: value for key, value in their_weights().items() if key.startswith("lin0.")}
    state |= {key.replace("lin0.", "block.lin0."): value for key, value in their_weights(3).items() if "lin0." in key}
    parts = {name: nn.ModuleDict({"lin0": nn.Linear(12, 24)}) for name in ("block", "other")}
    base = nn.ModuleDict({"lin0": nn.Linear(12, 24), **parts})
    config, tensors = convert_third_party(state)
    config.save_pretrained(tmp_path)
    save_file(tensors, tmp_path / "adapter_model.safetensors")
    model = PeftModel.from_pretrained(base, tmp_path)
    ranks = {key: layer.r["default"] for key, layer in model.named_modules() if isinstance(layer, RidgeLoraLinear)}
    # the config's own rank is that of the first layer by name
    assert ranks == {"base_model.model.lin0": 2, "base_model.model.block.lin0": 3}


def broken(**changes: Tensor | None) -> dict[str, Tensor]:
    state = their_weights() | {key.replace("__", "."): value for key, value in changes.items()}
    return {key: value for key, value in state.items() if value is not None}


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ({"lin0.weight": torch.zeros(2, 2)}, ["no key ends in .weight_ridge", "lin0.weight"]),
        ({}, ["no key ends in .weight_ridge", "none"]),
        (broken(lin1__weight_a=None, lin1__ridge_intensity=None), ["'lin1' lacks weight_a, ridge_intensity"]),
        (broken(lin0__weight_b=torch.zeros(24, 2)), ["lin0.weight_b must have shape (12, 2)", "got (24, 2)"]),
        (broken(lin0__weight_a=torch.zeros(2, 11)), ["lin0.weight_a must have shape (2, 12)", "got (2, 11)"]),
        (broken(lin0__ridge_intensity=torch.zeros(2)), ["lin0.ridge_intensity must have shape (1,)", "got (2,)"]),
        (broken(lin0__weight_a=torch.tensor(1.0)), ["lin0.weight_a", "number of dimensions", "()"]),
        (broken(lin0__weight_ridge=torch.ones(1, 12)), ["lin0.weight_ridge", "number of dimensions", "(1, 12)"]),
        (broken(lin0__weight_a=torch.ones(2, 12, dtype=torch.long)), ["lin0.weight_a must be a floating", "int64"]),
        ({**broken(), "lin0.weight_b": [1.0]}, ["lin0.weight_b must be a floating tensor", "list"]),
        (broken(lin0__weight_b=torch.full((12, 2), torch.inf)), ["lin0.weight_b must be finite"]),
    ],
    ids=lambda value: "" if isinstance(value, dict) else value[0][:20],
)
def test_what_is_not_theirs_is_named(state: dict[str, Tensor], words: list[str]) -> None:
    with pytest.raises(ValueError) as caught:
        convert_third_party(state)
    assert all(word in str(caught.value) for word in words), caught.value
    assert "\n" not in str(caught.value)
