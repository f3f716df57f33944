"""Plain folders as streams: one folder per class, or images side by side without labels."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from dota_clip.data.image_stream import ImageItem, ImageStream
from dota_clip.data.images import IMAGE_SUFFIXES

_SPLIT_NAMES = frozenset({"train", "val", "valid", "validation", "test"})


def read_image_folder(
    folder: str | Path, *, split: str = "test", classnames: Sequence[str] | None = None
) -> ImageStream:
    """Read a folder of class folders, or a flat folder of unlabelled images.

    Args:
        folder: holds one folder per class (images at any depth below), or images directly. Where it holds nothing but
            folders named after splits (train, val, test), the one named `split` is read.
        split: see above.
        classnames: the classes in label order; then each class folder must be named after one of them. A flat folder
            needs them; for class folders the default is the sorted folder names.

    Raises:
        ValueError: no image, images beside class folders, a class folder that `classnames` lacks, no class names for
            a flat folder, or another split than those there.
        FileNotFoundError: no such folder.
    """
    root = _split_folder(Path(folder), split)
    flat = images_in(root)
    class_folders = subfolders(root)
    per_class = {path.name: images_below(path) for path in class_folders}
    if flat and any(per_class.values()):
        raise ValueError(f"{root}: images beside class folders; move them into folders, or give an image list (CSV)")
    if flat:
        if classnames is None:
            raise ValueError(
                f"{root}: images without class folders need class names (a list, or a file with one per line)"
            )
        return ImageStream(tuple(classnames), [ImageItem(path, None, path.name) for path in flat])
    if not any(per_class.values()):
        raise ValueError(f"{root}: no image found; suffixes read: {' '.join(IMAGE_SUFFIXES)}")
    names = tuple(per_class) if classnames is None else tuple(classnames)
    unknown = sorted(set(per_class) - set(names))
    if unknown:
        raise ValueError(
            f"{root}: no class name for {len(unknown)} class folders: {', '.join(unknown[:5])}; each must be named "
            "after a class, or give an image list (CSV) of path,label"
        )
    label_of = {name: label for label, name in enumerate(names)}
    items = [
        ImageItem(path, label_of[name], path.relative_to(root).as_posix())
        for name, paths in per_class.items()
        for path in paths
    ]
    return ImageStream(names, items)


def subfolders(folder: Path) -> list[Path]:
    """The folders in `folder` by name, without hidden ones."""
    return sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))


def images_in(folder: Path) -> list[Path]:
    """The image files directly in `folder`, by name, without hidden ones."""
    return sorted(path for path in folder.iterdir() if _is_image(path))


def images_below(folder: Path) -> list[Path]:
    """The image files in `folder` at any depth, by path, without hidden ones."""
    return sorted(path for path in folder.rglob("*") if _is_image(path))


def _is_image(path: Path) -> bool:
    return path.suffix.lower() in IMAGE_SUFFIXES and not path.name.startswith(".") and path.is_file()


def _split_folder(folder: Path, split: str) -> Path:
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder}: no such folder")
    names = {path.name for path in subfolders(folder)}
    if not names or not names <= _SPLIT_NAMES or images_in(folder):
        return folder
    if split not in names:
        raise ValueError(f"{folder}: no split {split!r}; there are: {', '.join(sorted(names))}")
    return folder / split
