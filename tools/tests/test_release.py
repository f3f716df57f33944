"""A release edits, checks, builds and tags, or refuses and leaves everything as it was."""

import datetime
import json

import pytest

from release import main


@pytest.fixture
def locked(root, commit_all):
    """The tiny workspace with its lock file, as uv writes it."""
    from workspace import call, uv

    (root / "uv.lock").unlink()
    call([uv(), "lock", "--quiet", "--offline"], cwd=root)
    commit_all()
    return root


def release(root, *arguments):
    return main([*arguments, "--root", str(root)])


def test_a_dry_run_shows_the_edits_and_changes_nothing(locked, capsys, git_in):
    assert release(locked, "nips-common", "0.1.0") == 0
    assert f"+## 0.1.0 - {datetime.datetime.now(tz=datetime.UTC).date()}" in capsys.readouterr().out
    assert git_in("status", "--porcelain") == ""
    assert git_in("tag") == ""


def test_execute_commits_and_tags(locked, git_in):
    assert release(locked, "nips-common", "0.1.1", "--execute") == 0
    assert git_in("status", "--porcelain") == ""
    assert git_in("tag", "--points-at", "HEAD") == "nips-common-v0.1.1"
    assert git_in("diff", "--name-only", "HEAD^").splitlines() == [
        "packages/nips-common/CHANGELOG.md",
        "packages/nips-common/pyproject.toml",
        "uv.lock",
    ]


def test_a_finding_puts_everything_back(locked, git_in, commit_all):
    (locked / "packages/nips-common/LICENSE").write_text("mine")
    before = commit_all()
    with pytest.raises(ValueError, match="1 findings, the first: packages/nips-common/LICENSE differs"):
        release(locked, "nips-common", "0.1.1", "--execute")
    assert git_in("status", "--porcelain") == ""
    assert git_in("rev-parse", "HEAD") == before


@pytest.mark.parametrize(
    ("version", "expected"),
    [("0.0.9", "0.0.9 is not greater"), ("one", "not a version: 'one'")],
)
def test_a_version_that_is_not_greater_is_refused(locked, version, expected):
    with pytest.raises(ValueError, match=expected):
        release(locked, "nips-common", version)


def test_a_released_changelog_is_refused(locked, commit_all):
    release(locked, "nips-common", "0.1.0", "--execute")
    with pytest.raises(ValueError, match="nothing unreleased at its head"):
        release(locked, "nips-common", "0.2.0")


def test_a_dirty_tree_is_refused(locked):
    (locked / "new.txt").write_text("")
    with pytest.raises(ValueError, match="uncommitted changes"):
        release(locked, "nips-common", "0.1.0")


def test_an_existing_tag_is_refused(locked, git_in):
    git_in("tag", "nips-common-v0.1.0")
    with pytest.raises(ValueError, match=r"the tag nips-common-v0\.1\.0 exists already"):
        release(locked, "nips-common", "0.1.0")


def test_ranges_that_would_not_hold_the_new_version_are_named(locked, commit_all):
    from new_package import register, write_package

    project = locked / "packages/nips-common/pyproject.toml"
    project.write_text(project.read_text().replace("test = []", 'test = ["pytest>=8.3.4"]'))
    write_package("some-method", "A method", locked)
    register("some-method", "A method", locked)
    commit_all()
    with pytest.raises(ValueError, match=r"0\.2\.0 is outside the range of some-method: widen it first"):
        release(locked, "nips-common", "0.2.0")


def test_a_tag_is_split_at_its_last_v(locked, capsys):
    release(locked, "nips-common", "0.1.0", "--execute")
    capsys.readouterr()
    assert release(locked, "--tag", "nips-common-v0.1.0") == 0
    expected = {"name": "nips-common", "version": "0.1.0", "notes": "- First version."}
    assert json.loads(capsys.readouterr().out) == expected


@pytest.mark.parametrize(
    ("tag", "expected"),
    [
        ("nips-common", "not a release tag"),
        ("other-v0.1.0", "no package named 'other'"),
        ("nips-common-v0.2.0", r"pyproject\.toml says 0\.1\.0"),
        ("nips-common-v0.1.0", "the changelog begins with '## 0.1.0 - unreleased'"),
    ],
)
def test_a_tag_that_does_not_agree_is_refused(locked, tag, expected):
    with pytest.raises(ValueError, match=expected):
        release(locked, "--tag", tag)
