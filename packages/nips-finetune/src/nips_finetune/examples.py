"""From the columns of a data set to examples: texts, labels and images, checked before anything is trained."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import datasets
from datasets import Dataset
from PIL import Image

Example = dict[str, Any]  # some of text, text_pair, prompt (str), label (int or float), image (PIL image)


@dataclass(frozen=True)
class Columns:
    """Which columns hold what; those that a task does not use are None.

    Args:
        text: The text, or what is to be generated after a prompt.
        text_pair: A second text to classify together with the first.
        prompt: What precedes the text; no loss is taken on it.
        label: The class, or for a regression the number.
        image: Pictures: image values of ``datasets`` or paths.
    """

    text: str | None = None
    text_pair: str | None = None
    prompt: str | None = None
    label: str | None = None
    image: str | None = None

    def used(self) -> dict[str, str]:
        """The columns that are used, by what they hold."""
        return {role: name for role, name in vars(self).items() if name is not None}

    def check(self, rows: Dataset, source: str) -> None:
        """Raise a ValueError that names a column which is not there, or a row without its text."""
        for role, name in self.used().items():
            if name not in rows.column_names:
                raise ValueError(
                    f"{source} has no column {name!r} (--{role}_column); its columns are {', '.join(rows.column_names)}"
                )
        for role in ("text", "text_pair", "prompt"):
            name = getattr(self, role)
            for number, value in enumerate(rows[name] if name is not None else (), 1):
                if not isinstance(value, str) or (role == "text" and not value.strip()):
                    raise ValueError(f"{source}, row {number}: column {name!r} must hold text, got {value!r}")


def class_values(rows: Dataset, column: str, source: str) -> list[str]:
    """The class of each row as text; labels of ``datasets.ClassLabel`` by their names.

    Raises:
        ValueError: A value that is no class: none, empty, or a number that is not whole.
    """
    names = getattr(rows.features[column], "names", None)
    values = []
    for number, value in enumerate(rows[column], 1):
        if isinstance(value, float) and not value.is_integer():
            raise ValueError(
                f"{source}, row {number}: column {column!r} holds {value!r}; a class is text or a whole number "
                "(--regression true learns numbers)"
            )
        known = isinstance(value, str | int | float) and value != ""
        if not known or (names is not None and not (isinstance(value, int) and 0 <= value < len(names))):
            raise ValueError(f"{source}, row {number}: column {column!r} must hold a class, got {value!r}")
        values.append(names[value] if names is not None else str(int(value) if isinstance(value, float) else value))
    return values


def class_names(rows: Dataset, column: str, source: str) -> tuple[str, ...]:
    """The classes of the training rows: in the order of ``datasets.ClassLabel``, of whole numbers, or of the alphabet.

    Raises:
        ValueError: As :func:`class_values`, numbers that are not all whole, or fewer than two classes.
    """
    values = set(class_values(rows, column, source))
    fraction = _fraction(values)
    if fraction is not None:
        raise ValueError(
            f"{source}: column {column!r} holds numbers such as {fraction}, which are not classes; "
            "--regression true learns numbers"
        )
    declared = getattr(rows.features[column], "names", None)
    if declared is not None:
        found = tuple(declared)
    elif all(value.lstrip("-").isdecimal() for value in values):
        found = tuple(sorted(values, key=int))
    else:
        found = tuple(sorted(values))
    if len(found) < 2:
        raise ValueError(f"{source}: column {column!r} must hold at least two classes, got {', '.join(found)}")
    return found


def _fraction(values: Iterable[str]) -> str | None:
    """One that is not whole, where all values are numbers."""
    try:
        fractions = [value for value in sorted(values) if not float(value).is_integer()]
    except (ValueError, OverflowError):
        return None
    return fractions[0] if fractions else None


def class_ids(values: Iterable[str], names: Sequence[str], source: str) -> list[int]:
    """Indices of classes; ValueError for one that training does not know."""
    index = {name: position for position, name in enumerate(names)}
    ids = []
    for number, value in enumerate(values, 1):
        if value not in index:
            raise ValueError(f"{source}, row {number}: class {value!r} is not one of {_some(names)}")
        ids.append(index[value])
    return ids


def numbers(rows: Dataset, column: str, source: str) -> list[float]:
    """The targets of a regression; ValueError for what is no finite number."""
    values = []
    for number, value in enumerate(rows[column], 1):
        try:
            target = float(value)
        except (TypeError, ValueError):
            target = math.nan
        if not math.isfinite(target):
            raise ValueError(f"{source}, row {number}: column {column!r} must hold a finite number, got {value!r}")
        values.append(target)
    return values


def make_examples(
    rows: Dataset, columns: Columns, source: str, names: Sequence[str] = (), regression: bool = False
) -> Dataset:
    """Check all rows and let the data set give :data:`Example` dictionaries; images are opened when asked for.

    Args:
        rows: The rows.
        columns: What is used of them.
        source: Where they come from, for messages.
        names: The classes, for a classification.
        regression: Whether labels are numbers.

    Raises:
        ValueError: A missing column, an empty text, a label that is none, an image column without images.
        FileNotFoundError: A path in the image column with no file.
    """
    columns.check(rows, source)
    labels: list[Any] | None = None
    if columns.label is not None:
        labels = (
            numbers(rows, columns.label, source)
            if regression
            else class_ids(class_values(rows, columns.label, source), names, source)
        )
    kept = rows.select_columns([name for role, name in columns.used().items() if role != "label"])
    renamed = {name: role for role, name in columns.used().items() if role != "label"}
    if columns.image is not None:
        kept = _with_image_files(kept, columns.image, source)
    if labels is not None:
        label = "label" if "label" not in kept.column_names else "label of the row"
        kept = kept.add_column(label, labels)
        renamed[label] = "label"
    return kept.with_transform(_Renaming(renamed))


@dataclass(frozen=True)
class _Renaming:
    """A batch of columns with the names of :data:`Example`; a class, so that worker processes can have it."""

    names: Mapping[str, str]

    def __call__(self, batch: Mapping[str, list[Any]]) -> dict[str, list[Any]]:
        found = {self.names[name]: values for name, values in batch.items()}
        if "image" in found:
            found["image"] = [_decoded(image) for image in found["image"]]
        return found


def _with_image_files(rows: Dataset, column: str, source: str) -> Dataset:
    """Let a column of paths, relative to their list, be one of images; ValueError for other values."""
    feature = rows.features[column]
    if isinstance(feature, datasets.Image):
        return rows.cast_column(column, datasets.Image(decode=False))
    if getattr(feature, "dtype", None) != "string":
        raise ValueError(f"{source}: column {column!r} must hold images or paths of images, got {feature}")
    folder = Path(source).parent if Path(source).is_file() else Path()
    paths = [folder / (path or "") for path in rows[column]]
    for number, path in enumerate(paths, 1):
        if not path.is_file():
            raise FileNotFoundError(f"{source}, row {number}: no image file {str(path)!r}")
        _open(path, f"{source}, row {number}: {str(path)!r}").close()  # reads the header only
    found: Dataset = datasets.Dataset.from_dict({column: [str(path) for path in paths]})
    return found.cast_column(column, datasets.Image(decode=False))


def _open(file: Path | BytesIO, name: str) -> Image.Image:
    """An image whose header is read; ValueError with the name for what is none."""
    try:
        return Image.open(file)
    except (OSError, SyntaxError, Image.DecompressionBombError) as error:  # SyntaxError: of a damaged PNG
        raise ValueError(f"{name} is no readable image: {error}") from error


def _decoded(value: Mapping[str, Any]) -> Image.Image:
    """An RGB image from what ``datasets`` keeps of it: a path, bytes, or both."""
    name = repr(value["path"]) if value["path"] else "an image of the data set"
    with _open(Path(value["path"]) if value["bytes"] is None else BytesIO(value["bytes"]), name) as image:
        try:
            return image.convert("RGB")
        except (OSError, SyntaxError, ValueError) as error:
            raise ValueError(f"{name} is no readable image: {error}") from error


def _some(names: Sequence[str], most: int = 10) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
