"""Built archives are looked into."""

import zipfile

import pytest

from check_wheels import findings
from workspace import call, uv


@pytest.fixture
def dist(root, tmp_path):
    """The archives of the tiny workspace."""
    call([uv(), "build", "--quiet", "--all-packages", "--no-sources", "--out-dir", str(tmp_path / "dist")], cwd=root)
    return tmp_path / "dist"


def rewrite(wheel, edit):
    """Writes the wheel anew with `edit(name, text)` for every file; None leaves the file out."""
    with zipfile.ZipFile(wheel) as archive:
        files = {name: archive.read(name).decode() for name in archive.namelist()}
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, text in files.items():
            if (new := edit(name, text)) is not None:
                archive.writestr(name, new)


def test_complete_archives_have_no_findings(root, dist):
    assert findings(dist, root) == []


def test_a_missing_archive_is_named(root, dist):
    next(dist.glob("*.tar.gz")).unlink()
    assert findings(dist, root) == ["nips_common-0.1.0.tar.gz was not built"]


def test_a_missing_marker_of_types_is_named(root, dist):
    rewrite(next(dist.glob("*.whl")), lambda name, text: None if name.endswith("py.typed") else text)
    assert findings(dist, root) == ["nips_common-0.1.0-py3-none-any.whl: nips_common/py.typed is missing"]


def test_a_requirement_by_path_is_named(root, dist):
    line = "Requires-Dist: other @ file:///somewhere\n"
    rewrite(
        next(dist.glob("*.whl")),
        lambda name, text: text.replace("Version: 0.1.0\n", f"Version: 0.1.0\n{line}") if "METADATA" in name else text,
    )
    (found,) = findings(dist, root)
    assert found.endswith("'other @ file:///somewhere' is no plain version range")
