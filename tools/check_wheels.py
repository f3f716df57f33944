"""Looks into built wheels and source archives: do they carry what a stranger needs and require what they should?

Every package has one wheel and one source archive of its version with the licence and `py.typed`, and requires other
members of the workspace by a plain version range, never by a path or an address. Part of `nox -s build`.
"""

from __future__ import annotations

import argparse
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from email.parser import Parser
from pathlib import Path

from packaging.requirements import Requirement

from workspace import ROOT, Package, end, packages


def check_wheel(wheel: Path, package: Package, members: set[str]) -> Iterator[str]:
    """Findings about one wheel."""
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        information = f"{package.import_name}-{package.version}.dist-info"
        metadata = Parser().parsestr(archive.read(f"{information}/METADATA").decode())
    for name in (f"{package.import_name}/py.typed", f"{information}/licenses/LICENSE"):
        if name not in names:
            yield f"{wheel.name}: {name} is missing"
    outside = sorted(name for name in names if not name.startswith((f"{package.import_name}/", f"{information}/")))
    if outside:
        yield f"{wheel.name}: holds {outside[0]}, which is outside the package"
    for text in metadata.get_all("Requires-Dist", []):
        requirement = Requirement(text)
        if requirement.url or (requirement.name in members - {package.name} and not requirement.specifier):
            yield f"{wheel.name}: {text!r} is no plain version range"
    if metadata["License-Expression"] != "Apache-2.0":
        yield f"{wheel.name}: License-Expression is {metadata['License-Expression']!r}"


def check_sdist(sdist: Path, package: Package) -> Iterator[str]:
    """Findings about one source archive."""
    with tarfile.open(sdist) as archive:
        names = set(archive.getnames())
    top = f"{package.import_name}-{package.version}"
    for name in ("LICENSE", "README.md", "pyproject.toml", f"src/{package.import_name}/py.typed"):
        if f"{top}/{name}" not in names:
            yield f"{sdist.name}: {name} is missing"


def findings(folder: Path, root: Path = ROOT) -> list[str]:
    """All findings about the archives in `folder`."""
    found: list[str] = []
    members = packages(root)
    for package in members:
        stem = f"{package.import_name}-{package.version}"
        wheel, sdist = folder / f"{stem}-py3-none-any.whl", folder / f"{stem}.tar.gz"
        found += [f"{path.name} was not built" for path in (wheel, sdist) if not path.is_file()]
        if wheel.is_file():
            found += check_wheel(wheel, package, {member.name for member in members})
        if sdist.is_file():
            found += check_sdist(sdist, package)
    return found


def main(argv: list[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="check_wheels.py", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path, nargs="?", default=ROOT / "dist")
    found = findings(parser.parse_args(argv).folder)
    print("\n".join(found) if found else "check_wheels: every archive is complete", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    end("check_wheels.py", main)
