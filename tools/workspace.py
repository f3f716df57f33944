"""What the tools know about the workspace: its packages, their metadata, and how to end with one line."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NoReturn

ROOT = Path(__file__).resolve().parents[1]
COMMON = "nips-common"
# Packages without a method, which the others may require: no command, experiment or golden values of their own.
# nips-finetune is one because the training script of the peft methods needs a trainer and readers of data, which
# nips-common may not hold.
SUPPORT = {COMMON, "nips-finetune"}

Toml = dict[str, Any]


@dataclass(frozen=True)
class Package:
    """One member of the workspace, `folder` = packages/<name>."""

    folder: Path

    @cached_property
    def pyproject(self) -> Toml:
        """The parsed pyproject.toml."""
        return read_toml(self.folder / "pyproject.toml")

    @property
    def name(self) -> str:
        """The folder's name, which is the name of the distribution (check_packages holds the two equal)."""
        return self.folder.name

    @property
    def import_name(self) -> str:
        """`dota-clip` is imported as `dota_clip`."""
        return self.name.replace("-", "_")

    @property
    def source(self) -> Path:
        """The folder of the import package."""
        return self.folder / "src" / self.import_name

    @property
    def version(self) -> str:
        """The version in pyproject.toml."""
        return str(self.pyproject["project"]["version"])

    @property
    def assets(self) -> list[str]:
        """The assets that the package's reproduction needs, `[tool.nips] assets`."""
        return list(self.pyproject.get("tool", {}).get("nips", {}).get("assets", []))

    def workspace_requirements(self, names: set[str]) -> set[str]:
        """Which of the workspace's `names` this package requires, extras and the test group included."""
        required = {requirement_name(text) for _, text in requirements(self.pyproject)}
        return (required & names) - {self.name}


def packages(root: Path = ROOT) -> list[Package]:
    """All members, sorted by name.

    Raises:
        ValueError: a folder below packages/ has no pyproject.toml.
    """
    folders = sorted(path for path in (root / "packages").iterdir() if path.is_dir() and not path.name.startswith("."))
    unknown = [path.name for path in folders if not (path / "pyproject.toml").is_file()]
    if unknown:
        raise ValueError(f"packages/{unknown[0]} has no pyproject.toml: every folder of packages/ must be a package")
    return [Package(path) for path in folders]


def find_package(name: str, root: Path = ROOT) -> Package:
    """The member called `name`; ValueError names the known ones."""
    known = {package.name: package for package in packages(root)}
    if name not in known:
        raise ValueError(f"no package named {name!r}, known are {', '.join(known)}")
    return known[name]


def requirements(pyproject: Toml) -> Iterator[tuple[str, str]]:
    """Every direct requirement as (where, text): dependencies, extras, dependency groups, build requirements."""
    project = pyproject.get("project", {})
    tables = {
        "dependencies": project.get("dependencies", []),
        **{f"extra {name}": items for name, items in project.get("optional-dependencies", {}).items()},
        **{f"group {name}": items for name, items in pyproject.get("dependency-groups", {}).items()},
        "build-system": pyproject.get("build-system", {}).get("requires", []),
    }
    for where, items in tables.items():
        for item in items:
            if isinstance(item, str):  # the other form is {include-group = "..."}, whose group is visited itself
                yield where, item


def requirement_name(text: str) -> str:
    """The normalised distribution name at the head of a requirement: `Open_CLIP.torch>=2` -> `open-clip-torch`."""
    match = re.match(r"[A-Za-z0-9._-]+", text.strip())
    if match is None:
        raise ValueError(f"not a requirement: {text!r}")
    return re.sub(r"[-_.]+", "-", match.group()).lower()


def lower_bound(text: str) -> str | None:
    """The lower bound of a requirement: `torch>=2.9` -> `2.9`; None without one."""
    match = re.search(r"(?:>=|==|~=)\s*([0-9][0-9A-Za-z.!+]*)", text.split(";")[0])
    return match[1] if match else None


def closure(name: str, members: dict[str, Package]) -> list[str]:
    """`name` and every member that it requires, directly or through other members."""
    found, open_names = {name}, [name]
    while open_names:
        new = members[open_names.pop()].workspace_requirements(set(members)) - found
        found |= new
        open_names += new
    return sorted(found)


def read_toml(path: Path) -> Toml:
    """Reads a TOML file; ValueError names the file if it is not TOML."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{path}: {error}") from None


def uv() -> str:
    """The uv that runs this project: the one that started us, on PATH, or in .uv as the README installs it."""
    found = os.environ.get("UV") or shutil.which("uv") or shutil.which(str(ROOT / ".uv" / "bin" / "uv"))
    if not found:
        raise FileNotFoundError('uv was not found; python3 -m venv .uv && .uv/bin/pip install "uv>=0.9" installs it')
    return found


def call(command: Sequence[str], cwd: Path = ROOT) -> str:
    """Runs a command and returns what it printed.

    Raises:
        ValueError: it failed; names the command and its last line.
    """
    done = subprocess.run(list(command), cwd=cwd, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip().splitlines() or [f"exit code {done.returncode}"]
        raise ValueError(f"{' '.join(command)}: {said[-1]}")
    return done.stdout


def end(program: str, main: Callable[[], int]) -> NoReturn:
    """Runs `main`; a user's mistake becomes one line on stderr and exit code 2."""
    try:
        sys.exit(main())
    except (ValueError, OSError) as error:
        sys.exit(_one_line(program, error))


def _one_line(program: str, error: Exception) -> int:
    print(f"{program}: error: {' '.join(str(error).split())}", file=sys.stderr)
    return 2
