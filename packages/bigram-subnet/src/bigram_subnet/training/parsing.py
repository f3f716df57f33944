"""Arguments of a training run from flags, from a YAML file with the same names, or from both."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields
from difflib import get_close_matches
from pathlib import Path
from typing import NoReturn

import yaml
from transformers import HfArgumentParser

from bigram_subnet.training.arguments import TrainArguments

COMMAND = "bigram-subnet train"
_NAMES = [each.name for each in fields(TrainArguments)]
_NOTHING = ("", "null", "Null", "NULL", "~")


class _Parser(HfArgumentParser):
    """argparse that raises instead of printing its usage and exiting."""

    def error(self, message: str) -> NoReturn:
        raise ValueError(f"{message} (see {COMMAND} --help)")


def parse(argv: Sequence[str]) -> TrainArguments:
    """Arguments from flags, behind those of a YAML file (``--config FILE.yaml``, or the file first).

    Args:
        argv: ``--name value``, which override the file wherever they stand.

    Raises:
        ValueError: an unknown or missing name, a value of another kind or out of range, a file that cannot be read.
        FileNotFoundError: there is no such file.
        SystemExit: with 0, after --help.
    """
    parser = _Parser(
        [TrainArguments],
        prog=COMMAND,
        usage=f"{COMMAND} [--config FILE.yaml] --model MODEL --output FOLDER --text FILE ... [--NAME VALUE ...]",
        description="Train masks over the frozen weights of a language model, one a lambda.",
        allow_abbrev=False,
    )
    parser.add_argument("--config", help="YAML file that holds the same names; flags beside it override it")
    config, flags = _without_config(argv)
    given = [*([] if config is None else _flags_of_file(config)), *flags]
    found = parser.parse_args_into_dataclasses(given, return_remaining_strings=True, look_for_args_file=False)
    arguments: TrainArguments = found[0]
    if rest := found[-1]:
        name = rest[0].partition("=")[0].lstrip("-").replace("-", "_")
        raise ValueError(f"unknown arguments: {' '.join(rest)}{_suggestion(name, '--')}")
    return arguments


def _without_config(argv: Sequence[str]) -> tuple[Path | None, list[str]]:
    """The file of settings and the other flags."""
    flags = list(argv)
    for at, flag in enumerate(flags):
        if flag.startswith("--config="):
            return Path(flag.removeprefix("--config=")), flags[:at] + flags[at + 1 :]
        if flag == "--config":
            if at + 1 == len(flags):
                raise ValueError("--config needs a file: --config FILE.yaml")
            return Path(flags[at + 1]), flags[:at] + flags[at + 2 :]
    if flags and flags[0].lower().endswith((".yaml", ".yml")):
        return Path(flags[0]), flags[1:]
    return None, flags


def _flags_of_file(path: Path) -> Iterator[str]:
    """The entries of a file as flags, so that both are read alike: even 5e-3, which is text in YAML 1.1."""
    try:
        # The base loader leaves every value as the text that stands in the file, and makes nothing but text.
        entries = yaml.load(path.read_text("utf-8"), yaml.BaseLoader)  # noqa: S506
    except FileNotFoundError:
        raise FileNotFoundError(f"{path}: no such file of settings") from None
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise ValueError(f"{path}: cannot be read as YAML: {' '.join(str(error).split())}") from error
    if not isinstance(entries, dict):
        raise ValueError(f"{path}: expected lines of `name: value`")
    for key, value in entries.items():
        name = str(key).replace("-", "_")
        if name not in _NAMES:
            raise ValueError(f"{path}: unknown name {key!r}{_suggestion(name)}")
        values = value if isinstance(value, list) else [value]
        if wrong := [each for each in values if not isinstance(each, str)]:
            raise ValueError(f"{path}: {key} must be a value or a list of values, got {wrong[0]!r}")
        if isinstance(value, list):
            yield from (f"--{name}", *value)
        elif value not in _NOTHING:
            yield f"--{name}={value}"


def _suggestion(name: str, prefix: str = "") -> str:
    near = get_close_matches(name, _NAMES, n=1)
    return f"; did you mean {prefix}{near[0]}?" if near else f" (see {COMMAND} --help)"
