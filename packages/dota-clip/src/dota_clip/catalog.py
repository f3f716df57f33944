"""The benchmark data sets by name: short letters, folders, split files and the kind of prompt each one takes.

Folder layout and split files follow the CoOp convention, which most prompt and test-time methods for CLIP share. The
names are those of `PRESETS`, so that one word picks reader, prompts and hyperparameters together.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from dota_clip.imagenet_templates import OPENAI_IMAGENET_TEMPLATES, SIMPLE_IMAGENET_TEMPLATES
from dota_clip.load_errors import near_matches


@dataclass(frozen=True)
class Benchmark:
    """One benchmark data set.

    Attributes:
        name: its name in this package.
        layout: how its files are laid out: `coop` (a split file), `fgvc`, `wnid` (one folder per ImageNet class
            identifier) or `index` (one folder per ImageNet class number).
        folder: its folder below the data root.
        image_folder: where the images are, relative to `folder`.
        templates: prompt templates.
        split_file: CoOp split file in `folder`.
        aliases: other accepted names.
    """

    name: str
    layout: Literal["coop", "fgvc", "wnid", "index"]
    folder: str
    image_folder: str
    templates: tuple[str, ...]
    split_file: str | None = None
    aliases: tuple[str, ...] = ()


_SIMPLE = SIMPLE_IMAGENET_TEMPLATES
_OPENAI = OPENAI_IMAGENET_TEMPLATES

BENCHMARKS: dict[str, Benchmark] = {
    benchmark.name: benchmark
    for benchmark in (
        Benchmark("caltech101", "coop", "caltech-101", "101_ObjectCategories", _SIMPLE, "split_zhou_Caltech101.json"),
        Benchmark("dtd", "coop", "dtd", "images", ("{} texture.",), "split_zhou_DescribableTextures.json"),
        Benchmark(
            "eurosat", "coop", "eurosat", "2750", ("a centered satellite photo of {}.",), "split_zhou_EuroSAT.json"
        ),
        Benchmark("fgvc", "fgvc", "fgvc_aircraft", "images", ("a photo of a {}, a type of aircraft.",)),
        Benchmark(
            "food101", "coop", "food-101", "images", ("a photo of {}, a type of food.",), "split_zhou_Food101.json"
        ),
        Benchmark(
            "oxford_flowers",
            "coop",
            "oxford_flowers",
            "jpg",
            ("a photo of a {}, a type of flower.",),
            "split_zhou_OxfordFlowers.json",
        ),
        Benchmark(
            "oxford_pets",
            "coop",
            "oxford_pets",
            "images",
            ("a photo of a {}, a type of pet.",),
            "split_zhou_OxfordPets.json",
        ),
        Benchmark("stanford_cars", "coop", "stanford_cars", ".", _SIMPLE, "split_zhou_StanfordCars.json"),
        Benchmark("sun397", "coop", "sun397", "SUN397", _SIMPLE, "split_zhou_SUN397.json"),
        Benchmark(
            "ucf101",
            "coop",
            "ucf101",
            "UCF-101-midframes",
            ("a photo of a person doing {}.",),
            "split_zhou_UCF101.json",
        ),
        Benchmark("imagenet", "wnid", "imagenet", "images/val", _SIMPLE, aliases=("I",)),
        Benchmark("imagenet-a", "wnid", "imagenet-adversarial", "imagenet-a", _SIMPLE, aliases=("A",)),
        Benchmark(
            "imagenet-v",
            "index",
            "imagenetv2",
            "imagenetv2-matched-frequency-format-val",
            _SIMPLE,
            aliases=("V", "imagenetv2", "imagenet-v2"),
        ),
        Benchmark("imagenet-r", "wnid", "imagenet-rendition", "imagenet-r", _OPENAI, aliases=("R",)),
        Benchmark("imagenet-s", "wnid", "imagenet-sketch", "images", _OPENAI, aliases=("S",)),
    )
}

_NAMES: dict[str, str] = {
    **{name: name for name in BENCHMARKS},
    **{alias: benchmark.name for benchmark in BENCHMARKS.values() for alias in benchmark.aliases},
    **{benchmark.folder: benchmark.name for benchmark in BENCHMARKS.values()},
}


def resolve_benchmark(name: str) -> Benchmark:
    """The benchmark that `name` means: its name, its letter (I, A, V, R, S) or its folder.

    Raises:
        ValueError: no such data set; near matches are named.
    """
    found = _NAMES.get(name) or _NAMES.get(name.lower())
    if found is None:
        raise ValueError(f"unknown data set {name!r}: {near_matches(name, _NAMES)}known: {', '.join(BENCHMARKS)}")
    return BENCHMARKS[found]


def benchmark_of_split_file(file_name: str) -> Benchmark | None:
    """The benchmark whose CoOp split file is called `file_name`, if any."""
    return next((benchmark for benchmark in BENCHMARKS.values() if benchmark.split_file == file_name), None)


def is_imagenet(name: str) -> bool:
    """Whether `name` is ImageNet or one of its variants, whose class list is told apart by identifiers, not names."""
    return resolve_benchmark(name).layout in ("wnid", "index")
