"""Prompt templates and class names."""

from __future__ import annotations

from pathlib import Path

import pytest

from dota_clip.catalog import BENCHMARKS, resolve_benchmark
from dota_clip.imagenet_templates import OPENAI_IMAGENET_TEMPLATES, SIMPLE_IMAGENET_TEMPLATES
from dota_clip.prompts import (
    DEFAULT_TEMPLATES,
    EUROSAT_CLASSNAMES,
    check_templates,
    prepare_classnames,
    read_templates,
    templates_for,
)


def test_the_imagenet_templates_are_open_clips_in_text_and_order() -> None:
    open_clip = pytest.importorskip("open_clip")
    assert [f("{}") for f in open_clip.SIMPLE_IMAGENET_TEMPLATES] == list(SIMPLE_IMAGENET_TEMPLATES)
    assert [f("{}") for f in open_clip.OPENAI_IMAGENET_TEMPLATES] == list(OPENAI_IMAGENET_TEMPLATES)
    assert (len(SIMPLE_IMAGENET_TEMPLATES), len(OPENAI_IMAGENET_TEMPLATES)) == (7, 80)


@pytest.mark.parametrize(
    ("dataset", "expected"),
    [
        ("dtd", ("{} texture.",)),
        ("eurosat", ("a centered satellite photo of {}.",)),
        ("fgvc", ("a photo of a {}, a type of aircraft.",)),
        ("food101", ("a photo of {}, a type of food.",)),
        ("oxford_flowers", ("a photo of a {}, a type of flower.",)),
        ("oxford_pets", ("a photo of a {}, a type of pet.",)),
        ("ucf101", ("a photo of a person doing {}.",)),
        ("caltech101", SIMPLE_IMAGENET_TEMPLATES),
        ("stanford_cars", SIMPLE_IMAGENET_TEMPLATES),
        ("sun397", SIMPLE_IMAGENET_TEMPLATES),
        ("I", SIMPLE_IMAGENET_TEMPLATES),
        ("A", SIMPLE_IMAGENET_TEMPLATES),
        ("V", SIMPLE_IMAGENET_TEMPLATES),
        ("R", OPENAI_IMAGENET_TEMPLATES),
        ("S", OPENAI_IMAGENET_TEMPLATES),
        (None, ("a photo of a {}.",)),
    ],
)
def test_each_data_set_has_its_published_templates(dataset: str | None, expected: tuple[str, ...]) -> None:
    assert templates_for(dataset) == expected


def test_every_template_that_ships_has_one_place_for_the_class_name() -> None:
    for benchmark in BENCHMARKS.values():
        assert check_templates(benchmark.templates) == benchmark.templates


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("A", "imagenet-a"),
        ("imagenet-sketch", "imagenet-s"),
        ("imagenetv2", "imagenet-v"),
        ("DTD", "dtd"),
        ("food-101", "food101"),
    ],
)
def test_letters_and_folder_names_mean_the_data_set(given: str, name: str) -> None:
    assert resolve_benchmark(given).name == name


def test_an_unknown_data_set_names_the_nearest_ones() -> None:
    with pytest.raises(ValueError, match=r"unknown data set 'eurosatt': did you mean eurosat.*\? known: caltech101"):
        templates_for("eurosatt")


def test_the_ten_eurosat_folders_get_readable_names() -> None:
    prepared = prepare_classnames(list(EUROSAT_CLASSNAMES), "eurosat")
    assert prepared[:4] == ("Annual Crop Land", "Forest", "Herbaceous Vegetation Land", "Highway or Road")
    assert prepared[-1] == "Sea or Lake"
    assert len(prepared) == 10


def test_names_that_are_readable_already_stay_as_they_are() -> None:
    assert prepare_classnames(["Annual Crop Land", "Sea or Lake"], "eurosat") == ("Annual Crop Land", "Sea or Lake")
    assert prepare_classnames(["AnnualCrop"]) == ("AnnualCrop",)


def test_underscores_become_spaces() -> None:
    assert prepare_classnames(["banded_zigzagged", " dotted "], "dtd") == ("banded zigzagged", "dotted")


def test_duplicate_class_names_are_named() -> None:
    with pytest.raises(ValueError, match="'sea lake' given more than once"):
        prepare_classnames(["sea_lake", "river", "sea lake"])


def test_imagenet_may_give_two_classes_one_name() -> None:
    assert prepare_classnames(["missile", "missile"], "imagenet") == ("missile", "missile")
    assert prepare_classnames(["sunglasses", "sunglasses"], "V") == ("sunglasses", "sunglasses")


@pytest.mark.parametrize(
    ("names", "message"),
    [([], r"at least one name is needed, got \[\]"), (["cat", "_"], "position 1 is empty"), ("cat", "got 'cat'")],
)
def test_a_class_list_without_names_is_refused(names: list[str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        prepare_classnames(names)


def test_templates_are_read_from_a_file_one_per_line(tmp_path: Path) -> None:
    file = tmp_path / "templates.txt"
    file.write_text("a sketch of {}.\n\n  {} in the rain \n")
    assert read_templates(file) == ("a sketch of {}.", "{} in the rain")


@pytest.mark.parametrize("line", ["a photo.", "{} and {}", "a {name}"])
def test_a_template_file_with_a_bad_line_names_the_line(tmp_path: Path, line: str) -> None:
    file = tmp_path / "templates.txt"
    file.write_text(f"a {{}}.\n{line}\n")
    with pytest.raises(ValueError, match=r"templates\.txt, line 2: exactly one \{\} is needed"):
        read_templates(file)


def test_an_empty_template_file_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "templates.txt"
    file.write_text("\n")
    with pytest.raises(ValueError, match="no template"):
        read_templates(file)


@pytest.mark.parametrize("templates", [(), ("no place",), "a {}"])
def test_templates_that_are_none_are_refused(templates: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match="template"):
        check_templates(templates)


def test_the_default_is_one_plain_prompt() -> None:
    assert DEFAULT_TEMPLATES == ("a photo of a {}.",)
