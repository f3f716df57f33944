"""The sessions of the workspace (`nox --list`); CONTRIBUTING.md says when to use which.

A session that exists per package takes its name, `nox -s "tests(dota-clip)"`; what follows `--` goes to pytest.
"""

import argparse
import os
import shutil
import sys
import tempfile
from pathlib import Path

import nox

ROOT = Path(__file__).parent
sys.path.insert(0, str(ROOT / "tools"))
from workspace import closure, lower_bound, packages, requirement_name, requirements, uv  # noqa: E402

nox.needs_version = ">=2025.5.1"
nox.options.default_venv_backend = "uv"
nox.options.sessions = ["lint", "types", "tests"]
os.environ["UV"] = UV = uv()  # nox's own look-up stops at PATH, and the README's uv lies in .uv

MEMBERS = {package.name: package for package in packages(ROOT)}
DIST = ROOT / "dist"
WHEELS: dict[str, Path] = {}  # filled by build_wheels
SHARED = "sync --all-packages --all-extras --all-groups --frozen --quiet"
OWN = "sync --all-extras --no-default-groups --group test --frozen --quiet --package"
LOCKED = "export --all-packages --all-extras --all-groups --frozen --no-hashes --no-emit-workspace --quiet"
ENVIRONMENT = {"OMP_NUM_THREADS": "2", "TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1"}

each_package = nox.parametrize("package", [nox.param(name, id=name) for name in MEMBERS])
tests_targets = nox.parametrize("package", [nox.param(name, id=name) for name in [*MEMBERS, "tools"]])


# What the sessions share


def run_uv(session: nox.Session, *arguments: str, silent: bool = False) -> None:
    """Runs uv, which acts on the session's own environment."""
    session.run(UV, *arguments, external=True, silent=silent)


def shared(session: nox.Session, *command: str, env: dict[str, str] | None = None) -> None:
    """Runs a command in the shared environment .venv, which holds all packages, extras and groups."""
    session.run(UV, *SHARED.split(), external=True, log=False)
    session.run(UV, "run", "--no-sync", *command, env=ENVIRONMENT | (env or {}), external=True)


def pytest(session: nox.Session, *arguments: str) -> None:
    """Runs pytest in the session's environment; a selection (`-- -k ...`) may leave a package without a test."""
    codes = [0, 5] if session.posargs else [0]
    env = ENVIRONMENT | {"OMP_NUM_THREADS": "1"}  # tiny models gain nothing from a second thread
    session.run("python", "-m", "pytest", *arguments, *session.posargs, env=env, success_codes=codes)


def build_wheels(session: nox.Session) -> dict[str, Path]:
    """Builds every wheel and source archive into dist/, once a run, and returns the wheels by package.

    Wheels in the folder that RELEASE_DIST names are those of a release, which must be tested instead of new ones.
    """
    if not WHEELS:
        shutil.rmtree(DIST, ignore_errors=True)
        run_uv(session, "build", "--all-packages", "--no-sources", "--out-dir", str(DIST), "--quiet")
        folders = [DIST, *map(Path, filter(None, [os.environ.get("RELEASE_DIST")]))]
        for name, package in MEMBERS.items():
            found = [wheel for folder in folders for wheel in folder.glob(f"{package.import_name}-*.whl")]
            WHEELS[name] = found[-1].resolve()
    return WHEELS


def extras(package: str) -> str:
    """All extras of a package as they stand in a requirement, `[a,b]`."""
    names = MEMBERS[package].pyproject["project"].get("optional-dependencies", {})
    return f"[{','.join(names)}]" if names else ""


def test_group(package: str) -> list[str]:
    """Arguments that add the package's test group to `uv pip install`."""
    return ["--group", f"{MEMBERS[package].folder / 'pyproject.toml'}:test"]


# The sessions


@nox.session(reuse_venv=True)
@tests_targets
def tests(session: nox.Session, package: str) -> None:
    """A package's tests in an environment with only what it declares; `tools` are the tests of tools/."""
    run_uv(session, *OWN.split(), "nips-common" if package == "tools" else package)
    folder = "tools/tests" if package == "tools" else f"packages/{package}/tests"
    pytest(session, folder, f"--ignore={folder}/benchmarks")


@nox.session(venv_backend="none")
def lint(session: nox.Session) -> None:
    """Ruff, its formatter, and the rules of the workspace that ruff cannot know."""
    shared(session, "ruff", "check", ".")
    shared(session, "ruff", "format", "--check", ".")
    shared(session, "python", "tools/check_packages.py")


@nox.session(venv_backend="none")
def types(session: nox.Session) -> None:
    """Mypy, strict, one run over the sources of all packages and the tools."""
    sources = [str(package.source) for package in MEMBERS.values()]
    path = os.pathsep.join([str(ROOT / "tools"), *(str(package.source.parent) for package in MEMBERS.values())])
    shared(session, "mypy", *sources, "noxfile.py", *map(str, (ROOT / "tools").glob("*.py")), env={"MYPYPATH": path})


@nox.session(venv_backend="none")
def build(session: nox.Session) -> None:
    """Wheels and source archives of all packages into dist/, and a look at what they declare."""
    build_wheels(session)
    shared(session, "python", "tools/check_wheels.py", str(DIST))


@nox.session
@each_package
def isolated(session: nox.Session, package: str) -> None:
    """The built wheel in an empty environment, away from the checkout: alone, then with its extras under its tests."""
    wheels, member = build_wheels(session), MEMBERS[package]
    with tempfile.TemporaryDirectory(prefix=f"{package}-") as temporary, session.chdir(temporary):
        away = Path(temporary)
        shutil.copytree(
            member.folder / "tests", away / "tests", ignore=shutil.ignore_patterns("__pycache__", "benchmarks")
        )
        for name in ("README.md", "CHANGELOG.md"):
            shutil.copy(member.folder / name, away)
        locked = away / "locked.txt"  # third-party versions are the lock's: the question is what our wheels declare
        run_uv(session, *LOCKED.split(), "--project", str(ROOT), "--output-file", str(locked), silent=True)
        install_wheels(session, package, wheels, "", locked)
        look = f"import {member.import_name} as m; [getattr(m, name) for name in m.__all__]; print(m.__file__)"
        session.run("python", "-c", look)
        install_wheels(session, package, wheels, extras(package), locked, *test_group(package))
        pytest(session, "tests", "--import-mode=importlib", "-p", "no:cacheprovider")


def install_wheels(
    session: nox.Session, package: str, wheels: dict[str, Path], its_extras: str, locked: Path, *more: str
) -> None:
    """Installs a package's wheel and those of the members it requires.

    They are named by file, so that a package of the same name on the index (toto-ts) can never be taken instead.
    """
    ours = [
        f"{name}{its_extras if name == package else ''} @ {wheels[name].as_uri()}" for name in closure(package, MEMBERS)
    ]
    run_uv(session, "pip", "install", "--quiet", "--constraints", str(locked), *ours, *more)


@nox.session
@each_package
def lowest(session: nox.Session, package: str) -> None:
    """A package's tests with every direct requirement at its floor."""
    wanted = {name: extras(package) if name == package else "" for name in closure(package, MEMBERS)}
    ours = [f"--editable={MEMBERS[name].folder}{its_extras}" for name, its_extras in wanted.items()]
    with tempfile.TemporaryDirectory() as temporary:
        floors = Path(temporary) / "floors.txt"  # lowest-direct alone may settle above a floor
        floors.write_text("\n".join(sorted(floor_pins(package))))
        resolution = ["--resolution", "lowest-direct", "--constraints", str(floors)]
        run_uv(session, "pip", "install", "--quiet", *resolution, *ours, *test_group(package))
    pytest(session, f"packages/{package}/tests", f"--ignore=packages/{package}/tests/benchmarks")


def floor_pins(package: str) -> set[str]:
    """`name==floor` for every third-party requirement of a package and of the members it requires."""
    pins = set()
    for name in closure(package, MEMBERS):
        for where, text in requirements(MEMBERS[name].pyproject):
            if where != "build-system" and requirement_name(text) not in MEMBERS:
                pins.add(f"{requirement_name(text)}=={lower_bound(text)}")
    return pins


@nox.session(venv_backend="none")
def bench(session: nox.Session) -> None:
    """The benchmarks (ratios against plain implementations); `-- PACKAGE...` limits them."""
    for package in chosen(session, session.posargs):
        folder = MEMBERS[package].folder / "tests" / "benchmarks"
        if folder.is_dir() and any(folder.glob("*.py")):
            shared(session, "python", "-m", "pytest", str(folder), "-s")
        else:
            session.log(f"{package} has no benchmarks")


@nox.session(venv_backend="none")
@each_package
def coverage(session: nox.Session, package: str) -> None:
    """Line coverage of a package's sources without its command line; under 90 % fails."""
    member, data = MEMBERS[package], {"COVERAGE_FILE": str(ROOT / f".coverage.{package}")}
    tests_folder = f"packages/{package}/tests"
    shared(session, "coverage", "run", f"--source={member.source}", "-m", "pytest", tests_folder,
           f"--ignore={tests_folder}/benchmarks", *session.posargs, env=data)  # fmt: skip
    shared(session, "coverage", "report", "--omit=*/cli.py,*/testing/*", "--fail-under=90", env=data)


@nox.session(venv_backend="none")
def reproduce(session: nox.Session) -> None:
    """Every package's small real experiment, one table and reproduction/index.html; `-- PACKAGE... [--full]`."""
    parser = argparse.ArgumentParser(prog="nox -s reproduce --")
    parser.add_argument("packages", nargs="*")
    parser.add_argument("--full", action="store_true", help="all seeds")
    options = parser.parse_args(session.posargs)
    names = [name for name in chosen(session, options.packages) if (MEMBERS[name].source / "reproduce.py").is_file()]
    if not names:
        session.error("none of the chosen packages has an experiment")
    shared(session, "python", "tools/fetch_assets.py", "--for", *names)
    failed = []
    for name in names:
        out = ROOT / "reproduction" / name
        shutil.rmtree(out, ignore_errors=True)  # an old result must not pass for the one of a run that breaks off
        try:
            full = ["--full"] if options.full else []
            shared(session, "python", "-m", f"{MEMBERS[name].import_name}.reproduce", "--out", str(out), *full)
        except nox.command.CommandFailed:
            failed.append(name)
    if done := [name for name in names if name not in failed]:
        shared(session, "python", "tools/gallery.py", *done)
    if failed:
        session.error(f"broke off: {', '.join(failed)}")


def chosen(session: nox.Session, names: list[str]) -> list[str]:
    """The named packages, or all; an unknown name ends the session."""
    unknown = [name for name in names if name not in MEMBERS]
    if unknown:
        session.error(f"no package named {unknown[0]!r}, known are {', '.join(MEMBERS)}")
    return list(names or MEMBERS)
