"""Arguments from flags, or from a YAML or JSON file with the same names."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import fields
from difflib import get_close_matches
from pathlib import Path
from typing import NoReturn

import yaml
from transformers import HfArgumentParser

from nips_finetune.arguments import AdapterArguments, FinetuneArguments, JobArguments
from nips_finetune.method import AdapterMethod

ENDINGS = (".yaml", ".yml", ".json")


class _Yaml(yaml.SafeLoader):
    """YAML in which, as in its version 1.2, no and off are words: ``save_strategy: no`` means "no"."""


_Yaml.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in entries if not tag.endswith(":bool")]
    for first, entries in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Yaml.add_implicit_resolver(
    "tag:yaml.org,2002:bool", re.compile(r"^(?:true|True|TRUE|false|False|FALSE)$"), list("tTfF")
)


class _Parser(HfArgumentParser):
    """argparse that raises instead of printing its usage and exiting."""

    def error(self, message: str) -> NoReturn:
        raise ValueError(f"{message} (see --help)")


def parse(method: AdapterMethod, argv: Sequence[str]) -> tuple[JobArguments, AdapterArguments, FinetuneArguments]:
    """Arguments from flags, or from a file that comes first and flags that override it.

    Args:
        method: The method, whose own flags are added.
        argv: ``--name value`` in any order; first may come a .yaml, .yml or .json file.

    Raises:
        ValueError: An unknown or missing name, a value of another kind or out of range, a file that cannot be read.
    """
    classes = (JobArguments, method.adapter_arguments, method.training_arguments)
    parser = _Parser(
        classes,
        prog=method.command,
        usage=f"{method.command} [CONFIG.yaml] --model MODEL --train_data DATA --output_dir FOLDER [--NAME VALUE ...]",
        description=f"Train an adapter by {method.title}. Every name may stand in a YAML or JSON file too, given first",
        allow_abbrev=False,
    )
    known = [entry.name for kind in classes for entry in fields(kind) if entry.init]
    given = list(argv)
    if given and given[0].lower().endswith(ENDINGS):
        given = [*_flags_of_file(Path(given[0]), known), *given[1:]]
    *found, rest = parser.parse_args_into_dataclasses(given, return_remaining_strings=True, look_for_args_file=False)
    if rest:
        name = rest[0].partition("=")[0].lstrip("-").replace("-", "_")
        raise ValueError(f"unknown arguments: {' '.join(rest)}{_suggestion(name, known, '--')}")
    job, adapter, training = found
    if training.head_learning_rate is not None and not (job.find_task().classifies or adapter.modules_to_save):
        raise ValueError(f"--head_learning_rate has no head to apply to: the task {job.task} trains none")
    if job.dtype != "float32" and not (training.bf16 or training.fp16):
        raise ValueError(
            f"--dtype {job.dtype} holds the base weights in half precision; add --bf16 or --fp16, so that what is "
            "trained stays in float32"
        )
    return job, adapter, training


def _flags_of_file(path: Path, known: Sequence[str]) -> Iterator[str]:
    """The entries of a file as flags, so that both are checked alike."""
    try:
        text = path.read_text("utf-8")
        as_json = path.suffix.lower() == ".json"
        entries = json.loads(text) if as_json else yaml.load(text, _Yaml)  # noqa: S506 - made from the safe loader
    except FileNotFoundError:
        raise FileNotFoundError(f"{path}: no such file") from None
    except (ValueError, yaml.YAMLError) as error:
        raise ValueError(f"{path}: cannot be read: {' '.join(str(error).split())}") from error
    if not isinstance(entries, dict):
        raise ValueError(f"{path}: expected names with values, got {type(entries).__name__}")
    for key, value in entries.items():
        name = str(key).replace("-", "_")
        if name not in known:
            raise ValueError(f"{path}: unknown name {key!r}{_suggestion(name, known)}")
        if isinstance(value, list):
            yield from (f"--{name}", *map(str, value))
        elif value is not None:
            yield f"--{name}={json.dumps(value) if isinstance(value, dict) else value}"


def _suggestion(name: str, known: Sequence[str], prefix: str = "") -> str:
    near = get_close_matches(name, known, n=1)
    return f"; did you mean {prefix}{near[0]}?" if near else " (see --help)"
