"""Hugging Face `datasets` as streams: a folder that `save_to_disk` wrote, or a data set of the hub."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dota_clip.data.image_stream import ImageItem, ImageStream
from dota_clip.data.images import UnreadableImage, load_image
from dota_clip.load_errors import load_failure
from nips_common.runtime import require

if TYPE_CHECKING:
    from PIL import Image

_LABEL_NAMES = ("label", "labels", "class", "target")


class _Row:
    """Decodes one row's image; a class and not a closure, so that it can be sent to data-loading processes."""

    def __init__(self, dataset: Any, column: str, index: int) -> None:
        self.dataset, self.column, self.index = dataset, column, index

    def __call__(self) -> Image.Image:
        stored = self.dataset[self.index][self.column]
        name = f"row {self.index}"
        if stored is None:
            raise UnreadableImage(f"cannot read image {name}: the row has no image")
        if stored["bytes"] is not None:
            return load_image(stored["bytes"], name=name)
        return load_image(stored["path"])


def read_hf_dataset(
    source: str | Path,
    *,
    split: str = "test",
    classnames: Sequence[str] | None = None,
    image_column: str | None = None,
    label_column: str | None = None,
) -> ImageStream:
    """Read images and labels from a `datasets` data set.

    Args:
        source: a folder written by `save_to_disk`, or the name of a data set on the hub, `org/name`.
        split: which split, where there are several.
        classnames: the classes in label order; default: the names that the label feature holds.
        image_column: default: the only column of images.
        label_column: default: the only column of class labels, else a column called label.

    Raises:
        ImportError: `datasets` is not installed.
        ValueError: no or several image columns, no such split or column, no class names, labels outside them.
        OSError: no such folder, or the hub cannot be reached.
    """
    require("datasets", "dota-clip[datasets]")
    import datasets

    rows = _opened(datasets, source, split)
    images = image_column or _only([n for n, f in rows.features.items() if isinstance(f, datasets.Image)], rows, source)
    if not isinstance(rows.features.get(images), datasets.Image):
        raise ValueError(f"{source}: {images!r} is not a column of images; columns: {', '.join(rows.features)}")
    # Undecoded, so that one reader (upright, RGB, errors by name) decodes all images, and labels need no decoding.
    pictures = rows.select_columns([images]).cast_column(images, datasets.Image(decode=False))
    column = label_column or _label_column(datasets, rows)
    if column is not None and column not in rows.features:
        raise ValueError(f"{source}: no column {column!r}; columns: {', '.join(rows.features)}")
    feature = rows.features[column] if column is not None else None
    labels: list[Any] = list(rows[column]) if column is not None else [None] * len(rows)
    names = _names(feature, labels, classnames, f"{source}, column {column}" if column else str(source))
    items = [ImageItem(_Row(pictures, images, i), _label(labels[i], names, i), f"row {i}") for i in range(len(rows))]
    return ImageStream(names, items)


def _opened(datasets: Any, source: str | Path, split: str) -> Any:
    try:
        if not Path(source).is_dir():
            return datasets.load_dataset(str(source), split=split)
        loaded = datasets.load_from_disk(str(source))
    except Exception as error:  # the hub, the builders and Arrow each have their own kinds
        raise load_failure(
            f"{source} (split {split!r})", None if Path(source).is_dir() else str(source), error
        ) from error
    if isinstance(loaded, datasets.DatasetDict):
        if split not in loaded:
            raise ValueError(f"{source}: no split {split!r}; there are: {', '.join(loaded)}")
        return loaded[split]
    return loaded


def _only(columns: list[str], rows: Any, source: str | Path) -> str:
    if len(columns) != 1:
        found = f"several ({', '.join(columns)})" if columns else f"none (columns: {', '.join(rows.features)})"
        raise ValueError(f"{source}: one column of images is needed, found {found}; name it with image_column")
    return columns[0]


def _label_column(datasets: Any, rows: Any) -> str | None:
    labelled = [name for name, feature in rows.features.items() if isinstance(feature, datasets.ClassLabel)]
    if len(labelled) > 1:
        raise ValueError(f"several columns of labels ({', '.join(labelled)}); name one with label_column")
    return labelled[0] if labelled else next((name for name in _LABEL_NAMES if name in rows.features), None)


def _names(feature: Any, labels: list[Any], classnames: Sequence[str] | None, where: str) -> tuple[str, ...]:
    if classnames is not None:
        return tuple(classnames)
    stored = getattr(feature, "names", None)
    if stored:
        return tuple(stored)
    texts = sorted({label for label in labels if isinstance(label, str)})
    if not texts:
        raise ValueError(f"{where}: no class names stored; give them (a list, or a file with one per line)")
    return tuple(texts)


def _label(label: Any, names: tuple[str, ...], row: int) -> int | None:
    if label is None or label == -1:  # -1 is how `datasets` stores a hidden label
        return None
    if isinstance(label, str):
        if label not in names:
            raise ValueError(f"row {row}: {label!r} is not among the {len(names)} class names")
        return names.index(label)
    return int(label)
