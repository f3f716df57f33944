"""Releases one package: version, changelog, lock, checks, build, commit and tag `<name>-v<version>`.

    python tools/release.py dota-clip 0.2.0              # says what it would do, changes nothing
    python tools/release.py dota-clip 0.2.0 --execute    # does it; pushing the tag publishes, see CONTRIBUTING.md
    python tools/release.py --tag dota-clip-v0.2.0       # for CI: tag, pyproject.toml and changelog agree

The newest heading of the changelog must be `## Unreleased` or `## <version> - unreleased`; it gets version and date.
"""

from __future__ import annotations

import argparse
import datetime
import difflib
import json
import re
import sys
import tempfile
from pathlib import Path

from packaging.requirements import Requirement
from packaging.version import InvalidVersion, Version

from check_packages import findings
from check_wheels import check_sdist, check_wheel
from workspace import ROOT, SUPPORT, Package, call, end, find_package, packages, requirement_name, requirements, uv

HEADING = re.compile(r"^## \[?(?P<version>Unreleased|\d[^\]\s]*)\]?(?: - (?P<date>\S+))?[ ]*$", re.MULTILINE)


def edits(package: Package, version: str, today: str) -> dict[Path, str]:
    """The new texts of pyproject.toml and CHANGELOG.md.

    Raises:
        ValueError: the version is none, or not greater than the present one, or the changelog has nothing unreleased.
    """
    pyproject, changelog = package.folder / "pyproject.toml", package.folder / "CHANGELOG.md"
    text = changelog.read_text(encoding="utf-8")
    head = HEADING.search(text)
    if head is None or not (head["version"] == "Unreleased" or head["date"] == "unreleased"):
        raise ValueError(f"{changelog}: nothing unreleased at its head (`## Unreleased` or `## VERSION - unreleased`)")
    if not notes(text).strip():
        raise ValueError(f"{changelog}: the section {head[0]!r} is empty")
    first = head["version"] == package.version  # the version stands in pyproject.toml and was never released
    try:
        greater = Version(version) > Version(package.version) or (first and version == package.version)
    except InvalidVersion:
        raise ValueError(f"not a version: {version!r}") from None
    if not greater:
        raise ValueError(f"{package.name} is at {package.version}; {version} is not greater")
    old = pyproject.read_text(encoding="utf-8")
    new = re.sub(
        rf'^version = "{re.escape(package.version)}"$', f'version = "{version}"', old, count=1, flags=re.MULTILINE
    )
    return {pyproject: new, changelog: text.replace(head[0], f"## {version} - {today}", 1)}


def notes(changelog: str) -> str:
    """The newest section of a changelog without its heading."""
    heads = list(HEADING.finditer(changelog))
    return changelog[heads[0].end() : heads[1].start() if len(heads) > 1 else len(changelog)].strip("\n")


def refuse_unready(package: Package, version: str, root: Path) -> None:
    """ValueError for a dirty tree, an existing tag, and dependants whose range would not hold a new support package."""
    if call(["git", "status", "--porcelain"], cwd=root):
        raise ValueError("the working tree has uncommitted changes")
    tag = f"{package.name}-v{version}"
    if call(["git", "tag", "--list", tag], cwd=root):
        raise ValueError(f"the tag {tag} exists already")
    if package.name not in SUPPORT:
        return
    narrow = [
        other.name
        for other in packages(root)
        for _, text in requirements(other.pyproject)
        if requirement_name(text) == package.name and Version(version) not in Requirement(text).specifier
    ]
    if narrow:
        raise ValueError(
            f"{package.name} {version} is outside the range of {', '.join(sorted(set(narrow)))}: widen it first"
        )


def execute(package: Package, version: str, changes: dict[Path, str], root: Path) -> None:
    """Edits, locks, checks, builds, commits and tags; whatever fails before the commit leaves the tree as it was."""
    for path, text in changes.items():
        path.write_text(text, encoding="utf-8")
    files = [*(str(path) for path in changes), str(root / "uv.lock")]
    try:
        call([uv(), "lock", "--quiet"], cwd=root)
        found = [*findings(root), *built_findings(Package(package.folder), root)]
        if found:
            raise ValueError(f"{len(found)} findings, the first: {found[0]}")
        call(["git", "add", *files], cwd=root)
        call(["git", "commit", "--quiet", "--message", f"Release {package.name} {version}"], cwd=root)
    except ValueError:
        call(["git", "checkout", "--quiet", "HEAD", "--", *files], cwd=root)
        raise
    tag = f"{package.name}-v{version}"
    call(["git", "tag", "--annotate", tag, "--message", f"{package.name} {version}"], cwd=root)


def built_findings(package: Package, root: Path) -> list[str]:
    """Builds the package without the workspace's sources and looks into the archives."""
    with tempfile.TemporaryDirectory() as folder:
        call([uv(), "build", "--quiet", "--package", package.name, "--no-sources", "--out-dir", folder], cwd=root)
        wheel, sdist = next(Path(folder).glob("*.whl")), next(Path(folder).glob("*.tar.gz"))
        members = {member.name for member in packages(root)}
        return [*check_wheel(wheel, package, members), *check_sdist(sdist, package)]


def check_tag(tag: str, root: Path) -> dict[str, str]:
    """Name, version and notes of a release tag; ValueError if pyproject.toml or changelog say something else."""
    name, separator, version = tag.rpartition("-v")  # at the last one: names have hyphens too
    if not separator:
        raise ValueError(f"not a release tag `<name>-v<version>`: {tag!r}")
    package = find_package(name, root)
    changelog = (package.folder / "CHANGELOG.md").read_text(encoding="utf-8")
    head = HEADING.search(changelog)
    if package.version != version:
        raise ValueError(f"{tag}: pyproject.toml says {package.version}")
    if head is None or head["version"] != version or head["date"] in (None, "unreleased"):
        raise ValueError(f"{tag}: the changelog begins with {head[0] if head else None!r}")
    return {"name": name, "version": version, "notes": notes(changelog)}


def main(argv: list[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="release.py", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("name", metavar="NAME", nargs="?")
    parser.add_argument("version", metavar="VERSION", nargs="?")
    parser.add_argument("--execute", action="store_true", help="do it; without this nothing is changed")
    parser.add_argument("--tag", help="check a tag instead and print its name, version and notes as JSON")
    parser.add_argument("--root", type=Path, default=ROOT)
    options = parser.parse_args(argv)
    if options.tag:
        print(json.dumps(check_tag(options.tag, options.root)))
        return 0
    if not options.version:
        parser.error("NAME and VERSION, or --tag TAG")
    package = find_package(options.name, options.root)
    changes = edits(package, options.version, datetime.datetime.now(tz=datetime.UTC).date().isoformat())
    refuse_unready(package, options.version, options.root)
    for path, text in changes.items():
        old, name = path.read_text(encoding="utf-8"), str(path.relative_to(options.root))
        sys.stdout.writelines(difflib.unified_diff(old.splitlines(True), text.splitlines(True), name, name, n=1))
    if options.execute:
        execute(package, options.version, changes, options.root)
    did = "tagged" if options.execute else "dry run; --execute would lock, check, build, commit and tag"
    print(f"{did} {package.name}-v{options.version}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    end("release.py", main)
