"""CSV and JSON lines."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from dota_clip.data.image_lists import read_image_list


@pytest.fixture
def folder(tmp_path: Path, photo_folder: Path) -> Path:
    shutil.copytree(photo_folder, tmp_path, dirs_exist_ok=True)
    return tmp_path


def written(folder: Path, name: str, *lines: str) -> Path:
    (folder / name).write_text("\n".join(lines) + "\n")
    return folder / name


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        ("a.csv", ["china.jpg,pagoda", "flower.jpg,flower"]),
        ("b.csv", ["path,label", "china.jpg,pagoda", "", "flower.jpg, flower"]),
        ("c.csv", ["id,ClassName,File_Name", "1,pagoda,china.jpg", "2,flower,flower.jpg"]),
        ("d.csv", ["\ufeffpath,label", "china.jpg,pagoda", "flower.jpg,flower"]),
        ("e.jsonl", ['{"path": "china.jpg", "label": "pagoda"}', "", '{"image": "flower.jpg", "class": "flower"}']),
    ],
)
def test_names_as_labels_bring_the_classes(folder: Path, name: str, lines: list[str]) -> None:
    stream = read_image_list(written(folder, name, *lines))
    assert stream.classnames == ("flower", "pagoda")
    assert stream.labels == [1, 0]
    assert [item.identifier for item in stream.items] == ["china.jpg", "flower.jpg"]
    assert stream.items[0].load().size == (640, 427)


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        ("a.csv", ["china.jpg,1", "flower.jpg,"]),
        ("b.jsonl", ['{"path": "china.jpg", "label": 1}', '{"path": "flower.jpg", "label": null}']),
        ("c.csv", ["path", "china.jpg", "flower.jpg"]),
    ],
)
def test_numbers_and_missing_labels_take_given_class_names(folder: Path, name: str, lines: list[str]) -> None:
    file = written(folder, name, *lines)
    stream = read_image_list(file, classnames=["flower", "pagoda"])
    assert stream.labels == ([None, None] if name == "c.csv" else [1, None])
    with pytest.raises(ValueError, match="give class names"):
        read_image_list(file)


def test_a_class_called_by_a_digit_is_found_by_name(folder: Path) -> None:
    file = written(folder, "a.csv", "china.jpg,7", "flower.jpg,8")
    assert read_image_list(file, classnames=["8", "7"]).labels == [1, 0]


def test_paths_start_at_the_list_or_at_a_given_root(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    elsewhere = written(tmp_path_factory.mktemp("lists"), "a.csv", "china.jpg,pagoda", f"{folder}/flower.jpg,flower")
    assert len(read_image_list(elsewhere, image_root=folder)) == 2
    with pytest.raises(FileNotFoundError, match=r"a\.csv: 1 of 2 image files are missing: .*china\.jpg"):
        read_image_list(elsewhere)


@pytest.mark.parametrize(
    ("name", "line", "message"),
    [
        ("a.csv", "flower.jpg,tulip", r"a\.csv, line 2 \(flower\.jpg\): 'tulip' is not among the 2 class names"),
        ("a.csv", "flower.jpg,2", r"a\.csv, line 2 \(flower\.jpg\): label 2 is outside 0\.\.1 \(2 class names\)"),
        ("a.csv", "flower.jpg,flower,red", r"a\.csv, line 2: expected path\[,label\], got 'flower\.jpg,flower,red'"),
        ("a.csv", ",flower", r"a\.csv, line 2: expected path"),
        ("a.jsonl", '{"path": ', r"a\.jsonl, line 2: not JSON"),
        ("a.jsonl", '{"label": 1}', r"a\.jsonl, line 2: expected an object with one of path"),
        ("a.jsonl", '"flower.jpg"', r"a\.jsonl, line 2: expected an object"),
        ("a.jsonl", '{"path": "flower.jpg", "label": 0.5}', r"a\.jsonl, line 2: the label must be .* got 0\.5"),
        ("a.jsonl", '{"path": "flower.jpg", "label": -1}', r"label -1 is outside"),
    ],
)
def test_a_bad_line_is_named(folder: Path, name: str, line: str, message: str) -> None:
    first = "china.jpg,pagoda" if name.endswith("csv") else '{"path": "china.jpg", "label": "pagoda"}'
    with pytest.raises(ValueError, match=message):
        read_image_list(written(folder, name, first, line), classnames=["flower", "pagoda"])


def test_a_list_without_images_is_refused(folder: Path) -> None:
    with pytest.raises(ValueError, match="no image in the list"):
        read_image_list(written(folder, "a.csv", "path,label"))
    with pytest.raises(FileNotFoundError):
        read_image_list(folder / "gone.csv")
