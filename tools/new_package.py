"""Starts a package: packages/NAME with what every package has, its lines in the root files, no pretended feature.

    python tools/new_package.py lora-anl

What it writes passes tools/check_packages.py as a package in planning; run `uv lock` afterwards.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

from check_packages import SECTIONS
from workspace import COMMON, ROOT, end, find_package, packages

PYPROJECT = """\
[project]
name = "{name}"
version = "0.1.0"
description = "{summary}"
readme = "README.md"
requires-python = ">=3.11"
license = "Apache-2.0"
license-files = ["LICENSE"]
authors = [{{ name = "The NeurIPS 2025 methods maintainers" }}]
classifiers = ["Development Status :: 1 - Planning", "Intended Audience :: Science/Research", "Typing :: Typed"]
dependencies = ["{common}"]

[dependency-groups]
test = ["{pytest}"]

[build-system]
requires = ["{uv_build}"]
build-backend = "uv_build"
"""

INIT = '''\
"""{summary}."""

from importlib.metadata import version

__all__ = ["__version__"]

__version__ = version("{name}")
'''

TEST = """\
import re
from pathlib import Path

import {import_name}


def test_the_version_is_the_newest_of_the_changelog():
    changelog = Path(__file__).parents[1].joinpath("CHANGELOG.md").read_text(encoding="utf-8")
    assert re.findall(r"^## (\\S+)", changelog, flags=re.MULTILINE)[0] == {import_name}.__version__


def test_the_public_names_are_these():
    assert {import_name}.__all__ == ["__version__"]
"""

CHANGELOG = """\
# Changelog

Versions follow semantic versioning; while they begin with 0, a minor version may change the interface.

## 0.1.0 - unreleased

- Started; nothing usable yet.
"""

CODE = """\
```python
import {import_name}

print({import_name}.__version__)
```
"""


def write_package(name: str, summary: str, root: Path) -> Path:
    """Writes packages/`name` and returns it.

    Raises:
        ValueError: the name is not lower case words joined by hyphens, or taken.
    """
    if not re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", name):
        raise ValueError(f"a package is named by lower case words joined by hyphens, got {name!r}")
    if not re.fullmatch(r"[^\"\\\n|]+", summary):
        raise ValueError(f"the summary must be one line without quotation marks, backslashes and bars, got {summary!r}")
    folder = root / "packages" / name
    if folder.exists():
        raise ValueError(f"packages/{name} exists already")
    common = find_package(COMMON, root)
    major, minor = common.version.split(".")[:2]
    fields = {
        "name": name,
        "import_name": name.replace("-", "_"),
        "summary": summary.rstrip("."),
        "common": f"{COMMON}>={major}.{minor},<{major}.{int(minor) + 1}",
        "pytest": next(text for text in common.pyproject["dependency-groups"]["test"] if text.startswith("pytest>")),
        "uv_build": common.pyproject["build-system"]["requires"][0],
    }
    files = {
        "pyproject.toml": PYPROJECT.format(**fields),
        "README.md": readme(fields),
        "CHANGELOG.md": CHANGELOG,
        "LICENSE": (root / "LICENSE").read_text(encoding="utf-8"),
        f"src/{fields['import_name']}/__init__.py": INIT.format(**fields),
        f"src/{fields['import_name']}/py.typed": "",
        "tests/test_package.py": TEST.format(**fields),
    }
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text, encoding="utf-8")
    return folder


def readme(fields: dict[str, str]) -> str:
    """A README with every section, each saying that there is nothing yet."""
    bodies = {
        "Install": f"Not published. From a checkout of the workspace: `uv sync --package {fields['name']}`.\n",
        "Ten lines that work": CODE.format(**fields),
        "Limits": "Everything is still missing.\n",
    }
    head = f"# {fields['name']}\n\n{fields['summary']}.\nThis package has been started; it holds nothing usable yet.\n"
    return head + "".join(
        f"\n## {section}\n\n{bodies.get(section, 'Nothing yet.')}".rstrip() + "\n" for section in SECTIONS
    )


def planned_summary(name: str, root: Path) -> str:
    """What the README's table says that a planned package gives; ValueError if it does not know the package."""
    readme = (root / "README.md").read_text(encoding="utf-8")
    row = re.search(rf"^\| {re.escape(name)} \|.*\| (.+) \| planned \|$", readme, flags=re.MULTILINE)
    if row is None:
        raise ValueError(f"README.md does not plan a package {name!r}; say what it is with --summary")
    return row[1]


def register(name: str, summary: str, root: Path) -> None:
    """Adds the package to the root's dependencies and sources and marks it as started in the README's table."""
    names = sorted(package.name for package in packages(root))
    path = root / "pyproject.toml"
    text = path.read_text(encoding="utf-8")
    text = insert_line(text, "dependencies = [", f'  "{name}",', names)
    text = insert_line(text, "[tool.uv.sources]", f"{name} = {{ workspace = true }}", names)
    path.write_text(text, encoding="utf-8")
    path = root / "README.md"
    text = path.read_text(encoding="utf-8")
    row = re.search(rf"^\| {re.escape(name)} \|.*\| planned \|$", text, flags=re.MULTILINE)
    linked = f"| [{name}](packages/{name}/README.md) "
    if row:
        text = text.replace(row[0], row[0].replace(f"| {name} ", linked, 1).replace("| planned |", "| started |"))
    else:
        last = list(re.finditer(r"^\| .*\| (?:planned|started|ready) \|$", text, flags=re.MULTILINE))[-1]
        text = f"{text[: last.end()]}\n{linked}| | | {summary.rstrip('.')} | started |{text[last.end() :]}"
    path.write_text(text, encoding="utf-8")


def insert_line(text: str, head: str, line: str, names: list[str]) -> str:
    """Puts a line about a package below `head`, among those of the other packages, which are sorted."""
    before, after = text.split(f"{head}\n", 1)
    lines = after.split("\n")
    end_of_block = next(
        i for i, old in enumerate(lines) if not re.match(rf'\s*"?({"|".join(map(re.escape, names))})\b', old)
    )
    block = sorted([*lines[:end_of_block], line], key=lambda text: re.sub(r'[\s"\[].*', "", text.strip(' "')))
    return f"{before}{head}\n" + "\n".join([*block, *lines[end_of_block:]])


def main(argv: list[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="new_package.py", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("name", metavar="NAME")
    parser.add_argument("--summary", help="one line that says what it is; without it, what the README's table says")
    parser.add_argument("--root", type=Path, default=ROOT)
    options = parser.parse_args(argv)
    summary = options.summary or planned_summary(options.name, options.root)
    folder = write_package(options.name, summary, options.root)
    register(options.name, summary, options.root)
    print(f"wrote {folder}; now run `uv lock`, then `uv run nox -s lint`", file=sys.stderr)
    return 0


if __name__ == "__main__":
    end("new_package.py", main)
