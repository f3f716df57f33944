"""The published benchmarks' file layouts, with real pictures in them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from dota_clip.catalog import resolve_benchmark
from dota_clip.data.benchmark_files import read_benchmark, read_coop_split
from dota_clip.data.image_stream import ImageStream

SPLIT = {
    "train": [["River/a.jpg", 1, "River"]],
    "val": [],
    "test": [["Forest/b.jpg", 0, "Forest"], ["River/c.jpg", 1, "River"]],
}


def read(source: Path, name: str, **options: Any) -> ImageStream:
    return read_benchmark(source, resolve_benchmark(name), **options)


def place(photo_folder: Path, root: Path, *paths: str) -> None:
    for path in paths:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(photo_folder / "china.jpg", root / path)


@pytest.fixture
def eurosat(tmp_path: Path, photo_folder: Path) -> Path:
    place(photo_folder, tmp_path / "eurosat" / "2750", "River/a.jpg", "Forest/b.jpg", "River/c.jpg")
    (tmp_path / "eurosat" / "split_zhou_EuroSAT.json").write_text(json.dumps(SPLIT))
    return tmp_path


def test_a_coop_data_set_is_read_from_the_root_or_its_own_folder(eurosat: Path) -> None:
    for source in (eurosat, eurosat / "eurosat"):
        stream = read(source, "eurosat")
        assert stream.classnames == ("Forest", "River")
        assert stream.labels == [0, 1]
        assert stream.dataset == "eurosat"
        assert stream.items[1].load().mode == "RGB"


def test_the_classes_are_the_same_whichever_part_is_read(eurosat: Path) -> None:
    train = read(eurosat, "eurosat", split="train")
    assert (train.classnames, train.labels) == (("Forest", "River"), [1])


def test_a_part_that_does_not_exist_or_is_empty_is_refused(eurosat: Path) -> None:
    with pytest.raises(ValueError, match="no split 'dev'; there are: train, val, test"):
        read(eurosat, "eurosat", split="dev")
    with pytest.raises(ValueError, match="no image"):
        read(eurosat, "eurosat", split="val")


def test_images_may_lie_beside_the_split_file_or_elsewhere(eurosat: Path, tmp_path: Path) -> None:
    file = tmp_path / "mine.json"
    file.write_text(json.dumps(SPLIT))
    assert len(read_coop_split(file, image_root=eurosat / "eurosat" / "2750")) == 2
    moved = shutil.copy(file, eurosat / "eurosat" / "2750")
    assert len(read_coop_split(moved)) == 2
    assert len(read_coop_split(moved, image_root=tmp_path / "nowhere")) == 2


def test_missing_images_are_named_together(eurosat: Path) -> None:
    (eurosat / "eurosat" / "2750" / "Forest" / "b.jpg").unlink()
    with pytest.raises(FileNotFoundError, match=r"1 of 2 image files are missing: .*2750/Forest/b\.jpg"):
        read(eurosat, "eurosat")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[", "not JSON"),
        ("[]", "expected lists of"),
        ('{"test": [["a.jpg", 0]]}', r"test\[0\]: expected \[path, label, classname\], got \['a\.jpg', 0\]"),
        ('{"test": [["a.jpg", "0", "cat"]]}', r"test\[0\]: expected"),
        ('{"test": [["a.jpg", 0, "cat"], ["b.jpg", 0, "dog"]]}', r"test\[1\]: label 0 is 'dog' here and 'cat' before"),
        ('{"test": [["a.jpg", 0, "cat"], ["b.jpg", 2, "dog"]]}', "without a gap, got 2 labels up to 2"),
    ],
)
def test_a_malformed_split_file_names_the_entry(tmp_path: Path, content: str, message: str) -> None:
    file = tmp_path / "split_zhou_X.json"
    file.write_text(content)
    with pytest.raises(ValueError, match=rf"split_zhou_X\.json.*{message}"):
        read_coop_split(file)


def test_a_folder_without_its_split_file_says_which_it_looked_for(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"no split_zhou_Food101\.json \(food101\); split files there: none"):
        read(tmp_path, "food101")
    with pytest.raises(FileNotFoundError, match="gone: no such folder"):
        read(tmp_path / "gone", "food101")


@pytest.fixture
def aircraft(tmp_path: Path, photo_folder: Path) -> Path:
    root = tmp_path / "fgvc_aircraft"
    place(photo_folder, root / "images", "0034309.jpg", "1340192.jpg")
    (root / "variants.txt").write_text("707-320\nDHC-8-100\n")
    (root / "images_variant_test.txt").write_text("1340192 DHC-8-100\n0034309 707-320\n\n")
    return tmp_path


def test_aircraft_variants_are_read_from_their_lists(aircraft: Path) -> None:
    stream = read(aircraft, "fgvc")
    assert stream.classnames == ("707-320", "DHC-8-100")
    assert [(item.identifier, item.label) for item in stream.items] == [("1340192.jpg", 1), ("0034309.jpg", 0)]
    assert stream.items[0].load().mode == "RGB"


def test_aircraft_lists_with_mistakes_are_named(aircraft: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"images_variant_val\.txt: no such file; lists there: images_"):
        read(aircraft, "fgvc", split="val")
    (aircraft / "fgvc_aircraft" / "images_variant_test.txt").write_text("0034309 Concorde\n")
    with pytest.raises(ValueError, match=r"line 1: 'Concorde' is not in variants\.txt"):
        read(aircraft, "fgvc")


CLASSNAMES = "n01440764 tench\nn01443537 goldfish\nn04355933 sunglasses\nn04356056 sunglasses\n"


@pytest.fixture
def imagenets(tmp_path: Path, photo_folder: Path) -> Path:
    (tmp_path / "imagenet").mkdir()
    (tmp_path / "imagenet" / "classnames.txt").write_text(CLASSNAMES)
    for folder in (
        "imagenet/images/val",
        "imagenet-sketch/images",
        "imagenet-adversarial/imagenet-a",
        "imagenet-rendition/imagenet-r",
    ):
        place(photo_folder, tmp_path / folder, "n04356056/x.JPEG", "n01443537/y.JPEG")
    place(photo_folder, tmp_path / "imagenetv2" / "imagenetv2-matched-frequency-format-val", "3/x.jpeg", "1/y.jpeg")
    (tmp_path / "imagenet-adversarial" / "imagenet-a" / "README.txt").write_text("x")
    return tmp_path


@pytest.mark.parametrize("letter", ["I", "A", "R", "S", "V"])
def test_imagenet_and_its_variants_have_the_classes_that_are_present(imagenets: Path, letter: str) -> None:
    stream = read(imagenets, letter)
    assert stream.classnames == ("goldfish", "sunglasses")
    assert stream.class_ids == ("n01443537", "n04356056")
    assert stream.labels == [0, 1]
    assert stream.dataset == resolve_benchmark(letter).name


def test_the_variants_have_one_part_and_imagenet_two(imagenets: Path, photo_folder: Path) -> None:
    with pytest.raises(ValueError, match="imagenet-r has one part only, called 'test', got split 'train'"):
        read(imagenets, "R", split="train")
    place(photo_folder, imagenets / "imagenet" / "images" / "train", "n01440764/1.JPEG")
    assert read(imagenets, "I", split="train").classnames == ("tench",)
    assert read(imagenets, "I", split="val").labels == read(imagenets, "I").labels


def test_two_imagenet_classes_may_share_a_name(imagenets: Path, photo_folder: Path) -> None:
    place(photo_folder, imagenets / "imagenet" / "images" / "val", "n04355933/z.JPEG")
    assert read(imagenets, "I").classnames == ("goldfish", "sunglasses", "sunglasses")


def test_folders_that_are_no_imagenet_classes_are_named(imagenets: Path, photo_folder: Path) -> None:
    place(photo_folder, imagenets / "imagenet-sketch" / "images", "cats/x.jpg")
    with pytest.raises(ValueError, match=r"must be named wnids of classnames\.txt, got cats"):
        read(imagenets, "S")
    place(photo_folder, imagenets / "imagenetv2" / "imagenetv2-matched-frequency-format-val", "4/x.jpg")
    with pytest.raises(ValueError, match=r"must be named 0\.\.3, got 4"):
        read(imagenets, "V")


def test_imagenet_without_its_class_list_says_where_it_looked(imagenets: Path) -> None:
    (imagenets / "imagenet" / "classnames.txt").unlink()
    with pytest.raises(FileNotFoundError, match=r"imagenet-sketch/classnames\.txt: no such.*imagenet/classnames"):
        read(imagenets, "S")


def test_a_malformed_class_list_names_the_line(imagenets: Path) -> None:
    (imagenets / "imagenet" / "classnames.txt").write_text("n01440764 tench\nn01443537\n")
    with pytest.raises(ValueError, match=r"classnames\.txt, line 2: expected a new wnid, a space and a name"):
        read(imagenets, "I")


def test_an_imagenet_folder_without_images_is_refused(imagenets: Path) -> None:
    shutil.rmtree(imagenets / "imagenet" / "images")
    with pytest.raises(ValueError, match=r"no class folder with images for imagenet \(usual place: .*images/val\)"):
        read(imagenets, "I")
