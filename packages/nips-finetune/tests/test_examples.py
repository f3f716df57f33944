"""From rows to examples: labels, columns, images."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import datasets
import pytest
from datasets import ClassLabel, Dataset, Features, Value
from PIL import Image

from nips_common.testing.bad_input import BadInput, bad_inputs
from nips_finetune.examples import Columns, class_names, make_examples

TEXT = Columns(text="text", label="label")
IMAGE = Columns(image="image", label="label")


def rows(**columns: list[Any]) -> Dataset:
    return Dataset.from_dict(columns)


def labelled(values: list[Any]) -> Dataset:
    return rows(text=["a"] * len(values), label=values)


@pytest.mark.parametrize(
    ("values", "names", "ids"),
    [
        (["good", "bad", "good"], ("bad", "good"), [1, 0, 1]),
        ([10, 9, 10], ("9", "10"), [1, 0, 1]),
        (["10", "9", "-1"], ("-1", "9", "10"), [2, 1, 0]),
        ([1.0, 0.0], ("0", "1"), [1, 0]),
        ([True, False], ("False", "True"), [1, 0]),
    ],
    ids=["words", "numbers", "numbers as text", "whole floats", "booleans"],
)
def test_classes_have_an_order(values: list[Any], names: tuple[str, ...], ids: list[int]) -> None:
    data = labelled(values)
    assert class_names(data, "label", "data") == names
    assert [example["label"] for example in make_examples(data, TEXT, "data", names)] == ids


def test_numbers_that_are_not_all_whole_are_no_classes_and_other_texts_are() -> None:
    assert class_names(labelled(["1.0", "2.5", "beta"]), "label", "data") == ("1.0", "2.5", "beta")
    with pytest.raises(ValueError, match=r"data: column 'label' holds numbers such as 2\.5, .* --regression true"):
        class_names(labelled(["1.0", "2.5", "3"]), "label", "data")


def test_an_image_cut_short_is_named_when_it_is_read(tmp_path: Path) -> None:
    Image.effect_noise((64, 64), 90).save(tmp_path / "a.png")
    whole = (tmp_path / "a.png").read_bytes()
    (tmp_path / "a.png").write_bytes(whole[: len(whole) // 2])
    examples = make_examples(rows(image=[str(tmp_path / "a.png")], label=["x"]), IMAGE, "data", ("x", "y"))
    with pytest.raises(ValueError, match=r"a\.png' is no readable image: .*truncated"):
        examples[0]


def test_class_labels_keep_their_names_and_order() -> None:
    features = Features({"text": Value("string"), "label": ClassLabel(names=["zebra", "ant", "unused"])})
    data = Dataset.from_dict({"text": ["a", "b"], "label": [1, 0]}, features=features)
    names = class_names(data, "label", "data")
    assert names == ("zebra", "ant", "unused")
    assert make_examples(data, TEXT, "data", names)[0] == {"text": "a", "label": 1}


def test_columns_are_renamed_and_the_others_dropped() -> None:
    data = rows(question=["q"], answer=["a"], stars=["2.5"], rest=[0])
    columns = Columns(text="question", text_pair="answer", label="stars")
    examples = make_examples(data, columns, "data", regression=True)
    assert examples[0] == {"text": "q", "text_pair": "a", "label": 2.5}
    assert examples[:]["label"] == [2.5]


def test_a_column_may_be_text_and_label_at_once() -> None:
    data = rows(label=["x", "y"])
    examples = make_examples(data, Columns(text="label", label="label"), "data", ("x", "y"))
    assert [examples[1], examples[0]] == [{"text": "y", "label": 1}, {"text": "x", "label": 0}]


def test_paths_of_images_are_relative_to_their_list(tmp_path: Path) -> None:
    Image.new("L", (3, 2), 7).save(tmp_path / "a.png")
    listing = tmp_path / "list.csv"
    listing.write_text("")
    data = rows(image=["a.png"], label=["x"])
    examples = make_examples(data, Columns(image="image", label="label"), str(listing), ("x", "y"))
    assert examples[0]["image"].mode == "RGB"
    assert examples[0]["image"].size == (3, 2)


def test_images_of_datasets_are_used_as_they_are(tmp_path: Path) -> None:
    Image.new("RGB", (3, 2)).save(tmp_path / "a.png")
    data = rows(picture=[str(tmp_path / "a.png")], label=[1]).cast_column("picture", datasets.Image())
    examples = make_examples(data, Columns(image="picture", label="label"), "hub", ("0", "1"))
    assert (examples[0]["image"].size, examples[0]["label"]) == ((3, 2), 1)


def check(data: Dataset, columns: Columns = TEXT, **options: Any) -> Any:
    return lambda: make_examples(data, columns, "rows.csv", **options)


@bad_inputs(
    [
        BadInput(
            "no such column",
            check(rows(body=["a"], label=["x"])),
            ("rows.csv", "'text'", "--text_column", "body, label"),
        ),
        BadInput("no text", check(rows(text=["a", " "], label=["x", "y"])), ("rows.csv, row 2", "'text'", "' '")),
        BadInput("a number for text", check(rows(text=[1], label=["x"])), ("rows.csv, row 1", "must hold text, got 1")),
        BadInput("a missing label", check(labelled(["x", None]), names=("x",)), ("rows.csv, row 2", "'label'", "None")),
        BadInput(
            "an empty label", check(labelled(["x", ""]), names=("x",)), ("rows.csv, row 2", "must hold a class, got ''")
        ),
        BadInput("a fraction", check(labelled([0.5]), names=("0",)), ("row 1", "0.5", "--regression")),
        BadInput("an unknown class", check(labelled(["x", "z"]), names=("x", "y")), ("row 2", "'z'", "x, y")),
        BadInput("no number", check(labelled(["1", "one"]), regression=True), ("row 2", "finite number", "'one'")),
        BadInput("infinite", check(labelled(["inf"]), regression=True), ("row 1", "finite number, got 'inf'")),
        BadInput(
            "one class",
            lambda: class_names(labelled(["x", "x"]), "label", "rows.csv"),
            ("rows.csv", "two classes, got x"),
        ),
        BadInput(
            "no image file",
            check(rows(image=["gone.png"], label=["x"]), Columns(image="image", label="label"), names=("x",)),
            ("rows.csv, row 1", "gone.png"),
            FileNotFoundError,
        ),
        BadInput(
            "numbers for images",
            check(rows(image=[1], label=["x"]), Columns(image="image", label="label"), names=("x",)),
            ("rows.csv", "'image'", "images or paths"),
        ),
    ]
)
def test_rows_that_do_not_fit_are_told_in_one_line(case: BadInput) -> None:
    case.check()


def test_of_many_classes_only_some_are_listed() -> None:
    names = tuple(str(number) for number in range(30))
    with pytest.raises(ValueError, match="one of 0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and 20 more"):
        make_examples(labelled(["x"]), TEXT, "rows.csv", names)
