"""Assets: found where they were fetched to, or the command is named."""

from pathlib import Path

import pytest

from nips_common.assets import AssetMissing, find_asset


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory without assets above it, two levels deep."""
    monkeypatch.delenv("NIPS_ASSETS", raising=False)
    (tmp_path / "project" / "sub").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "project" / "sub")
    return tmp_path


def _fetch(root: Path, name: str) -> Path:
    (root / name).mkdir(parents=True)
    (root / name / "data.txt").write_text("1")
    return root / name


def test_an_asset_is_found_in_the_working_directory_and_above(elsewhere: Path) -> None:
    fetched = _fetch(elsewhere / "project" / ".assets", "mnist")
    assert find_asset("mnist") == fetched
    nearer = _fetch(elsewhere / "project" / "sub" / ".assets", "mnist")
    assert find_asset("mnist") == nearer


def test_the_environment_variable_decides_alone(elsewhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fetched = _fetch(elsewhere / "store", "mnist")
    _fetch(elsewhere / "project" / ".assets", "brown")
    monkeypatch.setenv("NIPS_ASSETS", str(elsewhere / "store"))
    assert find_asset("mnist") == fetched
    with pytest.raises(AssetMissing, match=r"NIPS_ASSETS=.*store; fetch it with"):
        find_asset("brown")


def test_a_missing_asset_names_the_command_and_where_it_was_looked_for(elsewhere: Path) -> None:
    with pytest.raises(FileNotFoundError) as caught:
        find_asset("mnist")
    message = str(caught.value)
    assert "python tools/fetch_assets.py mnist" in message
    assert str(elsewhere / "project" / "sub") in message
    assert "NIPS_ASSETS is not set" in message


def test_an_empty_folder_is_no_asset(elsewhere: Path) -> None:
    (elsewhere / "project" / ".assets" / "mnist").mkdir(parents=True)
    with pytest.raises(AssetMissing):
        find_asset("mnist")
