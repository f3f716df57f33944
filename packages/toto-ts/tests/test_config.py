"""The settings of a model: published keys, tolerance, validation."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from nips_common.testing.bad_input import BadInput, bad_inputs
from toto_ts import TotoConfig

PATCH = "<class 'model.scaler.CausalPatchStdMeanScaler'>"
MIXTURE = "<class 'model.distribution.MixtureOfStudentTsOutput'>"


def test_the_defaults_are_the_released_sizes() -> None:
    config = TotoConfig()
    assert (config.patch_size, config.embed_dim, config.num_layers, config.num_heads) == (64, 768, 12, 12)
    assert (config.mlp_hidden_dim, config.dropout, config.num_components) == (3072, 0.1, 24)
    assert (config.scaler_cls, config.output_distribution_classes) == (PATCH, [MIXTURE])
    assert config.stabilize_with_global
    assert config.scale_factor_exponent == 10.0
    assert config.attention_axes == ("space", *["time"] * 11)


def test_the_space_block_stands_where_the_config_says() -> None:
    sizes: dict[str, Any] = {"num_layers": 4, "embed_dim": 8, "num_heads": 2}
    first = TotoConfig(**sizes, spacewise_every_n_layers=2, spacewise_first=True)
    last = TotoConfig(**sizes, spacewise_every_n_layers=2, spacewise_first=False)
    none = TotoConfig(**sizes, spacewise_every_n_layers=-1)
    assert first.attention_axes == ("space", "time", "space", "time")
    assert last.attention_axes == ("time", "space", "time", "space")
    assert none.attention_axes == ("time",) * 4


def test_a_config_survives_its_file(tmp_path: Path) -> None:
    config = TotoConfig(spacewise_first=False, output_distribution_kwargs={"k_components": 5}, dropout=0.0)
    config.to_json(tmp_path / "config.json")
    assert TotoConfig.from_json(tmp_path / "config.json") == config


def test_unknown_keys_of_a_published_config_are_ignored(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"num_layers": 24, "pre_xformers_checkpoint": True, "architectures": ["Toto"]}))
    assert TotoConfig.from_json(path) == TotoConfig(num_layers=24)


def test_a_config_without_keyword_arguments_of_the_output_is_read(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    single = ["<class 'model.distribution.StudentTOutput'>"]
    path.write_text(json.dumps({"output_distribution_classes": single, "output_distribution_kwargs": None}))
    assert TotoConfig.from_json(path).num_components == 1


def refuse(**fields: Any) -> Any:
    return lambda: TotoConfig(**fields)


@bad_inputs(
    [
        BadInput("heads", refuse(embed_dim=50), ("num_heads=12", "50")),
        BadInput("odd head", refuse(embed_dim=36), ("even head width", "36")),
        BadInput("layers", refuse(num_layers=10), ("divide num_layers=10", "12")),
        BadInput("no layers", refuse(spacewise_every_n_layers=0), ("-1", "0")),
        BadInput("stride", refuse(stride=32), ("patch_size=64", "32")),
        BadInput("size", refuse(mlp_hidden_dim=0), ("mlp_hidden_dim", "at least 1", "0")),
        BadInput("text", refuse(num_heads="12"), ("num_heads", "'12'")),
        BadInput("dropout", refuse(dropout=1.0), ("[0, 1)", "1.0")),
        BadInput("kappa", refuse(scale_factor_exponent=float("nan")), ("scale_factor_exponent", "nan")),
        BadInput("flag", refuse(spacewise_first=1), ("True or False", "1")),
        BadInput("scaler", refuse(scaler_cls="MyScaler"), ("CausalPatchStdMeanScaler", "'MyScaler'")),
        BadInput("output", refuse(output_distribution_classes=[]), ("list of class names", "[]")),
        BadInput("components", refuse(output_distribution_kwargs={}), ("k_components", "None")),
        BadInput("keyword arguments", refuse(output_distribution_kwargs=3), ("dictionary", "3")),
    ]
)
def test_a_setting_out_of_range_is_named(case: BadInput) -> None:
    case.check()


def test_a_config_file_that_is_refused_is_named(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text('{"num_layers": -3}')
    with pytest.raises(ValueError) as caught:
        TotoConfig.from_json(path)
    assert str(path) in str(caught.value)
    path.write_text('{"num_layers": ')
    with pytest.raises(ValueError, match=r"config\.json: not valid JSON"):
        TotoConfig.from_json(path)
