"""Prompts for zero-shot class weights: templates per data set, and class names as the text encoder should read them.

Templates and names follow the published evaluation (sources: the paper's released configuration; CoOp for the ten
EuroSAT names). A template is a string with exactly one `{}`, where the class name goes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from dota_clip.catalog import is_imagenet, resolve_benchmark

Template = str | Callable[[str], str]
DEFAULT_TEMPLATES: tuple[str, ...] = ("a photo of a {}.",)

EUROSAT_CLASSNAMES: dict[str, str] = {
    "AnnualCrop": "Annual Crop Land",
    "Forest": "Forest",
    "HerbaceousVegetation": "Herbaceous Vegetation Land",
    "Highway": "Highway or Road",
    "Industrial": "Industrial Buildings",
    "Pasture": "Pasture Land",
    "PermanentCrop": "Permanent Crop Land",
    "Residential": "Residential Buildings",
    "River": "River",
    "SeaLake": "Sea or Lake",
}


def templates_for(dataset: str | None) -> tuple[str, ...]:
    """The prompt templates of a benchmark data set; the general default for None.

    Args:
        dataset: a name, letter or folder that `resolve_benchmark` knows, or None for any other images.

    Raises:
        ValueError: unknown data set; near matches are named.
    """
    return DEFAULT_TEMPLATES if dataset is None else resolve_benchmark(dataset).templates


def read_templates(path: str | Path) -> tuple[str, ...]:
    """Read templates from a text file, one on each line; empty lines are skipped.

    Raises:
        ValueError: a line without exactly one `{}` (the line number is named), or no template at all.
        FileNotFoundError: no such file.
    """
    templates = []
    for number, line in enumerate(Path(path).read_text(encoding="utf-8").splitlines(), start=1):
        if line.strip():
            templates.append(_checked_template(line.strip(), f"{path}, line {number}"))
    if not templates:
        raise ValueError(f"{path}: no template; write one per line, each with one {{}} for the class name")
    return tuple(templates)


def check_templates(templates: Sequence[Template]) -> tuple[Template, ...]:
    """`templates` as a tuple: strings with exactly one `{}`, or functions of the class name as open_clip has them.

    Raises:
        ValueError: no template, a bare string in place of a list, or a template without exactly one `{}`.
    """
    if isinstance(templates, str):
        raise ValueError(f"templates must be a list of strings, got the string {templates!r}")
    if not templates:
        raise ValueError("no prompt template: at least one is needed")
    return tuple(
        template if callable(template) else _checked_template(template, f"template {i}")
        for i, template in enumerate(templates)
    )


def fill(template: Template, name: str) -> str:
    """The prompt for a class. Not `str.format`: a class name or a prompt may contain braces of its own."""
    return template(name) if callable(template) else template.replace("{}", name)


def prepare_classnames(names: Sequence[str], dataset: str | None = None) -> tuple[str, ...]:
    """Class names as the prompts use them: renamed where the data set asks for it, underscores as spaces.

    Args:
        names: class names in label order.
        dataset: a benchmark name. EuroSAT's ten folder names become readable ones. Two ImageNet classes may share a
            name (the usual list has "missile" and "sunglasses" twice), so there duplicates pass.

    Returns:
        As many names, in the same order.

    Raises:
        ValueError: no name, an empty name (position named), a duplicate (named), or an unknown data set.
    """
    check_classnames(names, allow_duplicates=True)
    renamed = EUROSAT_CLASSNAMES if dataset is not None and resolve_benchmark(dataset).name == "eurosat" else {}
    prepared = tuple(renamed.get(name.strip(), name).replace("_", " ").strip() for name in names)
    check_classnames(prepared, allow_duplicates=dataset is not None and is_imagenet(dataset))
    return prepared


def check_classnames(names: Sequence[str], *, allow_duplicates: bool = False, where: str = "class names") -> None:
    """Refuse a class list that cannot be a classifier.

    Raises:
        ValueError: no name, an empty name (position named), or the same name twice (named).
    """
    if isinstance(names, str) or not names:
        raise ValueError(f"{where}: a list with at least one name is needed, got {names!r}")
    empty = [position for position, name in enumerate(names) if not name.strip()]
    if empty:
        raise ValueError(f"{where}: the name at position {empty[0]} is empty")
    if not allow_duplicates:
        repeated = duplicates(names)
        if repeated:
            shown = ", ".join(repr(name) for name in repeated[:5])
            more = f" and {len(repeated) - 5} more" if len(repeated) > 5 else ""
            raise ValueError(f"{where}: {shown}{more} given more than once; each class needs its own name")


def duplicates(names: Iterable[str]) -> list[str]:
    """The names that occur more than once, in order of first appearance."""
    return [name for name, count in Counter(names).items() if count > 1]


def _checked_template(template: str, where: str) -> str:
    found = template.count("{}")
    if found != 1:
        raise ValueError(f"{where}: exactly one {{}} is needed for the class name, got {found} in {template!r}")
    return template
