"""Model folders, config.json and model.safetensors: written in one step, read strictly, and never as a pickle."""

import ctypes
import glob
import json
import os
import platform
import secrets
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nips_common.runtime import require

if TYPE_CHECKING:
    from torch import Tensor


def atomic_file(path: str | Path) -> AbstractContextManager[Path]:
    """Give a temporary path with the same file name; it replaces ``path`` if the block ends without an error."""
    return atomic_folder(path, folder=False)


@contextmanager
def atomic_folder(path: str | Path, *, folder: bool = True) -> Iterator[Path]:
    """Give an empty temporary folder; it takes the place of ``path`` if the block ends without an error.

    Files that only the existing folder has are kept. A kill at any moment leaves the old folder whole: Linux swaps both
    names in one system call; elsewhere an instant between two renames remains, which :func:`recover` mends.
    A file (``folder=False``) is replaced in the same way; see :func:`atomic_file`.
    """
    target = Path(os.path.realpath(path))
    if (target.exists() and target.is_dir() != folder) or Path.cwd().is_relative_to(target) or os.path.ismount(target):
        wanted = "folder that is neither a mount point nor around the working directory" if folder else "file"
        raise ValueError(f"{path} cannot be replaced: expected a {wanted}")
    recover(target)
    scratch = target.parent / f".{target.name}.unfinished-{platform.node()}-{os.getpid()}-{secrets.token_hex(4)}"
    new = scratch / target.name
    try:
        (new if folder else scratch).mkdir(parents=True)
        yield new
        if target.exists():
            _keep_others(target, new)
        for entry in (new, *new.rglob("*")):  # a rename must never become durable before the contents
            if sys.platform != "win32" and not entry.is_symlink() and (entry.is_file() or entry.is_dir()):
                descriptor = os.open(entry, os.O_RDONLY)
                os.fsync(descriptor)
                os.close(descriptor)
        if not (folder and _exchange(new, target)):
            if folder and target.exists():
                os.rename(target, scratch / "previous")
            os.replace(new, target)
    finally:
        if not target.exists() and (scratch / "previous").exists():  # interrupted between the two renames
            os.rename(scratch / "previous", target)
        shutil.rmtree(scratch, ignore_errors=True)


def recover(path: str | Path) -> None:
    """Remove what killed writers of ``path`` left; bring back the old folder of one that died between two renames."""
    target = Path(os.path.realpath(path))
    mine = glob.escape(f".{target.name}.unfinished-{platform.node()}-")
    for scratch in target.parent.glob(f"{mine}*") if sys.platform != "win32" else ():
        try:
            os.kill(int(scratch.name.split("-")[-2]), 0)  # sends nothing, asks whether the writer lives
        except PermissionError:
            continue  # it does, under another user
        except ProcessLookupError:
            if (scratch / "previous").exists() and not target.exists():
                os.rename(scratch / "previous", target)
            shutil.rmtree(scratch, ignore_errors=True)


def _keep_others(old: Path, new: Path) -> None:
    """Give ``new`` the mode of ``old``, and link what only ``old`` has: a user's own files survive a save."""
    shutil.copymode(old, new)
    for entry in sorted(old.rglob("*")):  # sorted: a folder comes before what is in it
        kept = new / entry.relative_to(old)
        if entry.is_dir() and not entry.is_symlink():
            kept.mkdir(exist_ok=True)
        elif not os.path.lexists(kept):
            try:
                os.link(entry, kept, follow_symlinks=False)
            except OSError:  # file systems without hard links
                shutil.copy2(entry, kept, follow_symlinks=False)


def _exchange(first: Path, second: Path) -> bool:
    """Swap two names in one system call; False where that is not possible, as when ``second`` does not exist."""
    rename = getattr(ctypes.CDLL(None), "renameat2", None) if sys.platform == "linux" else None
    return rename is not None and rename(-100, bytes(first), -100, bytes(second), 2) == 0  # AT_FDCWD, RENAME_EXCHANGE


def save_folder(
    path: str | Path, kind: str, config: Mapping[str, Any], tensors: Mapping[str, "Tensor"], format_version: int = 1
) -> None:
    """Write ``config.json`` (``config`` with ``kind`` and ``format_version``) and ``model.safetensors`` atomically."""
    save_file = require("safetensors.torch", "nips-common[torch]").save_file
    if reserved := {"kind", "format_version"} & set(config):
        raise ValueError(f"{path}: config must not hold the reserved keys {sorted(reserved)}")
    # Copied, as safetensors refuses two tensors of one storage.
    stored = {name: tensor.detach().to("cpu", copy=True).contiguous() for name, tensor in tensors.items()}
    with atomic_folder(path) as folder:
        write_json(folder / "config.json", {"kind": kind, "format_version": format_version, **config})
        save_file(stored, folder / "model.safetensors", metadata={"format": "pt"})
        shutil.copymode(folder / "config.json", folder / "model.safetensors")  # safetensors makes it private


def load_folder(
    path: str | Path, kind: str, format_version: int = 1, migrations: Mapping[int, Callable[..., Any]] | None = None
) -> tuple[dict[str, Any], dict[str, "Tensor"]]:
    """Read what :func:`save_folder` wrote: the config without its two own keys, and the tensors on the CPU.

    ``migrations[v](config, tensors)`` returns those of version v + 1, up to ``format_version``. A missing or damaged
    file, another kind and a version that cannot be read raise a ValueError that names the file.
    """
    load_file = require("safetensors.torch", "nips-common[torch]").load_file
    recover(path)
    config_file, weights = Path(path) / "config.json", Path(path) / "model.safetensors"
    for file in (config_file, weights):
        if not file.is_file():
            pickles = [f.name for f in file.parent.glob("*") if f.suffix in (".bin", ".pt", ".pth", ".ckpt", ".pkl")]
            hint = f"; {', '.join(pickles)} could run code when read and is never loaded: convert it to safetensors"
            raise ValueError(f"{file}: no such file" + (hint if pickles else ""))
    config, steps = read_json(config_file), migrations or {}
    found, version = config.pop("kind", None), config.pop("format_version", None)
    if found != kind:
        raise ValueError(f"{config_file}: kind is {found!r}, expected {kind!r}")
    readable = [v for v in range(1, format_version + 1) if all(step in steps for step in range(v, format_version))]
    if version not in readable:
        raise ValueError(f"{config_file}: format_version is {version!r}, this release reads {readable}")
    try:
        tensors = load_file(weights)
    except require("safetensors", "nips-common[torch]").SafetensorError as error:
        raise ValueError(f"{weights}: truncated or damaged ({error})") from error
    for step in range(version, format_version):
        config, tensors = steps[step](config, tensors)
    return config, tensors


def check_tensors(found: Mapping[str, "Tensor"], expected: Mapping[str, tuple[int, ...]], where: str) -> None:
    """Raise one ValueError that names all unknown, missing and wrongly shaped tensors of ``where``."""
    shapes = {name: (tuple(found[name].shape), tuple(expected[name])) for name in found.keys() & expected.keys()}
    wrong = [f"{name} is {shape}, must be {wanted}" for name, (shape, wanted) in shapes.items() if shape != wanted]
    check_keys(found, expected, expected, where, wrong)


def check_keys(
    found: Iterable[str], allowed: Iterable[str], required: Iterable[str], where: str, wrong: Iterable[str] = ()
) -> None:
    """Raise one ValueError that names all unknown and missing keys of ``where``, and what is ``wrong`` with others."""
    keys, needed, accepted = set(found), set(required), {*allowed, *required}
    problems = {"unknown": keys - accepted, "missing": needed - keys, "wrong shape": wrong}
    if any(problems.values()):
        problems["accepted"] = accepted if problems["unknown"] and len(accepted) <= 40 else ()
        raise ValueError(f"{where}: " + "; ".join(f"{k}: {', '.join(sorted(v))}" for k, v in problems.items() if v))


def read_json(path: str | Path) -> dict[str, Any]:
    """Read a JSON object strictly; a ValueError names the file and the place."""
    try:
        data = json.loads(Path(path).read_text("utf-8"))
        json.dumps(data, allow_nan=False)  # Python reads NaN and Infinity, which JSON does not have
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: not valid JSON: {error}") from error
    if not isinstance(data, dict):
        raise ValueError(f"{path}: expected a JSON object, got {type(data).__name__}")
    return data


def write_json(path: str | Path, data: Mapping[str, Any]) -> None:
    """Write ``data`` as JSON, atomically; what JSON cannot say (NaN, infinity, objects) is a ValueError."""
    try:
        text = json.dumps(data, indent=2, allow_nan=False, ensure_ascii=False)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path}: cannot be written as JSON: {error}") from error
    with atomic_file(path) as temporary:
        temporary.write_text(text + "\n", "utf-8")
