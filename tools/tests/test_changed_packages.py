"""What a change affects, in a real git repository."""

import json

import pytest

from changed_packages import main
from new_package import register, write_package


@pytest.fixture
def base(root, commit_all):
    """The commit to compare with: nips-common and two packages, of which `second` requires `first`."""
    project = root / "packages/nips-common/pyproject.toml"
    project.write_text(project.read_text().replace("test = []", 'test = ["pytest>=8.3.4"]'))
    for name in ("first", "second", "third"):
        write_package(name, "A method", root)
        register(name, "A method", root)
    second = root / "packages/second/pyproject.toml"
    second.write_text(second.read_text() + '\n[project.optional-dependencies]\nall = ["first>=0.1,<0.2"]\n')
    return commit_all()


def affected(root, base, capsys):
    assert main(["--base", base, "--root", str(root)]) == 0
    return json.loads(capsys.readouterr().out)


def test_no_change_affects_nothing(root, base, capsys):
    assert affected(root, base, capsys) == []


def test_a_changed_package_affects_itself(root, base, capsys, commit_all):
    (root / "packages/third/README.md").write_text("new")
    commit_all()
    assert affected(root, base, capsys) == ["third"]


def test_dependants_are_affected_too(root, base, capsys, commit_all):
    (root / "packages/first/README.md").write_text("new")
    commit_all()
    assert affected(root, base, capsys) == ["first", "second"]


def test_uncommitted_and_untracked_files_count(root, base, capsys):
    (root / "packages/third/new.py").write_text("")
    assert affected(root, base, capsys) == ["third"]


def test_a_moved_file_affects_both_sides(root, base, capsys, git_in, commit_all):
    git_in("mv", "packages/third/CHANGELOG.md", "packages/second/OLD.md")
    commit_all()
    assert affected(root, base, capsys) == ["second", "third"]


@pytest.mark.parametrize(
    "name", ["packages/nips-common/a.py", "pyproject.toml", "tools/x.py", ".github/workflows/ci.yml"]
)
def test_what_all_packages_share_affects_all(root, base, capsys, name):
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_text("")
    if name == "pyproject.toml":
        (root / name).write_text("[project]\n")
    assert affected(root, base, capsys) == ["first", "nips-common", "second", "third"]


def test_a_removed_package_affects_all(root, base, capsys, git_in):
    git_in("rm", "-r", "--quiet", "packages/third")
    assert affected(root, base, capsys) == ["first", "nips-common", "second"]


def test_changes_on_the_other_branch_do_not_count(root, base, capsys, git_in, commit_all):
    git_in("switch", "--quiet", "--create", "topic")
    (root / "packages/third/README.md").write_text("new")
    commit_all()
    git_in("switch", "--quiet", "main")
    (root / "packages/first/README.md").write_text("new")
    commit_all()
    git_in("switch", "--quiet", "topic")
    assert affected(root, "main", capsys) == ["third"]


def test_without_a_base_everything_is_affected(root, base, capsys):
    assert affected(root, "", capsys) == ["first", "nips-common", "second", "third"]


def test_an_unknown_folder_is_an_error(root, base):
    (root / "packages/stray").mkdir()
    with pytest.raises(ValueError, match=r"packages/stray has no pyproject\.toml"):
        main(["--base", base, "--root", str(root)])


def test_a_stray_file_in_packages_is_an_error(root, base):
    (root / "packages/stray.txt").write_text("")
    with pytest.raises(ValueError, match=r"packages/stray\.txt: packages/ may hold only folders"):
        main(["--base", base, "--root", str(root)])
