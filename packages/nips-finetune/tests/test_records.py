"""Reading rows: every form gives the same rows, and what cannot be read is told with its place."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path

import datasets
import pytest
from PIL import Image

from nips_common.testing.bad_input import BadInput, bad_inputs
from nips_finetune import read_records

ROWS = [{"text": 'a film, "fine"\nand long', "label": "good"}, {"text": "ümlaut\tdull", "label": "bad"}]


def write(path: Path, text: str) -> Path:
    path.write_text(text, "utf-8")
    return path


def as_csv(folder: Path) -> Path:
    return as_table(folder / "rows.csv", ",")


def as_tsv(folder: Path) -> Path:
    return as_table(folder / "rows.tsv", "\t")


def as_table(path: Path, delimiter: str) -> Path:
    with path.open("w", newline="", encoding="utf-8-sig") as file:
        writer = csv.DictWriter(file, ["text", "label"], delimiter=delimiter)
        writer.writeheader()
        writer.writerows(ROWS)
    return path


def as_json_lines(folder: Path) -> Path:
    return write(folder / "rows.jsonl", "\n\n".join(map(json.dumps, ROWS)) + "\n")


def as_json(folder: Path) -> Path:
    return write(folder / "rows.json", json.dumps(ROWS))


def as_parquet(folder: Path) -> Path:
    datasets.Dataset.from_list(ROWS).to_parquet(folder / "rows.parquet")
    return folder / "rows.parquet"


def as_saved_folder(folder: Path) -> Path:
    datasets.Dataset.from_list(ROWS).save_to_disk(folder / "saved")
    return folder / "saved"


def as_folder_of_splits(folder: Path) -> Path:
    rows = datasets.Dataset.from_list(ROWS)
    datasets.DatasetDict({"test": rows.select([0]), "train": rows}).save_to_disk(folder / "splits")
    return folder / "splits"


@pytest.mark.parametrize(
    "form", [as_csv, as_tsv, as_json_lines, as_json, as_parquet, as_saved_folder, as_folder_of_splits]
)
def test_every_form_gives_the_same_rows(form: Callable[[Path], Path], tmp_path: Path) -> None:
    assert read_records(str(form(tmp_path))).to_list() == ROWS


def test_a_split_is_chosen_by_its_name(tmp_path: Path) -> None:
    assert read_records(str(as_folder_of_splits(tmp_path)), "test").to_list() == ROWS[:1]


def test_values_of_tables_stay_text_and_those_of_json_their_kind(tmp_path: Path) -> None:
    table, lines = write(tmp_path / "a.csv", "n,m\n007,\n"), write(tmp_path / "a.jsonl", '{"n": 7}\n{"m": 0.5}\n')
    assert read_records(str(table)).to_list() == [{"n": "007", "m": ""}]
    assert read_records(str(lines)).to_list() == [{"n": 7, "m": None}, {"n": None, "m": 0.5}]


def test_a_folder_with_a_folder_of_images_for_each_class(tmp_path: Path) -> None:
    for name in ("b/2.PNG", "a/x/1.jpg", "a/notes.txt", ".hidden/3.png"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        if name.endswith("txt"):
            write(tmp_path / name, "no image")
        else:
            Image.new("RGB", (2, 2)).save(tmp_path / name)
    expected = [
        {"image": str(tmp_path / "a/x/1.jpg"), "label": "a"},
        {"image": str(tmp_path / "b/2.PNG"), "label": "b"},
    ]
    assert read_records(str(tmp_path)).to_list() == expected


def read(name: str, text: str | bytes, split: str = "train") -> Callable[[Path], object]:
    def call(folder: Path) -> object:
        (folder / name).write_bytes(text.encode() if isinstance(text, str) else text)
        return read_records(str(folder / name), split)

    return call


@bad_inputs(
    [
        BadInput("a field too many", read("a.csv", "x,y\n1,2\n1,2,3\n"), ("a.csv, line 3", "3 fields", "header has 2")),
        BadInput("a column twice", read("a.csv", "x,x\n1,2\n"), ("a.csv", "twice", "x, x")),
        BadInput("an open quote", read("a.csv", 'x\n"1\n'), ("a.csv, line 2",)),
        BadInput("a header alone", read("a.csv", "x,y\n"), ("a.csv holds no rows",)),
        BadInput("other bytes", read("a.csv", b"x\n\xff\n"), ("a.csv", "not UTF-8")),
        BadInput("a broken line", read("a.jsonl", '{"x": 1}\n{"x"\n'), ("a.jsonl, line 2", "not valid JSON")),
        BadInput("a line that is no object", read("a.jsonl", "[1]\n"), ("a.jsonl, line 1", "JSON object", "list")),
        BadInput("lines called a list", read("a.json", '{"x": 1}\n{"x": 2}\n'), ("a.json", ".jsonl")),
        BadInput("an object for a list", read("a.json", '{"x": 1}'), ("a.json", "list of JSON objects")),
        BadInput("mixed types", read("a.jsonl", '{"x": 1}\n{"x": "one"}\n'), ("a.jsonl", "mixes types")),
        BadInput("no Parquet", read("a.parquet", "x"), ("a.parquet", "not a Parquet file")),
        BadInput("another ending", read("a.xlsx", "x"), ("a.xlsx", ".csv, .tsv, .json, .jsonl, .parquet")),
        BadInput(
            "no such file", lambda f: read_records(str(f / "no.csv")), ("no.csv: no such file",), FileNotFoundError
        ),
        BadInput(
            "an empty folder", lambda f: read_records(str(f)), ("save_to_disk", "folder of images for each class")
        ),
        BadInput(
            "an unknown split",
            lambda f: read_records(str(as_folder_of_splits(f)), "valid"),
            ("splits has no split 'valid', only test, train",),
        ),
        BadInput("a split of a file", read("a.csv", "x\n1\n", "test"), ("a.csv has no splits, so no split 'test'",)),
        BadInput(
            "a split of a folder without",
            lambda f: read_records(str(as_saved_folder(f)), "test"),
            ("saved has no splits, so no split 'test'",),
        ),
        BadInput("a hub id offline", lambda _: read_records("nobody/nothing"), ("'nobody/nothing'", "hub id"), OSError),
    ]
)
def test_what_cannot_be_read_is_told_in_one_line(case: BadInput, tmp_path: Path) -> None:
    case.check(tmp_path)


def test_a_damaged_saved_folder_is_named(tmp_path: Path) -> None:
    folder = as_saved_folder(tmp_path)
    (folder / "dataset_info.json").write_text("{")
    with pytest.raises(ValueError, match="saved: not a readable folder of datasets"):
        read_records(str(folder))
