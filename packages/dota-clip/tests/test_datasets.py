"""Which reader a source is opened with."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from dota_clip.data.opening import open_dataset


def test_a_class_folder_and_a_flat_folder(digit_image_folder: Path, photo_folder: Path, tmp_path: Path) -> None:
    assert len(open_dataset(digit_image_folder)) == 60
    assert open_dataset(photo_folder, classnames=["a", "b"]).classnames == ("a", "b")
    (tmp_path / "names.txt").write_text("a\nb\n")
    assert open_dataset(str(photo_folder), classnames=tmp_path / "names.txt").classnames == ("a", "b")


def test_a_list_and_a_split_file(photo_folder: Path, tmp_path: Path) -> None:
    shutil.copytree(photo_folder, tmp_path, dirs_exist_ok=True)
    (tmp_path / "list.csv").write_text("china.jpg,pagoda\n")
    assert open_dataset(tmp_path / "list.csv").classnames == ("pagoda",)
    (tmp_path / "split.json").write_text(json.dumps({"test": [["china.jpg", 0, "pagoda"]]}))
    stream = open_dataset(tmp_path / "split.json")
    assert (stream.classnames, stream.dataset) == (("pagoda",), None)


def test_the_usual_name_of_a_split_file_tells_the_benchmark(photo_folder: Path, tmp_path: Path) -> None:
    shutil.copytree(photo_folder, tmp_path / "jpg")
    file = tmp_path / "split_zhou_OxfordFlowers.json"
    file.write_text(json.dumps({"test": [["flower.jpg", 0, "dahlia"]]}))
    for stream in (
        open_dataset(file),
        open_dataset(file, name="oxford_flowers"),
        open_dataset(tmp_path, name="oxford_flowers"),
    ):
        assert stream.dataset == "oxford_flowers"
        assert stream.items[0].source == tmp_path / "jpg" / "flower.jpg"


def test_a_saved_data_set(photo_folder: Path, tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    features = datasets.Features({"image": datasets.Image()})
    rows = {"image": [str(photo_folder / "china.jpg")]}
    datasets.Dataset.from_dict(rows, features=features).save_to_disk(tmp_path / "saved")
    assert len(open_dataset(tmp_path / "saved", classnames=["a"])) == 1


@pytest.mark.parametrize(
    ("source", "options", "error", "message"),
    [
        ("gone", {}, FileNotFoundError, "gone: no such file or folder .*hf:org/name"),
        ("notes.txt", {}, ValueError, r"notes\.txt: expected a folder, a split file"),
        (".", {"name": "eurosatt"}, ValueError, "unknown data set 'eurosatt': did you mean eurosat"),
        (".", {"name": "eurosat", "classnames": ["a"]}, ValueError, "eurosat brings its own class names"),
        (".", {"image_root": "x"}, ValueError, "image_root must not be given: a folder holds its images"),
        (
            ".",
            {"image_column": "x", "label_column": "y"},
            ValueError,
            "image_column and label_column must not be given",
        ),
        ("hf:a/b", {"image_root": "x"}, ValueError, "image_root must not be given: the data set holds"),
        ("split.json", {"classnames": ["a"]}, ValueError, "a split file brings its own class names"),
        (".", {"classnames": ["a", "a"]}, ValueError, "'a' given more than once"),
        ("hf:org/no-such-data", {}, OSError, "org/no-such-data .*hub cannot be reached"),
    ],
)
def test_sources_that_cannot_be_opened(
    photo_folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    source: str,
    options: dict,
    error: type[Exception],
    message: str,
) -> None:
    shutil.copy(photo_folder / "china.jpg", tmp_path)
    (tmp_path / "notes.txt").write_text("x")
    (tmp_path / "split.json").write_text("{}")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(error, match=message):
        open_dataset(source, **options)
