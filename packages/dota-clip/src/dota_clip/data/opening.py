"""The one door to a stream of images: any supported folder, list or data set in, an `ImageStream` out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from dota_clip.catalog import Benchmark, benchmark_of_split_file, resolve_benchmark
from dota_clip.data.benchmark_files import read_benchmark, read_coop_split
from dota_clip.data.hf_images import read_hf_dataset
from dota_clip.data.image_folders import read_image_folder
from dota_clip.data.image_lists import read_image_list
from dota_clip.data.image_stream import ImageStream, read_classnames

HF_PREFIX = "hf:"
_LISTS = (".csv", ".jsonl", ".ndjson")


def open_dataset(
    source: str | Path,
    *,
    name: str | None = None,
    split: str = "test",
    classnames: Sequence[str] | str | Path | None = None,
    image_root: str | Path | None = None,
    image_column: str | None = None,
    label_column: str | None = None,
) -> ImageStream:
    """Open a stream of images.

    ================================  =====================================================================
    `source`                          read as
    ================================  =====================================================================
    a data root, with `name`          that benchmark (caltech101 ... ucf101, fgvc, imagenet, -a, -r, -s, -v)
    `*.json`                          a CoOp split file; its usual name tells which benchmark it is
    `*.csv`, `*.jsonl`                an image list: path and, where known, label
    a folder from `save_to_disk`      Hugging Face `datasets`
    `hf:org/name`                     Hugging Face `datasets`, from the hub
    any other folder                  class folders, or unlabelled images (then `classnames` is needed)
    ================================  =====================================================================

    Args:
        source: see the table.
        name: a benchmark's name, letter (I, A, V, R, S) or folder.
        split: which part, where the source has several.
        classnames: class names in label order, or a file with one per line. Benchmarks and split files bring their own.
        image_root: where relative paths of a list, a split file or a benchmark start.
        image_column: for `datasets` with several columns of images.
        label_column: for `datasets` with several columns of labels.

    Returns:
        The stream. Missing files, labels outside the classes and duplicate class names are found now, not midway.

    Raises:
        ValueError: unknown benchmark name (near matches are named), an option that the source does not take, an empty
            folder, malformed content, labels outside the classes, duplicate class names.
        FileNotFoundError: the source or some images are missing (named together).
        ImportError: `datasets` is needed and not installed.
    """
    names = read_classnames(classnames) if isinstance(classnames, (str, Path)) else classnames
    path = Path(source)
    columns = {"image_column": image_column, "label_column": label_column}
    if name is not None:
        benchmark = resolve_benchmark(name)
        _refuse(f"{benchmark.name} brings its own class names and columns", classnames=names, **columns)
        if path.is_file():
            return _read_split_file(path, benchmark, split, image_root)
        return read_benchmark(path, benchmark, split=split, image_root=image_root)
    if str(source).startswith(HF_PREFIX) or _is_saved_dataset(path):
        _refuse("the data set holds its images", image_root=image_root)
        return read_hf_dataset(str(source).removeprefix(HF_PREFIX), split=split, classnames=names, **columns)
    _refuse("only `datasets` have columns to choose from", **columns)
    if path.suffix.lower() in _LISTS:
        return read_image_list(path, classnames=names, image_root=image_root)
    if path.suffix.lower() == ".json":
        _refuse("a split file brings its own class names", classnames=names)
        return _read_split_file(path, benchmark_of_split_file(path.name), split, image_root)
    _refuse("a folder holds its images", image_root=image_root)
    if path.is_dir():
        return read_image_folder(path, split=split, classnames=names)
    if path.exists():
        raise ValueError(f"{source}: expected a folder, a split file (.json) or a list ({', '.join(_LISTS)})")
    raise FileNotFoundError(f"{source}: no such file or folder (a data set of the hub is written hf:org/name)")


def _refuse(why: str, **options: object) -> None:
    given = [name for name, value in options.items() if value is not None]
    if given:
        raise ValueError(f"{' and '.join(given)} must not be given: {why}")


def _read_split_file(file: Path, benchmark: Benchmark | None, split: str, image_root: str | Path | None) -> ImageStream:
    if benchmark is not None and image_root is None:
        image_root = file.parent / benchmark.image_folder
    return read_coop_split(file, split=split, image_root=image_root, dataset=benchmark.name if benchmark else None)


def _is_saved_dataset(path: Path) -> bool:
    return any((path / marker).is_file() for marker in ("dataset_dict.json", "dataset_info.json"))
