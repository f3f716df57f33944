"""Weights of the third party's layers."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from peft import PeftModel
from safetensors.torch import save_file
from torch import Tensor, nn

from lora_anl import AuroraLinear, bspline_basis, convert_third_party
from nips_common.testing.tiny_models import PLAIN


def their_weights(rank: int = 2, second_rank: int = 2) -> dict[str, Tensor]:
    torch.manual_seed(0)
    state = dict(PLAIN.build().state_dict())
    grid = torch.arange(-3, 9) * 0.4 - 1
    for name, r, width, height in (("lin0", rank, 12, 24), ("lin1", second_rank, 24, 24)):
        shapes = {"weight_a": (r, width), "weight_b": (height, r), "weight_ab_mixer": (r, r), "weight_a_spline": (r, 8)}
        state |= {f"{name}.{key}": torch.randn(shape) for key, shape in shapes.items()}
        state[f"{name}.grid"] = grid.clone()
    return state


def their_output(state: dict[str, Tensor], x: Tensor, alpha: float) -> Tensor:
    """Their forward pass, from the published equations: the pooled spline, tanh, the scale alpha / r."""
    for name in ("lin0", "lin1"):
        a, b, mixer, spline, grid = (
            state[f"{name}.{key}"] for key in ("weight_a", "weight_b", "weight_ab_mixer", "weight_a_spline", "grid")
        )
        z = x @ a.T
        sigma = torch.tanh(torch.tanh(z) @ mixer.T) + bspline_basis(z, grid, 3).sum(-2) @ spline.T
        x = torch.relu(x @ state[f"{name}.weight"].T + state[f"{name}.bias"] + alpha / len(a) * sigma @ b.T)
    return x @ state["head.weight"].T + state["head.bias"]


@pytest.mark.parametrize("ranks", [(2, 2), (2, 3)], ids=str)
def test_their_weights_become_an_adapter_that_computes_the_same(ranks: tuple[int, int], tmp_path: Path) -> None:
    state, x = their_weights(*ranks), PLAIN.inputs["x"]
    config, tensors = convert_third_party(state, aurora_alpha=6)
    assert (config.r, config.grid_size, config.spline_order, config.grid_range) == (2, 5, 3, (-1.0, 1.0))
    assert config.rank_pattern == ({"^lin1": 3} if ranks[1] == 3 else {})
    config.save_pretrained(tmp_path)
    save_file(tensors, tmp_path / "adapter_model.safetensors")
    model = PeftModel.from_pretrained(PLAIN.build(), tmp_path)
    assert (model(x) - their_output(state, x, 6)).abs().max() <= 1e-4


def test_keys_may_go_without_pefts_prefix() -> None:
    _, tensors = convert_third_party(their_weights(), prefix="")
    assert "lin0.aurora_anl.spline_weight" in tensors
    assert len(tensors) == 8


def test_only_the_modules_of_that_full_name_are_adapted(tmp_path: Path) -> None:
    state = their_weights()
    inner = {key.replace("lin0.", "lin1.lin0."): value for key, value in state.items() if key.startswith("lin0.")}
    state = {key: value for key, value in {**state, **inner}.items() if not key.startswith("lin1.weight_")}
    state["lin1.lin0.weight_a"] = torch.randn(3, 12)
    state |= {"lin1.lin0.weight_b": torch.randn(24, 3), "lin1.lin0.weight_ab_mixer": torch.eye(3)}
    state["lin1.lin0.weight_a_spline"] = torch.randn(3, 8)
    base = nn.ModuleDict({"lin0": nn.Linear(12, 24), "lin1": nn.ModuleDict({"lin0": nn.Linear(12, 24)})})
    base["other"] = nn.ModuleDict({"lin0": nn.Linear(12, 24)})
    config, tensors = convert_third_party(state)
    config.save_pretrained(tmp_path)
    save_file(tensors, tmp_path / "adapter_model.safetensors")
    loaded = PeftModel.from_pretrained(base, str(tmp_path))
    ranks = {key: layer.r["default"] for key, layer in loaded.named_modules() if isinstance(layer, AuroraLinear)}
    assert ranks == {"base_model.model.lin0": 2, "base_model.model.lin1.lin0": 3}


def broken(**changes: Tensor | None) -> dict[str, Tensor]:
    state = their_weights() | {key.replace("__", "."): value for key, value in changes.items()}
    return {key: value for key, value in state.items() if value is not None}


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ({"lin0.weight": torch.zeros(2, 2)}, ["no key ends in .weight_a", "lin0.weight"]),
        ({}, ["no key ends in .weight_a", "none"]),
        (broken(lin1__grid=None, lin1__weight_b=None), ["'lin1' lacks weight_b, grid"]),
        (broken(lin0__weight_b=torch.zeros(24, 3)), ["lin0.weight_b must have shape (24, 2)", "got (24, 3)"]),
        (broken(lin0__weight_a_spline=torch.zeros(3, 8)), ["lin0.weight_a_spline must have shape (2, 8)"]),
        (broken(lin0__grid=torch.linspace(0, 1, 12) ** 2), ["lin0.grid must hold uniform knots"]),
        (broken(lin0__grid=torch.zeros(5)), ["lin0.grid has 5 knots, which does not fit 8 spline weights"]),
        (broken(lin0__grid=1 - torch.arange(-3, 9) * 0.4), ["lin0.grid must hold uniform knots"]),
        (broken(lin0__grid=torch.full((12,), float("nan"))), ["lin0.grid must be finite"]),
        (broken(lin0__weight_a=torch.tensor(1.0)), ["lin0.weight_a must be a floating tensor of 2 dimensions", "()"]),
        (broken(lin0__weight_a=torch.ones(2, 12, dtype=torch.long)), ["lin0.weight_a must be a floating", "int64"]),
        (broken(lin0__weight_b=torch.full((24, 2), torch.inf)), ["lin0.weight_b must be finite"]),
        (broken(lin1__grid=(torch.arange(-3, 9) * 0.4 - 1) * 2), ["'lin1' has grid", "'lin0' has"]),
    ],
    ids=lambda value: "" if isinstance(value, dict) else value[0][:20],
)
def test_what_is_not_theirs_is_named(state: dict[str, Tensor], words: list[str]) -> None:
    with pytest.raises(ValueError) as caught:
        convert_third_party(state)
    assert all(word in str(caught.value) for word in words), caught.value
    assert "\n" not in str(caught.value)
