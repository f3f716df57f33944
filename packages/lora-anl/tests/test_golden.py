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

from lora_anl import AdaptiveNonlinearLayer, AuroraConfig, BSplineBasis, bspline_basis, measure_merge_gap

GOLDEN = Path(__file__).parent / "golden"
CASES: dict[str, dict[str, Any]] = json.loads((GOLDEN / "cases.json").read_text("utf-8"))
ANL_KEYS = ("grid_size", "spline_order", "grid_range", "spline_mode", "activation")
WEIGHTS = {"A": "aurora_A.weight", "B": "aurora_B.weight", "proj": "aurora_anl.proj"}
WEIGHTS |= {"spline_weight": "aurora_anl.spline_weight"}

each_case = pytest.mark.parametrize("name", list(CASES))
each_dtype = pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["float64", "float32"])


def read(name: str, dtype: torch.dtype) -> dict[str, Tensor]:
    return {
        key: value.to(dtype)
        for key, value in load_file(GOLDEN / f"{name.removesuffix('.safetensors')}.safetensors").items()
    }


def close(actual: Tensor, expected: Tensor) -> None:
    exact = actual.dtype == torch.float64
    torch.testing.assert_close(actual, expected, atol=1e-10 if exact else 2e-5, rtol=0 if exact else 1e-5)


def parameter(model: nn.Module, key: str) -> nn.Parameter:
    container, _, name = key.rpartition(".")
    return model.get_parameter(f"base_model.model.0.{container}.default.{name}")


def load(name: str, dtype: torch.dtype, **options: Any) -> tuple[PeftModel, dict[str, Tensor]]:
    case, data = CASES[name], read(name, dtype)
    base = nn.Linear(case["in_features"], case["out_features"], bias=case["bias"], dtype=dtype)
    base.weight.data = data["base_weight"].clone()
    if case["bias"]:
        base.bias.data = data["base_bias"].clone()
    settings = {key: case[key] for key in ANL_KEYS}
    config = AuroraConfig(r=case["r"], aurora_alpha=case["alpha"], target_modules=["0"], **settings, **options)
    model = get_peft_model(nn.Sequential(base), config)
    for key, ours in WEIGHTS.items():
        parameter(model, ours).data = data[key].clone()
    return model, data


@each_case
@each_dtype
def test_the_basis_and_the_nonlinear_layer(name: str, dtype: torch.dtype) -> None:
    case, data = CASES[name], read(name, dtype)
    close(bspline_basis(data["z"], data["knots"], case["spline_order"]), data["basis_z"])
    basis = BSplineBasis(case["grid_size"], case["spline_order"], case["grid_range"]).to(dtype)
    close(basis.knots, data["knots"])
    close(basis(data["z"]), data["basis_z"])
    layer = AdaptiveNonlinearLayer(case["r"], **{key: case[key] for key in ANL_KEYS}).to(dtype)
    layer.load_state_dict({"proj": data["proj"], "spline_weight": data["spline_weight"]})
    close(layer(data["z"]), data["anl_z"])
    close(layer(data["A"].T).T, data["static_A"])


@each_case
@each_dtype
def test_the_dynamic_layer_and_its_gradients(name: str, dtype: torch.dtype) -> None:
    model, data = load(name, dtype)
    x = data["x"].clone().requires_grad_()
    y = model(x)
    close(y, data["y"])
    (y * data["grad_y"]).sum().backward()
    close(x.grad, data["grad_x"])
    for key, ours in WEIGHTS.items():
        close(parameter(model, ours).grad, data[f"grad_{key}"])


@each_case
@each_dtype
def test_the_static_form_and_the_static_merge(name: str, dtype: torch.dtype) -> None:
    static, data = load(name, dtype, forward_mode="static")
    close(static(data["x"]), data["y_static"])
    dynamic, _ = load(name, dtype, merge_policy="static")
    close(dynamic.base_model.model[0].get_delta_weight("default"), data["static_delta_weight"])
    with pytest.warns(UserWarning, match="static merge"):
        dynamic.merge_adapter()
    close(dynamic(data["x"]), data["y_static"])


@each_case
def test_the_merge_gap(name: str) -> None:
    model, data = load(name, torch.float64)
    gap = measure_merge_gap(model, data["x"].split(3))
    assert gap["relative_gap"] == pytest.approx(CASES[name]["relative_merge_gap"], rel=1e-9)
