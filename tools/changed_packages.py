"""Prints, as a JSON list, the packages that a change can affect: those with changed files and those that require them.

    python tools/changed_packages.py --base origin/main

A change of nips-common or of anything outside packages/ (root files, tools, CI) affects all of them, and so does a
missing base to compare with. Uncommitted changes count.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path, PurePosixPath

from workspace import COMMON, ROOT, Package, call, end, packages


def changed_files(base: str, root: Path) -> list[str]:
    """Files that differ between the merge base of `base` and HEAD, and the working tree; untracked files included."""
    merge_base = call(["git", "merge-base", base, "HEAD"], cwd=root).strip()
    changed = call(["git", "diff", "--name-only", "--no-renames", "-z", merge_base], cwd=root)
    untracked = call(["git", "ls-files", "--others", "--exclude-standard", "-z"], cwd=root)
    return [name for name in (changed + untracked).split("\0") if name]


def affected(files: list[str], members: dict[str, Package]) -> list[str]:
    """The packages that a change of `files` (relative to the root, with slashes) can affect.

    Raises:
        ValueError: a file lies directly in packages/, where only packages may be.
    """
    found: set[str] = set()
    for file in files:
        parts = PurePosixPath(file).parts
        if parts[0] == "packages" and len(parts) == 2:
            raise ValueError(f"{file}: packages/ may hold only folders of packages")
        if parts[0] != "packages" or parts[1] == COMMON or parts[1] not in members:  # the last: a removed package
            return sorted(members)
        found.add(parts[1])
    dependants = {name for name, package in members.items() if package.workspace_requirements(set(members)) & found}
    return sorted(found | dependants)


def main(argv: list[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="changed_packages.py", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--base", default="", help="a commit or branch; empty: everything is affected")
    parser.add_argument("--root", type=Path, default=ROOT)
    options = parser.parse_args(argv)
    members = {package.name: package for package in packages(options.root)}  # an unknown folder is an error here
    files = changed_files(options.base, options.root) if options.base else ["(everything)"]
    print(json.dumps(affected(files, members)))
    return 0


if __name__ == "__main__":
    end("changed_packages.py", main)
