"""The published benchmarks as streams: CoOp split files, FGVC-Aircraft, and ImageNet with its four variants."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dota_clip.catalog import Benchmark, benchmark_of_split_file
from dota_clip.data.image_folders import images_below, subfolders
from dota_clip.data.image_stream import ImageItem, ImageStream, read_classnames, require_files

CLASSNAMES_FILE = "classnames.txt"


def read_benchmark(
    source: str | Path, benchmark: Benchmark, *, split: str = "test", image_root: str | Path | None = None
) -> ImageStream:
    """Read one benchmark data set from its published files.

    Args:
        source: the data root that holds `benchmark.folder`, or that folder itself.
        benchmark: from `resolve_benchmark`.
        split: the part to read. ImageNet has "train" and "val" ("test" means "val", which is what everyone reports);
            its variants have one part only.
        image_root: where the images are, if not in the usual place.

    Raises:
        ValueError: malformed files (file and entry are named) or no such split.
        FileNotFoundError: a file, folder or image is missing.
    """
    root = Path(source)
    if not root.is_dir():
        raise FileNotFoundError(f"{root}: no such folder")
    folder = root / benchmark.folder if (root / benchmark.folder).is_dir() else root
    images = Path(image_root) if image_root is not None else folder / benchmark.image_folder
    if benchmark.layout in ("wnid", "index") and benchmark.name != "imagenet" and split not in ("test", "val"):
        raise ValueError(f"{benchmark.name} has one part only, called 'test', got split {split!r}")
    if benchmark.layout == "coop":
        file = _split_file(folder, benchmark)
        return read_coop_split(file, split=split, image_root=images, dataset=benchmark.name)
    if benchmark.layout == "fgvc":
        return _read_fgvc(folder, images, split, benchmark.name)
    if benchmark.name == "imagenet" and image_root is None:
        images = folder / "images" / ("val" if split == "test" else split)
    return _read_imagenet(folder, images, benchmark)


def read_coop_split(
    file: str | Path, *, split: str = "test", image_root: str | Path | None = None, dataset: str | None = None
) -> ImageStream:
    """Read one part of a CoOp split file: JSON with lists of `[path, label, classname]` under train, val and test.

    The class names come from all parts together, so that they are the same whichever part is read.

    Args:
        file: the JSON file, usually called split_zhou_<Name>.json.
        split: the part to read.
        image_root: what the paths start from; default: the folder of `file`.
        dataset: the benchmark's name, kept in the result.

    Raises:
        ValueError: not such a file, no such part, an entry of another form (named), labels with a gap, or one label
            with two names.
        FileNotFoundError: the file or an image is missing.
    """
    file = Path(file)
    try:
        parts: Any = json.loads(file.read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise ValueError(f"{file}: not JSON ({error})") from error
    if not is_coop_split(parts):
        raise ValueError(f"{file}: expected lists of [path, label, classname] under train, val or test")
    if split not in parts:
        raise ValueError(f"{file}: no split {split!r}; there are: {', '.join(parts)}")
    names: dict[int, str] = {}
    for part, entries in parts.items():
        for position, entry in enumerate(entries):
            _, label, name = _coop_entry(entry, f"{file}, {part}[{position}]")
            if names.setdefault(label, name) != name:
                raise ValueError(
                    f"{file}, {part}[{position}]: label {label} is {name!r} here and {names[label]!r} before"
                )
    if sorted(names) != list(range(len(names))):
        raise ValueError(f"{file}: labels must be 0..K-1 without a gap, got {len(names)} labels up to {max(names)}")
    root = _root_of([entry[0] for entry in parts[split]], image_root, file.parent)
    items = [ImageItem(root / path, label, path) for path, label, _ in parts[split]]
    require_files([root / path for path, _, _ in parts[split]], str(file))
    return ImageStream(tuple(names[label] for label in range(len(names))), items, dataset)


def is_coop_split(content: Any) -> bool:
    """Whether parsed JSON has the form of a CoOp split file, as far as its keys tell."""
    return isinstance(content, dict) and bool(content) and all(isinstance(part, list) for part in content.values())


def _coop_entry(entry: Any, where: str) -> tuple[str, int, str]:
    if not isinstance(entry, list) or len(entry) != 3:
        raise ValueError(f"{where}: expected [path, label, classname], got {str(entry)[:80]}")
    path, label, name = entry
    if not isinstance(path, str) or not isinstance(label, int) or isinstance(label, bool) or not isinstance(name, str):
        raise ValueError(f"{where}: expected [path, label, classname], got {str(entry)[:80]}")
    return path, label, name


def _root_of(paths: Sequence[str], image_root: str | Path | None, folder: Path) -> Path:
    """The folder that the paths start from: the usual image folder, unless the first image lies beside the list."""
    usual = folder if image_root is None else Path(image_root)
    if paths and not (usual / paths[0]).is_file() and (folder / paths[0]).is_file():
        return folder
    return usual


def _split_file(folder: Path, benchmark: Benchmark) -> Path:
    usual = folder / str(benchmark.split_file)
    others = sorted(folder.glob("split_zhou_*.json"))
    # a file of another name will do, but not one that belongs to another benchmark
    found = [usual] if usual.is_file() else [path for path in others if benchmark_of_split_file(path.name) is None]
    if len(found) != 1:
        there = ", ".join(path.name for path in others) or "none"
        raise FileNotFoundError(f"{folder}: no {benchmark.split_file} ({benchmark.name}); split files there: {there}")
    return found[0]


def _read_fgvc(folder: Path, images: Path, split: str, dataset: str) -> ImageStream:
    """FGVC-Aircraft: variants.txt lists the classes, images_variant_<split>.txt has "<image id> <variant>" per line."""
    names = read_classnames(folder / "variants.txt")
    label_of = {name: label for label, name in enumerate(names)}
    listing = folder / f"images_variant_{split}.txt"
    if not listing.is_file():
        there = ", ".join(sorted(path.name for path in folder.glob("images_variant_*.txt"))) or "none"
        raise FileNotFoundError(f"{listing}: no such file; lists there: {there}")
    items = []
    for number, line in enumerate(listing.read_text(encoding="utf-8").splitlines(), start=1):
        if not line.strip():
            continue
        image_id, _, variant = line.strip().partition(" ")
        if variant.strip() not in label_of:
            raise ValueError(f"{listing}, line {number}: {variant.strip()!r} is not in variants.txt")
        items.append(ImageItem(images / f"{image_id}.jpg", label_of[variant.strip()], f"{image_id}.jpg"))
    require_files([images / item.identifier for item in items], str(listing))
    return ImageStream(names, items, dataset)


def _read_imagenet(folder: Path, images: Path, benchmark: Benchmark) -> ImageStream:
    """ImageNet and its variants: one folder per class, named by wnid or (V2) by class number.

    Only the classes that are present are classes of the stream: A and R cover 200 of the 1000.
    """
    known = _read_wnids(folder)
    root = next(place for place in (images, folder / images.name, folder) if place.is_dir())
    images_of = {path.name: images_below(path) for path in subfolders(root)}
    present = [name for name, paths in images_of.items() if paths]
    if not present:
        raise ValueError(f"{root}: no class folder with images for {benchmark.name} (usual place: {images})")
    by_number = benchmark.layout == "index"
    wnids = sorted(known)
    place_of = {str(number) if by_number else wnid: number for number, wnid in enumerate(wnids)}
    unknown = [name for name in present if name not in place_of]
    if unknown:
        wanted = f"0..{len(wnids) - 1}" if by_number else f"wnids of {CLASSNAMES_FILE}"
        raise ValueError(f"{root}: class folders must be named {wanted}, got {', '.join(unknown[:5])}")
    present.sort(key=place_of.__getitem__)
    items = [
        ImageItem(path, label, path.relative_to(root).as_posix())
        for label, name in enumerate(present)
        for path in images_of[name]
    ]
    ids = tuple(wnids[place_of[name]] for name in present)
    return ImageStream(tuple(known[wnid] for wnid in ids), items, benchmark.name, ids)


def _read_wnids(folder: Path) -> dict[str, str]:
    """Class names by wnid, from classnames.txt in the folder, or in the ImageNet folder beside it."""
    places = [folder / CLASSNAMES_FILE, folder.parent / "imagenet" / CLASSNAMES_FILE]
    file = next((place for place in places if place.is_file()), None)
    if file is None:
        raise FileNotFoundError(f"{places[0]}: no such file (lines of wnid, space, name); also looked for {places[1]}")
    names: dict[str, str] = {}
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), start=1):
        if not line.strip():
            continue
        wnid, _, name = line.strip().partition(" ")
        if not name.strip() or wnid in names:
            raise ValueError(f"{file}, line {number}: expected a new wnid, a space and a name, got {line.strip()!r}")
        names[wnid] = name.strip()
    return names
