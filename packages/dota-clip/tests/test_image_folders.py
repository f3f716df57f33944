"""Plain folders of images."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from dota_clip.data.image_folders import read_image_folder

NAMES = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")


def test_class_folders_give_names_and_labels(digit_image_folder: Path) -> None:
    stream = read_image_folder(digit_image_folder)
    assert stream.classnames == tuple(sorted(NAMES))
    assert len(stream) == 60
    for item in stream.items:
        assert item.identifier.startswith(f"{stream.classnames[item.label]}/")
        assert item.load().size == (8, 8)


def test_given_class_names_set_the_label_order(digit_image_folder: Path) -> None:
    stream = read_image_folder(digit_image_folder, classnames=[*NAMES, "ten"])
    assert stream.classnames == (*NAMES, "ten")
    assert {item.label for item in stream.items if item.identifier.startswith("nine/")} == {9}


def test_a_class_folder_without_a_name_is_refused(digit_image_folder: Path) -> None:
    with pytest.raises(ValueError, match="no class name for 2 class folders: five, four"):
        read_image_folder(digit_image_folder, classnames=[name for name in NAMES if name not in ("four", "five")])


def test_a_flat_folder_has_no_labels_and_needs_names(photo_folder: Path) -> None:
    stream = read_image_folder(photo_folder, classnames=["a pagoda", "a flower"])
    assert stream.labels == [None, None]
    assert [item.identifier for item in stream.items] == ["china.jpg", "flower.jpg"]
    with pytest.raises(ValueError, match="images without class folders need class names"):
        read_image_folder(photo_folder)


def test_other_and_hidden_files_are_passed_over(photo_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "flower").mkdir()
    shutil.copy(photo_folder / "flower.jpg", tmp_path / "flower" / "A.JPG")
    for name in ("notes.txt", ".hidden.jpg"):
        (tmp_path / "flower" / name).write_text("x")
    (tmp_path / ".cache").mkdir()
    assert [item.identifier for item in read_image_folder(tmp_path).items] == ["flower/A.JPG"]


def test_images_in_deeper_folders_belong_to_the_class_at_the_top(photo_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "plants" / "2024").mkdir(parents=True)
    shutil.copy(photo_folder / "flower.jpg", tmp_path / "plants" / "2024")
    assert [(item.label, item.identifier) for item in read_image_folder(tmp_path).items] == [
        (0, "plants/2024/flower.jpg")
    ]


def test_folders_named_after_splits_are_splits(digit_image_folder: Path, tmp_path: Path) -> None:
    shutil.copytree(digit_image_folder / "one", tmp_path / "test" / "one")
    shutil.copytree(digit_image_folder / "two", tmp_path / "train" / "two")
    assert read_image_folder(tmp_path).classnames == ("one",)
    assert read_image_folder(tmp_path, split="train").classnames == ("two",)
    with pytest.raises(ValueError, match="no split 'val'; there are: test, train"):
        read_image_folder(tmp_path, split="val")


def test_images_beside_class_folders_are_refused(digit_image_folder: Path, photo_folder: Path, tmp_path: Path) -> None:
    shutil.copytree(digit_image_folder / "one", tmp_path / "one")
    shutil.copy(photo_folder / "china.jpg", tmp_path)
    with pytest.raises(ValueError, match="images beside class folders"):
        read_image_folder(tmp_path)


def test_an_empty_and_a_missing_folder_are_refused(tmp_path: Path) -> None:
    (tmp_path / "cat").mkdir()
    with pytest.raises(ValueError, match=r"no image found; suffixes read: \.jpg"):
        read_image_folder(tmp_path)
    with pytest.raises(FileNotFoundError, match="gone: no such folder"):
        read_image_folder(tmp_path / "gone")
