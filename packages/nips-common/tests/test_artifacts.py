"""Model folders: what is written comes back, and what cannot be read is told in one line."""

import json
from pathlib import Path

import pytest
import torch

from nips_common.artifacts import check_keys, check_tensors, load_folder, read_json, save_folder, write_json
from nips_common.testing.bad_input import BadInput, bad_inputs

CONFIG = {"epsilon": 0.001, "classes": ["crane", "Küstenseeschwalbe"], "prior": None}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A saved folder of kind ``state``, version 1."""
    save_folder(tmp_path / "model", "state", CONFIG, {"mean": torch.arange(6.0).reshape(2, 3)})
    return tmp_path / "model"


def test_config_and_tensors_come_back_as_they_were(tmp_path: Path) -> None:
    tensors = {
        "mean": torch.randn(4, 3, generator=torch.Generator().manual_seed(0)),
        "half": torch.tensor([1.5, -2.0], dtype=torch.bfloat16),
        "count": torch.tensor(7),
        "empty": torch.empty(0, 5),
    }
    save_folder(tmp_path / "model", "state", CONFIG, tensors)
    config, loaded = load_folder(tmp_path / "model", "state")
    assert config == CONFIG
    assert loaded.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert loaded[name].dtype == tensor.dtype
        assert torch.equal(loaded[name], tensor)


def test_views_of_one_storage_and_transposed_tensors_can_be_saved(tmp_path: Path) -> None:
    matrix = torch.arange(6.0, requires_grad=True).reshape(2, 3)
    save_folder(
        tmp_path / "model", "state", {}, {"whole": matrix, "row": matrix[0], "turned": matrix.T, "tied": matrix}
    )
    _, loaded = load_folder(tmp_path / "model", "state")
    assert torch.equal(loaded["row"], torch.tensor([0.0, 1.0, 2.0]))
    assert torch.equal(loaded["turned"], torch.arange(6.0).reshape(2, 3).T)
    assert torch.equal(loaded["tied"], loaded["whole"])


def test_the_folder_holds_readable_json_and_safetensors_only(folder: Path) -> None:
    assert sorted(file.name for file in folder.iterdir()) == ["config.json", "model.safetensors"]
    assert json.loads((folder / "config.json").read_text("utf-8")) == {"kind": "state", "format_version": 1, **CONFIG}
    assert "Küstenseeschwalbe" in (folder / "config.json").read_text("utf-8")


def test_loaded_tensors_stay_valid_when_the_folder_is_saved_again(folder: Path) -> None:
    _, before = load_folder(folder, "state")
    save_folder(folder, "state", CONFIG, {"mean": torch.zeros(2, 3)})
    assert torch.equal(before["mean"], torch.arange(6.0).reshape(2, 3))
    assert torch.equal(load_folder(folder, "state")[1]["mean"], torch.zeros(2, 3))


def test_an_old_version_is_read_through_every_migration_in_order(folder: Path) -> None:
    migrations = {
        1: lambda config, tensors: ({**config, "steps": [2]}, {"means": tensors["mean"]}),
        2: lambda config, tensors: ({**config, "steps": [*config["steps"], 3]}, tensors),
    }
    config, tensors = load_folder(folder, "state", format_version=3, migrations=migrations)
    assert config == {**CONFIG, "steps": [2, 3]}
    assert list(tensors) == ["means"]


def _break(folder: Path, file: str, content: bytes | None) -> None:
    (folder / file).unlink() if content is None else (folder / file).write_bytes(content)
    load_folder(folder, "state")


def _truncate(folder: Path, keep: int) -> None:
    _break(folder, "model.safetensors", (folder / "model.safetensors").read_bytes()[:keep])


def _leave_a_pickle(folder: Path, name: str) -> None:
    (folder / name).write_bytes(b"cos\nsystem\n(S'touch ran'\ntR.")
    _break(folder, "model.safetensors", None)


def _with_config(folder: Path, **changes: object) -> None:
    _break(folder, "config.json", json.dumps({"kind": "state", "format_version": 1, **changes}).encode())


@bad_inputs(
    [
        BadInput("no folder", lambda f: load_folder(f / "nowhere", "state"), ("nowhere/config.json", "no such file")),
        BadInput("no config", lambda f: _break(f, "config.json", None), ("model/config.json", "no such file")),
        BadInput(
            "no weights", lambda f: _break(f, "model.safetensors", None), ("model/model.safetensors: no such file",)
        ),
        BadInput(
            "pytorch_model.bin",
            lambda f: _leave_a_pickle(f, "pytorch_model.bin"),
            ("model.safetensors", "pytorch_model.bin could run code", "never loaded", "convert it to safetensors"),
        ),
        BadInput("model.pt", lambda f: _leave_a_pickle(f, "model.pt"), ("model.pt could run code",)),
        BadInput("not JSON", lambda f: _break(f, "config.json", b'{"a": '), ("config.json: not valid JSON", "line 1")),
        BadInput("not UTF-8", lambda f: _break(f, "config.json", b'{"a": "\xff"}'), ("config.json: not valid JSON",)),
        BadInput("a list", lambda f: _break(f, "config.json", b"[1]"), ("config.json", "JSON object", "got list")),
        BadInput("NaN", lambda f: _break(f, "config.json", b'{"a": NaN}'), ("config.json: not valid JSON",)),
        BadInput("empty weights", lambda f: _truncate(f, 0), ("model.safetensors: truncated or damaged",)),
        BadInput("truncated header", lambda f: _truncate(f, 40), ("model.safetensors: truncated or damaged",)),
        BadInput("truncated data", lambda f: _truncate(f, -4), ("model.safetensors: truncated or damaged",)),
        BadInput("other kind", lambda f: load_folder(f, "model"), ("config.json", "kind is 'state'", "'model'")),
        BadInput("no kind", lambda f: _break(f, "config.json", b"{}"), ("kind is None", "'state'")),
        BadInput("newer", lambda f: _with_config(f, format_version=2), ("format_version is 2", "reads [1]")),
        BadInput("no version", lambda f: _with_config(f, format_version=None), ("format_version is None",)),
        BadInput("version text", lambda f: _with_config(f, format_version="1"), ("format_version is '1'",)),
        BadInput(
            "a migration is missing",
            lambda f: load_folder(f, "state", format_version=3, migrations={2: lambda c, t: (c, t)}),
            ("format_version is 1", "reads [2, 3]"),
        ),
        BadInput("saved NaN", lambda f: save_folder(f, "state", {"a": float("nan")}, {}), ("config.json", "JSON")),
        BadInput("saved object", lambda f: save_folder(f, "state", {"a": {1}}, {}), ("config.json", "set")),
        BadInput("reserved", lambda f: save_folder(f, "state", {"kind": "x"}, {}), ("reserved keys ['kind']",)),
        BadInput("onto a file", lambda f: save_folder(f / "config.json", "state", {}, {}), ("config.json", "folder")),
        BadInput("file onto a folder", lambda f: write_json(f, {}), ("model", "expected a file")),
        BadInput("working directory", lambda f: save_folder(".", "state", {}, {}), ("working directory",)),
    ]
)
def test_bad_input(case: BadInput, folder: Path) -> None:
    case.check(folder)


def test_a_refused_save_leaves_the_old_folder_as_it_was(folder: Path) -> None:
    before = {file.name: file.read_bytes() for file in folder.iterdir()}
    with pytest.raises(ValueError, match="JSON"):
        save_folder(folder, "state", {"bad": float("inf")}, {"mean": torch.zeros(2, 3)})
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == before
    assert [entry.name for entry in folder.parent.iterdir()] == ["model"]


def test_a_pickle_is_not_run_even_if_it_stands_where_the_weights_should(folder: Path, tmp_path: Path) -> None:
    (folder / "model.safetensors").write_bytes(b"cos\nsystem\n(S'touch " + str(tmp_path / "ran").encode() + b"'\ntR.")
    with pytest.raises(ValueError, match="truncated or damaged"):
        load_folder(folder, "state")
    assert not (tmp_path / "ran").exists()


def test_all_bad_tensors_are_named_together_with_both_shapes() -> None:
    found = {"mean": torch.zeros(2, 3), "extra": torch.zeros(1), "ok": torch.zeros(4), "bias": torch.zeros(())}
    expected = {"mean": (3, 2), "ok": (4,), "cov": (2, 2), "scale": (1,), "bias": (1,)}
    with pytest.raises(ValueError, match=r"state\.safetensors") as caught:
        check_tensors(found, expected, "state.safetensors")
    for words in (
        "unknown: extra",
        "missing: cov, scale",
        "mean is (2, 3), must be (3, 2)",
        "bias is (), must be (1,)",
    ):
        assert words in str(caught.value)
    assert "ok" not in str(caught.value).partition("accepted")[0]


def test_tensors_that_fit_pass_whatever_their_order() -> None:
    check_tensors({"b": torch.zeros(2), "a": torch.zeros(1)}, {"a": (1,), "b": (2,)}, "here")


def test_all_bad_keys_are_named_together_with_the_accepted_ones() -> None:
    with pytest.raises(ValueError, match=r"config\.json") as caught:
        check_keys({"espilon", "zeta", "sigma"}, allowed={"epsilon"}, required={"sigma", "rho"}, where="config.json")
    assert str(caught.value) == "config.json: unknown: espilon, zeta; missing: rho; accepted: epsilon, rho, sigma"


def test_required_keys_are_allowed_and_allowed_ones_may_be_absent() -> None:
    check_keys({"sigma"}, allowed={"epsilon"}, required={"sigma"}, where="config.json")


def test_a_missing_json_file_is_a_file_not_found_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"absent\.json"):
        read_json(tmp_path / "absent.json")


def test_json_that_is_nested_too_deeply_is_refused_with_its_name(tmp_path: Path) -> None:
    (tmp_path / "deep.json").write_text("[" * 200_000 + "]" * 200_000)
    with pytest.raises(ValueError, match=r"deep\.json: not valid JSON"):
        read_json(tmp_path / "deep.json")
