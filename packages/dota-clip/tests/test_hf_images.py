"""Hugging Face `datasets` on disk, with real pictures."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from dota_clip.data.hf_images import read_hf_dataset
from dota_clip.data.images import UnreadableImage, load_image

datasets = pytest.importorskip("datasets")


@pytest.fixture(scope="module")
def pictures(photo_folder: Path) -> list[str]:
    return [str(photo_folder / "china.jpg"), str(photo_folder / "flower.jpg")]


def saved(folder: Path, columns: dict, features: dict) -> Path:
    datasets.Dataset.from_dict(columns, features=datasets.Features(features)).save_to_disk(folder / "data")
    return folder / "data"


def test_image_and_label_columns_are_found_by_their_features(pictures: list[str], tmp_path: Path) -> None:
    features = {
        "name": datasets.Value("string"),
        "pic": datasets.Image(),
        "kind": datasets.ClassLabel(names=["f", "p"]),
    }
    folder = saved(tmp_path, {"name": ["x", "y"], "pic": pictures, "kind": [1, 0]}, features)
    stream = read_hf_dataset(folder)
    assert (stream.classnames, stream.labels) == (("f", "p"), [1, 0])
    assert [item.identifier for item in stream.items] == ["row 0", "row 1"]
    assert np.array_equal(np.asarray(stream.items[0].load()), np.asarray(load_image(pictures[0])))


def test_splits_are_selected_by_name(pictures: list[str], tmp_path: Path) -> None:
    features = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(names=["f", "p"])})
    parts = {
        name: datasets.Dataset.from_dict({"image": [path], "label": [1]}, features=features)
        for name, path in zip(("train", "test"), pictures, strict=True)
    }
    datasets.DatasetDict(parts).save_to_disk(tmp_path / "data")
    assert len(read_hf_dataset(tmp_path / "data", split="train")) == 1
    with pytest.raises(ValueError, match="no split 'val'; there are: train, test"):
        read_hf_dataset(tmp_path / "data", split="val")


def test_text_labels_bring_their_names_and_unlabelled_images_need_some(pictures: list[str], tmp_path: Path) -> None:
    columns = {"image": pictures, "label": ["pagoda", "flower"]}
    folder = saved(tmp_path / "a", columns, {"image": datasets.Image(), "label": datasets.Value("string")})
    assert read_hf_dataset(folder).labels == [1, 0]
    with pytest.raises(ValueError, match="row 0: 'pagoda' is not among the 1 class names"):
        read_hf_dataset(folder, classnames=["flower"])
    folder = saved(tmp_path / "b", {"image": pictures}, {"image": datasets.Image()})
    assert read_hf_dataset(folder, classnames=["f"]).labels == [None, None]
    with pytest.raises(ValueError, match="no class names stored; give them"):
        read_hf_dataset(folder)


def test_hidden_labels_are_unknown_and_wrong_ones_are_refused(pictures: list[str], tmp_path: Path) -> None:
    columns = {"image": pictures, "label": [-1, 5]}
    folder = saved(tmp_path, columns, {"image": datasets.Image(), "label": datasets.Value("int64")})
    assert read_hf_dataset(folder, classnames=list("abcdef")).labels == [None, 5]
    with pytest.raises(ValueError, match=r"row 1: label 5 is outside 0\.\.1"):
        read_hf_dataset(folder, classnames=list("ab"))


def test_several_columns_of_a_kind_must_be_named(pictures: list[str], tmp_path: Path) -> None:
    kind = datasets.ClassLabel(names=["f", "p"])
    columns = {"a": pictures, "b": pictures, "x": [0, 1], "y": [1, 0]}
    folder = saved(tmp_path, columns, {"a": datasets.Image(), "b": datasets.Image(), "x": kind, "y": kind})
    with pytest.raises(ValueError, match=r"one column of images is needed, found several \(a, b\)"):
        read_hf_dataset(folder)
    with pytest.raises(ValueError, match=r"several columns of labels \(x, y\)"):
        read_hf_dataset(folder, image_column="a")
    assert read_hf_dataset(folder, image_column="b", label_column="y").labels == [1, 0]
    with pytest.raises(ValueError, match="'x' is not a column of images; columns: a, b, x, y"):
        read_hf_dataset(folder, image_column="x", label_column="y")
    with pytest.raises(ValueError, match="no column 'z'"):
        read_hf_dataset(folder, image_column="a", label_column="z")


def test_a_data_set_without_images_is_refused(tmp_path: Path) -> None:
    folder = saved(tmp_path, {"text": ["a"]}, {"text": datasets.Value("string")})
    with pytest.raises(ValueError, match=r"found none \(columns: text\)"):
        read_hf_dataset(folder)


def test_rows_that_cannot_be_decoded_name_themselves(tmp_path: Path) -> None:
    columns = {"image": [{"bytes": b"no picture", "path": None}, None], "label": ["a", "a"]}
    folder = saved(tmp_path, columns, {"image": datasets.Image(), "label": datasets.Value("string")})
    stream = read_hf_dataset(folder)
    with pytest.raises(UnreadableImage, match="cannot read image row 0: "):
        stream.items[0].load()
    with pytest.raises(UnreadableImage, match="row 1: the row has no image"):
        stream.items[1].load()


def test_a_data_set_of_the_hub_without_a_network_says_so_in_one_line() -> None:
    with pytest.raises(OSError, match=r"org/no-such-data .*hub cannot be reached") as caught:
        read_hf_dataset("org/no-such-data")
    assert "\n" not in str(caught.value)


def test_without_datasets_the_error_is_the_install_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)  # what Python does for a module that cannot be imported
    with pytest.raises(ImportError, match=r'pip install "dota-clip\[datasets\]"'):
        read_hf_dataset("org/name")
