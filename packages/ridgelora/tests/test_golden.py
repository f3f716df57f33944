"""The reference values of the published equations (see golden/README.md)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftModel, get_peft_model
from safetensors.torch import load_file
from torch import Tensor, nn

from ridgelora import (
    RidgeLoraConfig,
    RidgeLoraLinear,
    ridge_init_B,
    ridge_merge,
    ridge_nuclear_norm,
    ridge_squashing_loss,
    ridge_transform,
)

GOLDEN = Path(__file__).parent / "golden"
CASES: dict[str, dict[str, Any]] = json.loads((GOLDEN / "cases.json").read_text("utf-8"))
WEIGHTS = {"lam": "ridgelora_lambda", "sigma": "ridgelora_sigma", "A": "ridgelora_A", "B": "ridgelora_B"}

each_case = pytest.mark.parametrize("name", list(CASES))
each_dtype = pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["float64", "float32"])


def read(name: str, dtype: torch.dtype) -> dict[str, Tensor]:
    return {key: value.to(dtype) for key, value in load_file(GOLDEN / f"{name}.safetensors").items()}


def close(actual: Tensor, expected: Tensor, atol: float = 1e-10) -> None:
    exact = actual.dtype == torch.float64
    torch.testing.assert_close(actual, expected, atol=atol if exact else 2e-5, rtol=0 if exact else 1e-5)


def load(name: str, dtype: torch.dtype) -> tuple[PeftModel, RidgeLoraLinear, dict[str, Tensor]]:
    case, data = CASES[name], read(name, dtype)
    base = nn.Linear(case["in_features"], case["out_features"], bias=case["bias"], dtype=dtype)
    base.weight.data = data["base_weight"].clone()
    if case["bias"]:
        base.bias.data = data["base_bias"].clone()
    config = RidgeLoraConfig(
        r=case["r"], ridgelora_alpha=case["alpha"], init_weights=case["init"], target_modules=["0"]
    )
    model = get_peft_model(nn.Sequential(base), config)
    layer = model.base_model.model[0]
    assert {parameter.dtype for parameter in layer.parameters()} == {dtype}
    for key, ours in WEIGHTS.items():
        getattr(layer, ours)["default"].data = data[key].clone()
    return model, layer, data


def factors(data: dict[str, Tensor]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return data["lam"], data["sigma"], data["A"], data["B"]


@each_case
@each_dtype
def test_the_start_of_B_and_of_the_transform(name: str, dtype: torch.dtype) -> None:
    case, data = CASES[name], read(name, dtype)
    B = ridge_init_B(data["init_A"], data["init_sigma"], case["scaling"])
    close(B, data["init_B"], 1e-9)
    M = torch.diag(data["init_lambda"] * data["init_sigma"]) + case["scaling"] * (B @ data["init_A"]).T
    close(M, data["init_M"], 1e-9)
    error = torch.linalg.matrix_norm(M.double() - torch.eye(len(M)).double())
    assert float(error) == pytest.approx(case["identity_error_fro"], abs=1e-14 if dtype == torch.float64 else 1e-5)


@each_case
@each_dtype
def test_the_transform_and_the_merge(name: str, dtype: torch.dtype) -> None:
    case, data = CASES[name], read(name, dtype)
    close(ridge_transform(data["x"], *factors(data), case["scaling"]), data["x_transformed"])
    close(ridge_merge(data["base_weight"], *factors(data), case["scaling"]), data["merged_weight"])


@each_case
@each_dtype
def test_the_layer_and_its_gradients(name: str, dtype: torch.dtype) -> None:
    model, layer, data = load(name, dtype)
    x = data["x"].clone().requires_grad_()
    y = model(x)
    close(y, data["y"])
    (y * data["grad_y"]).sum().backward()
    close(x.grad, data["grad_x"])
    for key, ours in WEIGHTS.items():
        close(getattr(layer, ours)["default"].grad, data[f"grad_{key}"])


@each_case
@each_dtype
def test_the_layer_merges(name: str, dtype: torch.dtype) -> None:
    model, layer, data = load(name, dtype)
    close(layer.get_delta_weight("default"), data["delta_weight"])
    model.merge_adapter()
    close(layer.weight, data["merged_weight"])
    close(layer.get_delta_weight("default"), data["delta_weight"])
    close(model(data["x"]), data["y"])


@each_case
@each_dtype
@pytest.mark.parametrize("route", ["svd", "low_rank", "rational"])
def test_the_nuclear_norm_and_its_gradients(name: str, dtype: torch.dtype, route: str) -> None:
    case, (model, layer, data) = CASES[name], load(name, dtype)
    norm = ridge_squashing_loss(model, route=route)
    expected = data["nuclear_norm"].squeeze() if case["identity_error_fro"] > 1e-10 else torch.zeros((), dtype=dtype)
    # the terms of "rational" are good to 1e-6, of a singular value, and cancel at the exact start
    tolerance = {"atol": 5e-5, "rtol": 2e-6} if route == "rational" else {"atol": 1e-10, "rtol": 1e-5}
    torch.testing.assert_close(norm, expected, **tolerance)
    assert ridge_nuclear_norm(*factors(data), case["scaling"], route=route).route == route
    norm.backward()
    for key, ours in WEIGHTS.items():
        if f"nuc_grad_{key}" in data:
            near = (
                {"atol": 1e-4, "rtol": 1e-4}
                if route == "rational" or dtype == torch.float32
                else {"atol": 1e-10, "rtol": 0}
            )
            torch.testing.assert_close(getattr(layer, ours)["default"].grad, data[f"nuc_grad_{key}"], **near)


def test_some_file_has_gradients_of_the_nuclear_norm() -> None:
    assert any("nuc_grad_A" in read(name, torch.float64) for name in CASES)
