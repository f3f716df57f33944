"""Atomic writing: whatever happens to a writer, a reader finds one whole version."""

import os
import stat
import sys
import threading
from pathlib import Path

import pytest
import torch

from nips_common import artifacts
from nips_common.artifacts import atomic_file, atomic_folder, load_folder, recover, save_folder
from nips_common.testing.interrupt import kill_when
from nips_common.testing.process import Running

HALF_A_FOLDER = """
import sys, time
from pathlib import Path
from nips_common.artifacts import atomic_folder
target, marker = Path(sys.argv[1]), Path(sys.argv[2])
with atomic_folder(target) as folder:
    (folder / "a").write_text("new")
    marker.touch()
    time.sleep(60)
"""
ONE_AFTER_THE_OTHER = """
import itertools, sys
from pathlib import Path
from nips_common.artifacts import atomic_folder
for number in itertools.count(1):
    with atomic_folder(sys.argv[1]) as folder:
        for name in "abc":
            (folder / name).write_text(str(number) * 1000)
    Path(sys.argv[2]).write_text(str(number))
"""
KILLED_BETWEEN_TWO_RENAMES = """
import os, signal, sys
from nips_common import artifacts
artifacts._exchange = lambda first, second: False
artifacts.os.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
with artifacts.atomic_folder(sys.argv[1]) as folder:
    (folder / "a").write_text("new")
"""


def _write(folder: Path, **files: str) -> None:
    with atomic_folder(folder) as new:
        for name, text in files.items():
            (new / name).write_text(text)


def _read(folder: Path) -> dict[str, str]:
    return {str(file.relative_to(folder)): file.read_text() for file in sorted(folder.rglob("*")) if file.is_file()}


def _names(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


@pytest.fixture(params=["exchange", "two renames"])
def swap(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both ways in which a new folder takes the old one's place."""
    if request.param == "two renames":
        monkeypatch.setattr(artifacts, "_exchange", lambda first, second: False)
    return str(request.param)


@pytest.mark.usefixtures("swap")
def test_a_new_folder_and_its_parents_are_made(tmp_path: Path) -> None:
    _write(tmp_path / "deep" / "model", a="1")
    assert _read(tmp_path / "deep" / "model") == {"a": "1"}
    assert _names(tmp_path / "deep") == ["model"]


@pytest.mark.usefixtures("swap")
def test_the_users_own_files_survive_and_ours_are_replaced(tmp_path: Path) -> None:
    model = tmp_path / "model"
    _write(model, a="1", b="1")
    (model / "notes" / "deep").mkdir(parents=True)
    (model / "notes" / "deep" / "log.txt").write_text("mine")
    (model / "empty").mkdir()
    (model / "link").symlink_to("/nowhere")
    with atomic_folder(model) as new:
        (new / "a").write_text("2")
        (new / "notes").mkdir()
        (new / "notes" / "ours.txt").write_text("2")
    expected = {"a": "2", "b": "1", "notes/deep/log.txt": "mine", "notes/ours.txt": "2"}
    assert _read(model) == expected
    assert (model / "empty").is_dir()
    assert os.readlink(model / "link") == "/nowhere"
    assert _names(tmp_path) == ["model"]


@pytest.mark.usefixtures("swap")
def test_an_error_in_the_block_leaves_the_old_folder_and_no_rubbish(tmp_path: Path) -> None:
    _write(tmp_path / "model", a="old")

    def fail() -> None:
        with atomic_folder(tmp_path / "model") as new:
            (new / "a").write_text("new")
            raise RuntimeError("in the middle")

    with pytest.raises(RuntimeError, match="in the middle"):
        fail()
    assert _read(tmp_path / "model") == {"a": "old"}
    assert _names(tmp_path) == ["model"]


def test_a_private_folder_or_file_stays_private(tmp_path: Path) -> None:
    _write(tmp_path / "model", a="1")
    (tmp_path / "model").chmod(0o700)
    _write(tmp_path / "model", a="2")
    assert stat.S_IMODE((tmp_path / "model").stat().st_mode) == 0o700
    (tmp_path / "file").touch(0o600)
    with atomic_file(tmp_path / "file") as temporary:
        temporary.write_text("new")
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o600


def test_a_link_to_a_folder_stays_a_link(tmp_path: Path) -> None:
    _write(tmp_path / "store", a="1")
    (tmp_path / "model").symlink_to(tmp_path / "store")
    _write(tmp_path / "model", a="2")
    assert (tmp_path / "model").is_symlink()
    assert _read(tmp_path / "store") == {"a": "2"}


def test_a_file_is_replaced_as_a_whole_under_its_own_name(tmp_path: Path) -> None:
    target = tmp_path / "plot.png"
    target.write_text("old")

    def write(fail: bool) -> None:
        with atomic_file(target) as temporary:
            assert temporary.name == "plot.png"  # programs choose a format by the name
            temporary.write_text("new")
            assert target.read_text() == "old"
            if fail:
                raise RuntimeError("in the middle")

    with pytest.raises(RuntimeError, match="in the middle"):
        write(fail=True)
    assert target.read_text() == "old"
    write(fail=False)
    assert target.read_text() == "new"
    assert _names(tmp_path) == ["plot.png"]


def test_a_killed_writer_leaves_the_old_folder_and_the_next_write_clears_up(tmp_path: Path) -> None:
    model, marker = tmp_path / "model", tmp_path / "marker"
    _write(model, a="old", b="old")
    kill_when([sys.executable, "-c", HALF_A_FOLDER, str(model), str(marker)], marker.exists, timeout=30)
    assert _read(model) == {"a": "old", "b": "old"}
    left = [name for name in _names(tmp_path) if name.startswith(".model.unfinished-")]
    assert len(left) == 1
    _write(model, a="newer")
    assert _read(model) == {"a": "newer", "b": "old"}
    assert _names(tmp_path) == ["marker", "model"]


def test_a_living_writers_folder_is_left_alone(tmp_path: Path) -> None:
    model, marker = tmp_path / "model", tmp_path / "marker"
    with Running([sys.executable, "-c", HALF_A_FOLDER, str(model), str(marker)], None, None) as writer:
        while not marker.exists():
            assert writer.process.poll() is None, writer.finish()
        _write(model, a="mine")
        recover(model)
        left = [name for name in _names(tmp_path) if name.startswith(".model.unfinished-")]
        assert len(left) == 1
        assert _read(tmp_path / left[0]) == {"model/a": "new"}


@pytest.mark.parametrize("writes", [1, 2, 5, 9])
def test_the_folder_is_one_whole_version_whenever_the_writer_is_killed(tmp_path: Path, writes: int) -> None:
    model, done = tmp_path / "model", tmp_path / "done"
    command = [sys.executable, "-c", ONE_AFTER_THE_OTHER, str(model), str(done)]
    kill_when(command, lambda: done.exists() and int(done.read_text() or 0) >= writes, timeout=30)
    recover(model)
    contents = _read(model)
    assert sorted(contents) == ["a", "b", "c"]
    assert len(set(contents.values())) == 1
    assert len(contents["a"]) >= 1000


def test_readers_never_find_the_folder_missing_while_it_is_replaced(tmp_path: Path) -> None:
    for name in ("first", "second"):
        _write(tmp_path / name, a=name)
    if not artifacts._exchange(tmp_path / "first", tmp_path / "second"):
        pytest.skip("this file system cannot exchange two folders")
    assert (tmp_path / "first" / "a").read_text() == "second"
    model, stop, missing = tmp_path / "model", threading.Event(), []
    _write(model, a="0")

    def look() -> None:
        while not stop.is_set():
            if not (model / "a").exists():
                missing.append(1)

    reader = threading.Thread(target=look)
    reader.start()
    for number in range(50):
        _write(model, a=str(number))
    stop.set()
    reader.join()
    assert not missing


def test_two_writers_at_once_leave_one_of_their_versions(tmp_path: Path) -> None:
    problems: list[BaseException] = []

    def write(name: str) -> None:
        try:
            for _ in range(20):
                _write(tmp_path / "model", a=name * 1000, b=name * 1000)
        except BaseException as error:  # noqa: BLE001 - shown by the assertion below
            problems.append(error)

    threads = [threading.Thread(target=write, args=(name,)) for name in "xy"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []
    contents = _read(tmp_path / "model")
    assert contents["a"] == contents["b"]
    assert _names(tmp_path) == ["model"]


def test_a_folder_lost_between_two_renames_is_brought_back_by_the_next_reader(tmp_path: Path) -> None:
    model = tmp_path / "model"
    save_folder(model, "state", {"a": 1}, {"mean": torch.ones(2)})
    with Running([sys.executable, "-c", KILLED_BETWEEN_TWO_RENAMES, str(model)], None, None) as writer:
        assert writer.wait(30).returncode == -9
    assert not model.exists()
    config, tensors = load_folder(model, "state")
    assert config == {"a": 1}
    assert torch.equal(tensors["mean"], torch.ones(2))
    assert _names(tmp_path) == ["model"]


def test_a_folder_lost_between_two_renames_is_brought_back_by_the_next_writer(tmp_path: Path) -> None:
    model = tmp_path / "model"
    _write(model, a="old", users="own")
    with Running([sys.executable, "-c", KILLED_BETWEEN_TWO_RENAMES, str(model)], None, None) as writer:
        assert writer.wait(30).returncode == -9
    _write(model, a="new")
    assert _read(model) == {"a": "new", "users": "own"}
    assert _names(tmp_path) == ["model"]


def test_an_interrupt_between_two_renames_puts_the_old_folder_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tmp_path / "model"
    _write(model, a="old")

    def interrupt(*_: object) -> None:
        assert not model.exists()
        raise KeyboardInterrupt

    monkeypatch.setattr(artifacts, "_exchange", lambda first, second: False)
    monkeypatch.setattr(os, "replace", interrupt)
    with pytest.raises(KeyboardInterrupt):
        _write(model, a="new")
    assert _read(model) == {"a": "old"}
    assert _names(tmp_path) == ["model"]


def test_names_that_look_like_patterns_are_taken_literally(tmp_path: Path) -> None:
    other = tmp_path / ".modelX.unfinished-host-1-ab"
    other.mkdir()
    _write(tmp_path / "model[X]", a="1")
    _write(tmp_path / "model[X]", a="2")
    assert _read(tmp_path / "model[X]") == {"a": "2"}
    assert other.exists()
