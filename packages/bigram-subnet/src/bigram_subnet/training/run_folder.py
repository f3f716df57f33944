"""The output folder of a training run: free, or that of the very run that is resumed."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from bigram_subnet.training.arguments import TrainArguments
from nips_common.artifacts import read_json, write_json

SETTINGS_FILE = "settings.json"
# What may be different when a run is resumed: it changes no mask and no number of one.
_FREE = ("output", "l0_lambda", "tolerance", "device", "save_steps", "logging_steps", "resume", "dry_run")


def check_output(arguments: TrainArguments) -> None:
    """Refuses a folder that is in use by anything but the run that is to be resumed.

    Raises:
        ValueError: such a folder; all settings that changed are named, with both values.
    """
    folder = Path(arguments.output)
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"--output {folder} is a file; a folder is needed")
    if not folder.is_dir() or not any(folder.iterdir()):
        return
    if not arguments.resume:
        raise ValueError(f"--output {folder} is not empty: choose another folder, or --resume an interrupted run in it")
    if not (folder / SETTINGS_FILE).is_file():
        raise ValueError(f"--output {folder} is not empty, but holds no run to --resume: {SETTINGS_FILE} is missing")
    before, now = read_json(folder / SETTINGS_FILE), _settings(arguments)
    changed = [
        f"{name} was {before.get(name)!r}, is {value!r}" for name, value in now.items() if before.get(name) != value
    ]
    if changed:
        raise ValueError(
            f"--output {folder}: a run is resumed with the settings it was started with: {'; '.join(changed)}"
        )


def check_contents(arguments: TrainArguments, contents: dict[str, str]) -> None:
    """Refuses to resume a run whose files hold something else by now.

    Raises:
        ValueError: such files; says which data they are.
    """
    file = Path(arguments.output) / SETTINGS_FILE
    before = read_json(file).get("contents") if file.is_file() else None
    if isinstance(before, dict) and (changed := [name for name in contents if before.get(name) != contents[name]]):
        raise ValueError(
            f"--output {arguments.output}: a run is resumed with its own data; changed: {', '.join(changed)}"
        )


def write_settings(arguments: TrainArguments, contents: dict[str, str]) -> None:
    """Writes down what a run is made with, before it starts."""
    write_json(Path(arguments.output) / SETTINGS_FILE, {**_settings(arguments), "contents": contents})


def _settings(arguments: TrainArguments) -> dict[str, Any]:
    return {name: value for name, value in dataclasses.asdict(arguments).items() if name not in _FREE}
