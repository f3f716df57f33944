"""Holds every package to the layout and the rules that ruff and mypy cannot know; part of `nox -s lint`.

All findings are printed together, one a line; the exit code is 1 if there is any. CONTRIBUTING.md explains the rules.
A package with the classifier `Development Status :: 1 - Planning` has only been started: it may still lack modules.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from packaging.requirements import Requirement
from packaging.version import Version

from workspace import (
    COMMON,
    ROOT,
    SUPPORT,
    Package,
    end,
    lower_bound,
    packages,
    read_toml,
    requirement_name,
    requirements,
)

SECTIONS = (
    "Install",
    "Ten lines that work",
    "Command line",
    "Train on CUDA, on several GPUs",
    "Method and its source",
    "Paper, official code, ours",
    "Coming from the official repository",
    "What was reproduced, what was not",
    "Limits",
    "Cite",
)
SUPPORT_SECTIONS = ("Install", "Ten lines that work", "Modules", "Limits")
# Exceptions to the common shape, each with its reason.
TRAINING_FREE = {"dota-clip"}  # adapts without gradients: adapt.py instead of train.py
JOB_MODULE = {"dota-clip": "adapt.py", "boom-bench": "run.py"}
EDGES = {("toto-ts", "boom-bench")}  # the one requirement between methods: the extra toto-ts[backtest]
FOUND_BY_IMPORT = {("boom-bench", "toto-ts")}  # used where installed, without a requirement
BANNED_MODULES = {"utils", "helpers", "misc", "common"}
COMMON_LINES = 500
# In two parts, so that this file does not hold what it looks for.
BANNED_TEXT = [".".join(parts) for parts in (("pypi", "org"), ("pythonhosted", "org"), ("registry.npmjs", "org"))]
BANNED_CODE = {
    r"\.cuda\(\)": "devices come from nips_common.runtime",
    r"trust_remote_code\s*=\s*True": "it runs code that came with a model",
}
ROOT_FILES = ("README.md", "CONTRIBUTING.md", "CITATION.cff", "LICENSE", "uv.lock", "noxfile.py")
TEXT_FILES = {".py", ".md", ".toml", ".yml", ".yaml", ".cff", ".txt", ".cfg", ".html", ".json", ""}


def check_package(package: Package, root: Path, members: dict[str, Package]) -> Iterator[str]:
    """All findings about one package."""
    yield from check_files(package, root)
    yield from check_metadata(package)
    if (package.folder / "README.md").is_file():
        yield from check_readme(package)
    if (package.folder / "CHANGELOG.md").is_file():
        yield from check_changelog(package)
    if package.source.is_dir():
        yield from check_source(package, members)
    yield from check_edges(package, members)


def planned(package: Package) -> bool:
    """Whether the package has only been started."""
    return any("1 - Planning" in text for text in package.pyproject["project"].get("classifiers", []))


def wanted_files(package: Package) -> Iterator[str]:
    """The files that the layout in CONTRIBUTING.md asks of a package."""
    yield from ("pyproject.toml", "README.md", "CHANGELOG.md", "LICENSE")
    source = f"src/{package.import_name}"
    yield from (f"{source}/__init__.py", f"{source}/py.typed")
    if package.name not in SUPPORT and not planned(package):
        job = JOB_MODULE.get(package.name, "train.py")
        yield from (f"{source}/{module}" for module in ("config.py", "cli.py", "reproduce.py", job))
        yield from ("tests/test_golden.py", "tests/test_cli.py", "tests/golden", "tests/benchmarks")


def check_files(package: Package, root: Path) -> Iterator[str]:
    """Missing files, another licence than the root's, no test, module names that say nothing."""
    for name in wanted_files(package):
        if not (package.folder / name).exists():
            yield f"{name} is missing"
    licence = package.folder / "LICENSE"
    if licence.is_file() and licence.read_bytes() != (root / "LICENSE").read_bytes():
        yield "LICENSE differs from the one at the root"
    if not any((package.folder / "tests").glob("test_*.py")):
        yield "tests/ holds no test_*.py"
    for module in sorted(package.source.rglob("*.py")):
        if module.stem in BANNED_MODULES:
            yield f"{module.relative_to(package.folder)}: a module is named after its idea, not {module.stem!r}"


def check_metadata(package: Package) -> Iterator[str]:
    """The fields of [project] that every package shares, and its command."""
    project = package.pyproject["project"]
    wanted = {"name": package.name, "readme": "README.md", "requires-python": ">=3.11", "license": "Apache-2.0"}
    for key, value in {**wanted, "license-files": ["LICENSE"]}.items():
        if project.get(key) != value:
            yield f"pyproject.toml: {key} must be {value!r}, got {project.get(key)!r}"
    if "test" not in package.pyproject.get("dependency-groups", {}):
        yield "pyproject.toml: the dependency group `test` is missing"
    command = {package.name: f"{package.import_name}.cli:main"}
    if package.name != COMMON and (package.source / "cli.py").is_file() and project.get("scripts") != command:
        yield f"pyproject.toml: scripts must be {command}, got {project.get('scripts')}"


def check_readme(package: Package) -> Iterator[str]:
    """The README's headings in their order, and code under `Ten lines that work`."""
    text = (package.folder / "README.md").read_text(encoding="utf-8")
    expected = list(SUPPORT_SECTIONS if package.name in SUPPORT else SECTIONS)
    if package.name in TRAINING_FREE:
        expected = [heading.replace("Train on", "Adapt on") for heading in expected]
    prose = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)  # a comment in a shell block is no heading
    found = re.findall(r"^## (.+?)\s*$", prose, flags=re.MULTILINE)
    if not text.startswith(f"# {package.name}\n"):
        yield f"README.md: must begin with `# {package.name}`"
    if found != expected:
        missing, extra = [h for h in expected if h not in found], [h for h in found if h not in expected]
        what = f"missing {missing}, unexpected {extra}" if missing or extra else f"in another order: {found}"
        yield f"README.md: level-2 headings {what}"
    elif "```python" not in text.split("## Ten lines that work")[1].split("\n## ")[0]:
        yield "README.md: `Ten lines that work` holds no ```python block"


def check_changelog(package: Package) -> Iterator[str]:
    """The newest version of the changelog is the package's."""
    text = (package.folder / "CHANGELOG.md").read_text(encoding="utf-8")
    head = re.search(r"^## \[?(\d[^\]\s]*)", text, flags=re.MULTILINE)
    if head is None or head[1] != package.version:
        yield f"CHANGELOG.md: newest version is {head[1] if head else None}, pyproject.toml says {package.version}"


def check_source(package: Package, members: dict[str, Package]) -> Iterator[str]:
    """Imports between packages and between modules, `__init__`, forbidden calls, the size of nips-common."""
    imports = {member.import_name: name for name, member in members.items()}
    declared = package.workspace_requirements(set(members)) | {package.name}
    for path in sorted([*package.source.rglob("*.py"), *(package.folder / "tests").rglob("*.py")]):
        where = path.relative_to(package.folder)
        text = path.read_text(encoding="utf-8")
        tree = ast.parse(text, filename=str(path))
        for line, name in imported(tree, package):
            top, *rest = name.split(".")
            other = imports.get(top)
            if other is None or other == package.name:
                continue
            if other not in declared and (package.name, other) not in FOUND_BY_IMPORT:
                yield f"{where}:{line}: imports {top}, but pyproject.toml does not require {other}"
            private = [part for part in rest if part.startswith("_") and not part.startswith("__")]
            if private:
                yield f"{where}:{line}: {private[0]} is private to {other}"
        if path.is_relative_to(package.source):
            yield from check_module(package, path, where, tree, text)
    if package.name == COMMON:
        lines = sum(len(path.read_text(encoding="utf-8").splitlines()) for path in package.source.glob("*.py"))
        if lines >= COMMON_LINES:
            yield f"src/ has {lines} lines without testing/, it must stay under {COMMON_LINES}"


def check_module(package: Package, path: Path, where: Path, tree: ast.Module, text: str) -> Iterator[str]:
    """One module of the sources: arrows run one way, `__init__` only names, no forbidden call."""
    for line, name in imported(tree, package):
        if package.name == COMMON:
            break
        if name.split(".")[:2] == [package.import_name, "cli"] and path.name != "__main__.py":
            yield f"{where}:{line}: nothing imports the command line"
        if name.split(".")[:2] == [package.import_name, "reproduce"] and path.name != "cli.py":
            yield f"{where}:{line}: only the command line may import reproduce"
    for pattern, reason in BANNED_CODE.items():
        if re.search(pattern, text):
            yield f"{where}: {pattern} is forbidden: {reason}"
    if path == package.source / "__init__.py":
        yield from check_init(package, where, tree)


def check_init(package: Package, where: Path, tree: ast.Module) -> Iterator[str]:
    """`__init__.py` names the public things and the version; ruff's RUF022 keeps __all__ sorted."""
    assigned = {target.id: node.value for node in tree.body if isinstance(node, ast.Assign)
                for target in node.targets if isinstance(target, ast.Name)}  # fmt: skip
    defined = {node.name for node in tree.body if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
    defined -= {"__dir__", "__getattr__"}  # names that are looked up when they are used
    for name in ("__all__", "__version__"):
        if name not in assigned:
            yield f"{where}: {name} is missing"
    if defined:
        yield f"{where}: defines {', '.join(sorted(defined))}; it may only name what other modules define"
    version = assigned.get("__version__")
    if isinstance(version, ast.Constant) and version.value != package.version:
        yield f"{where}: __version__ is {version.value!r}, pyproject.toml says {package.version!r}"


def imported(tree: ast.Module, package: Package) -> Iterator[tuple[int, str]]:
    """Every imported dotted name with its line, those inside functions included; relative ones are made absolute."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = ".".join(filter(None, [package.import_name if node.level else "", node.module]))
            yield from ((node.lineno, f"{module}.{alias.name}") for alias in node.names)


def check_edges(package: Package, members: dict[str, Package]) -> Iterator[str]:
    """Packages require the support packages by a plain range that holds their version, and no other method."""
    for where, text in requirements(package.pyproject):
        name = requirement_name(text)
        if name == package.name or name not in members:
            continue
        if package.name == COMMON:
            yield f"pyproject.toml: {where} requires {name}, but {COMMON} requires no package of the workspace"
        elif name not in SUPPORT and (package.name, name) not in EDGES:
            yield f"pyproject.toml: {where} requires {name}, but methods do not require each other"
        bounds = Requirement(text).specifier
        if {bound.operator for bound in bounds} != {">=", "<"} or Version(members[name].version) not in bounds:
            yield f"pyproject.toml: {where}: {text!r} must be a range >=,< that holds {members[name].version}"


def check_floors(root: Path, members: dict[str, Package]) -> Iterator[str]:
    """Every direct requirement has a floor, and a library has one floor, the one that CONTRIBUTING.md lists."""
    floors: dict[str, dict[str, str]] = {}
    for file in [root / "pyproject.toml", *(member.folder / "pyproject.toml" for member in members.values())]:
        for where, text in requirements(read_toml(file)):
            place, name, floor = f"{file.relative_to(root)}: {where}", requirement_name(text), lower_bound(text)
            if name in members:
                continue
            if floor is None:
                yield f"{place}: {text!r} has no lower bound"
            else:
                floors.setdefault(name, {}).setdefault(floor, place)
    contributing = (root / "CONTRIBUTING.md").read_text(encoding="utf-8")
    for library, floor in re.findall(r"^\| ([\w.-]+) \| ([\d.]+) \|", contributing, flags=re.MULTILINE):
        if requirement_name(library) in floors:
            floors[requirement_name(library)].setdefault(floor, "CONTRIBUTING.md")
    for name, found in sorted(floors.items()):
        if len(found) > 1:
            yield f"{name} has several floors: {', '.join(f'{floor} in {place}' for floor, place in found.items())}"


def check_root(root: Path, members: dict[str, Package]) -> Iterator[str]:
    """The root depends on every member, lists it once as a source and names it in the README's table."""
    pyproject = read_toml(root / "pyproject.toml")
    required = {requirement_name(text) for where, text in requirements(pyproject) if where == "dependencies"}
    sources = pyproject.get("tool", {}).get("uv", {}).get("sources", {})
    readme = (root / "README.md").read_text(encoding="utf-8")
    for name, package in members.items():
        if name not in required:
            yield f"pyproject.toml: dependencies lack {name}"
        if sources.get(name) != {"workspace": True}:
            yield f"pyproject.toml: tool.uv.sources lacks {name} = {{ workspace = true }}"
        if "sources" in package.pyproject.get("tool", {}).get("uv", {}):
            yield f"packages/{name}/pyproject.toml: sources belong into the root's table"
        state = "started" if planned(package) else "ready"
        row = re.search(rf"^\| \[?{re.escape(name)}\b.*\| (\w+) \|$", readme, flags=re.MULTILINE)
        if row is None or row[1] != state:
            yield f"README.md: the table must say that {name} is {state}, got {row[1] if row else None}"


def check_texts(root: Path) -> Iterator[str]:
    """No text names a registry's host or a path of somebody's machine."""
    folders = ["packages", "tools", ".github", ".ci", "docs"]
    files = [path for path in root.iterdir() if path.is_file() and path.name != "uv.lock"]
    files += [path for folder in folders for path in (root / folder).rglob("*") if path.is_file()]
    for path in sorted(files):
        if path.suffix not in TEXT_FILES or "__pycache__" in path.parts:
            continue
        text = path.read_text(encoding="utf-8", errors="replace")
        yield from (f"{path.relative_to(root)}: names {word}" for word in BANNED_TEXT if word in text)


def findings(root: Path = ROOT) -> list[str]:
    """All findings about the workspace at `root`."""
    members = {package.name: package for package in packages(root)}
    missing = [f"{name} is missing" for name in ROOT_FILES if not (root / name).is_file()]
    if missing:
        return missing
    found = [*check_root(root, members), *check_floors(root, members), *check_texts(root)]
    for name, package in members.items():
        found += [f"packages/{name}/{finding}" for finding in check_package(package, root, members)]
    return found


def main(argv: list[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="check_packages.py", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--root", type=Path, default=ROOT)
    found = findings(parser.parse_args(argv).root)
    print("\n".join(found) if found else "check_packages: every package keeps the rules", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    end("check_packages.py", main)
