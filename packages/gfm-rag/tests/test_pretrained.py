"""Model folders: ours, and both official forms; what is refused and never executed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from gfm_rag import GFMConfig, GNNRetriever, QueryGNN

ENTITY = {
    "_target_": "gfmrag.ultra.models.QueryNBFNet",
    "input_dim": 8,
    "hidden_dims": [8, 8],
    "message_func": "distmult",
    "aggregate_func": "sum",
    "short_cut": True,
    "layer_norm": True,
}
V1 = {"_target_": "gfmrag.models.GNNRetriever", "entity_model": ENTITY, "rel_emb_dim": 10}
V2 = {
    "_target_": "gfmrag.models.gfm_rag_v1.GNNRetriever",
    "entity_model": ENTITY,
    "feat_dim": 10,
    "ranker": {"_target_": "gfmrag.models.gfm_rag_v1.rankers.IDFWeightedTopKRanker", "top_k": 20},
    "init_nodes_weight": True,
    "init_nodes_type": "entity",
}


def small() -> GNNRetriever:
    torch.manual_seed(0)
    return GNNRetriever(GFMConfig(8, (8, 8), 10)).eval()


def write_official(folder: Path, model_config: dict[str, Any], weights: Any = None) -> Path:
    folder.mkdir(exist_ok=True)
    text = {"_target_": "gfmrag.text_emb_models.BaseTextEmbModel", "text_emb_model_name": "x", "normalize": False}
    (folder / "config.json").write_text(json.dumps({"text_emb_model_config": text, "model_config": model_config}))
    torch.save({"model": small().state_dict()} if weights is None else weights, folder / "model.pth")
    return folder


def same(first: torch.nn.Module, second: torch.nn.Module) -> bool:
    pairs = zip(first.state_dict().items(), second.state_dict().items(), strict=True)
    return all(a == b and torch.equal(x, y) for (a, x), (b, y) in pairs)


@pytest.mark.parametrize("cls", [GNNRetriever, QueryGNN])
def test_a_saved_model_comes_back_as_it_was(cls: Any, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = cls(GFMConfig(8, (8, 4), 10, message="rotate", aggregate="pna", concat_hidden=True, num_mlp_layer=3))
    model.save_pretrained(tmp_path / "model")
    loaded = cls.from_pretrained(tmp_path / "model")
    assert loaded.config == model.config
    assert same(loaded, model)
    assert not loaded.training
    assert sorted(path.name for path in (tmp_path / "model").iterdir()) == ["config.json", "model.safetensors"]


@pytest.mark.parametrize("form", [V1, V2], ids=["1.0.0", "2.0.0"])
def test_official_folders_are_read(form: dict[str, Any], tmp_path: Path) -> None:
    loaded = GNNRetriever.from_pretrained(write_official(tmp_path / "official", form))
    assert loaded.config == GFMConfig(8, (8, 8), 10)
    assert same(loaded, small())


def test_the_official_form_can_be_written_and_read_again(tmp_path: Path) -> None:
    small().save_pretrained(tmp_path, official=True)
    assert torch.load(tmp_path / "model.pth", weights_only=True).keys() == {"model"}
    assert same(GNNRetriever.from_pretrained(tmp_path), small())


class Payload:
    def __reduce__(self) -> Any:
        return (Path.touch, (Path("touched"),))


def test_an_unknown_target_is_refused_and_never_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "planted.py").write_text("open('touched', 'w')")
    monkeypatch.syspath_prepend(tmp_path)
    for config in (
        {**V1, "_target_": "planted.Model"},
        {**V1, "entity_model": {**ENTITY, "_target_": "planted.Model"}},
    ):
        with pytest.raises(ValueError, match=r"config\.json: unknown _target_ 'planted\.Model', known are gfmrag"):
            GNNRetriever.from_pretrained(write_official(tmp_path / "official", config))
    assert not (tmp_path / "touched").exists()


def test_a_pickle_in_the_weights_is_refused_and_never_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    folder = write_official(tmp_path / "official", V1, {"model": small().state_dict(), "extra": Payload()})
    with pytest.raises(ValueError, match=r"model\.pth: not a file of tensors that can be read safely"):
        GNNRetriever.from_pretrained(folder)
    assert not (tmp_path / "touched").exists()


def test_damaged_folders_are_told_in_one_line(tmp_path: Path) -> None:
    weights = small().state_dict()
    missing = {key: value for key, value in weights.items() if key != "rel_mlp.bias"} | {"more": torch.ones(1)}
    cases = [
        (V1, {"model": missing}, r"model\.pth: unknown: more; missing: rel_mlp\.bias"),
        (V1, weights, "state_dict under 'model'"),
        ({**V1, "rel_emb_dim": 12}, None, r"question_mlp\.weight is \(8, 10\), must be \(8, 12\)"),
        ({**V1, "entity_model": {**ENTITY, "dropout": 0.5}}, None, "unknown: dropout"),
        ({**V1, "entity_model": {**ENTITY, "aggregate_func": "median"}}, None, "sum, mean, max, pna, got 'median'"),
        ({**V1, "_target_": "gfmrag.models.QueryGNN"}, None, "query network, expected a gfm-rag retriever"),
    ]
    for number, (config, content, words) in enumerate(cases):
        with pytest.raises(ValueError, match=words) as caught:
            GNNRetriever.from_pretrained(write_official(tmp_path / str(number), config, content))
        assert "\n" not in str(caught.value)
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match=r"config\.json: no such file"):
        GNNRetriever.from_pretrained(tmp_path / "empty")
    with pytest.raises(FileNotFoundError, match="no such model folder"):
        GNNRetriever.from_pretrained(tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        (
            {"hidden_dims": (8, 4, 8)},
            r"hidden_dims must be input_dim=512 in every layer before the last, got \(8, 4, 8\)",
        ),
        ({"message": "dot"}, "distmult, transe, rotate, got 'dot'"),
        ({"input_dim": 7, "hidden_dims": (7,), "message": "rotate"}, "even for message='rotate'"),
        ({"hidden_dims": ()}, "non-empty list"),
        ({"text_dim": 0}, "text_dim must be a whole number of at least 1, got 0"),
        ({"layer_norm": 1}, "True or False, got 1"),
    ],
)
def test_settings_outside_their_range_are_named(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        GFMConfig(**fields)


def test_a_folder_may_hold_both_forms_and_gives_the_last(tmp_path: Path) -> None:
    first, second = small(), small()
    with torch.no_grad():
        second.rel_mlp.bias += 1
    first.save_pretrained(tmp_path / "model")
    second.save_pretrained(tmp_path / "model", official=True)
    assert same(GNNRetriever.from_pretrained(tmp_path / "model"), second)
    first.save_pretrained(tmp_path / "model")
    assert same(GNNRetriever.from_pretrained(tmp_path / "model"), first)


def test_strange_values_in_an_official_configuration_are_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for number, (config, words) in enumerate(
        (
            ({**V1, "_target_": ["x"]}, r"unknown _target_ \['x'\]"),
            ({**V1, "entity_model": {**ENTITY, "_target_": {"x": 1}}}, "unknown _target_ {'x': 1}"),
            ({**V1, "entity_model": {**ENTITY, "hidden_dims": "8"}}, "hidden_dims must be a non-empty list"),
            ({**V1, "rel_emb_dim": None}, "text_dim must be a whole number"),
        )
    ):
        with pytest.raises(ValueError, match=rf"config\.json: {words}"):
            GNNRetriever.from_pretrained(write_official(tmp_path / str(number), config))
    GNNRetriever.from_pretrained(write_official(tmp_path / "2.0.0", {**V2, "dataset_config": {}}))
    assert not caplog.records
    GNNRetriever.from_pretrained(write_official(tmp_path / "off", {**V2, "init_nodes_weight": False}))
    assert "trained without entity weights" in caplog.text


def test_a_name_that_no_hub_can_have_is_no_folder() -> None:
    for name in ("no/such folder", "no/such"):
        with pytest.raises(FileNotFoundError, match="is no folder, and the hub did not give it") as caught:
            GNNRetriever.from_pretrained(name)
        assert "\n" not in str(caught.value)
