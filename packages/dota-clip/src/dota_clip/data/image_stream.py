"""A stream of images to classify: class names, and one item per image. Every reader returns this."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from dota_clip.data.images import load_image
from dota_clip.prompts import check_classnames, duplicates

if TYPE_CHECKING:
    from PIL import Image

_SHOWN = 3


@dataclass(frozen=True)
class ImageItem:
    """One image.

    Attributes:
        source: a path, or a function that decodes the image and raises `UnreadableImage` where it cannot.
        label: index into the class names, or None where it is not known.
        identifier: what to call the image in results and errors, for example its path below the data root.
    """

    source: Path | Callable[[], Image.Image]
    label: int | None
    identifier: str

    def load(self) -> Image.Image:
        """The decoded RGB image.

        Raises:
            UnreadableImage: it cannot be decoded.
        """
        return load_image(self.source) if isinstance(self.source, Path) else self.source()


@dataclass(frozen=True)
class ImageStream:
    """Images in a fixed order with the classes to choose from.

    Attributes:
        classnames: K names in label order, as the source spells them (`prepare_classnames` makes them readable).
        items: the images.
        dataset: the benchmark's name, where it is one; picks prompts and presets.
        class_ids: K unique identifiers (ImageNet's wnids), where two classes may share a name.

    Raises:
        ValueError: no image, no class, duplicate names (or identifiers, where given), or a label outside the classes
            (item and value are named).
    """

    classnames: tuple[str, ...]
    items: Sequence[ImageItem]
    dataset: str | None = None
    class_ids: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        check_classnames(self.classnames, allow_duplicates=self.class_ids is not None)
        if self.class_ids is not None:
            repeated = duplicates(self.class_ids)
            if repeated or len(self.class_ids) != len(self.classnames):
                raise ValueError(
                    f"class identifiers must be unique, one per name; given more than once: {repeated[:5]}"
                )
        if not len(self.items):
            raise ValueError("the stream holds no image")
        for item in self.items:
            if item.label is not None and not 0 <= item.label < len(self.classnames):
                raise ValueError(
                    f"{item.identifier}: label {item.label} is outside 0..{len(self.classnames) - 1} "
                    f"({len(self.classnames)} class names)"
                )

    def __len__(self) -> int:
        return len(self.items)

    @property
    def labels(self) -> list[int | None]:
        """The label of each item."""
        return [item.label for item in self.items]

    @property
    def has_labels(self) -> bool:
        """Whether any item has a label."""
        return any(item.label is not None for item in self.items)


def require_files(paths: Sequence[Path], where: str) -> None:
    """Refuse a list of images of which some do not exist.

    Raises:
        FileNotFoundError: names the first few and how many are missing of how many.
    """
    missing = [path for path in paths if not path.is_file()]
    if missing:
        shown = ", ".join(str(path) for path in missing[:_SHOWN])
        more = f" and {len(missing) - _SHOWN} more" if len(missing) > _SHOWN else ""
        raise FileNotFoundError(f"{where}: {len(missing)} of {len(paths)} image files are missing: {shown}{more}")


def read_classnames(path: str | Path) -> tuple[str, ...]:
    """Class names from a text file, one on each line in label order; empty lines at the end are ignored.

    Raises:
        ValueError: no name, an empty line in between, or a duplicate; the file is named.
        FileNotFoundError: no such file.
    """
    names = tuple(line.strip() for line in Path(path).read_text(encoding="utf-8").rstrip().splitlines())
    check_classnames(names, where=str(path))
    return names
