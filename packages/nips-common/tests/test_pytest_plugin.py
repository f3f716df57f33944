"""The pytest plug-in, in a pytest of its own: slow tests, missing assets, no network."""

import os
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

TESTS = """
import os
import pytest

@pytest.mark.slow
def test_of_several_processes():
    pass

@pytest.mark.assets("mnist")
def test_on_digits():
    pass

def test_offline():
    assert os.environ["HF_HUB_OFFLINE"] == "1"
    assert os.environ["TOKENIZERS_PARALLELISM"] == "false"
"""


@pytest.fixture
def tests(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A folder with TESTS, without assets; the outer run's variables come back after the test."""
    for name, value in {"HF_HUB_OFFLINE": "0", "TOKENIZERS_PARALLELISM": "true"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("NIPS_ASSETS", raising=False)
    pytester.makepyfile(TESTS)
    return pytester


def test_slow_tests_and_missing_assets_are_skipped_with_what_to_do(tests: pytest.Pytester) -> None:
    result = tests.runpytest_inprocess("-rs", "--strict-markers", "-W", "error::pytest.PytestUnknownMarkWarning")
    result.assert_outcomes(passed=1, skipped=2)
    result.stdout.fnmatch_lines(["*slow: run with --slow", "*fetch it with: python tools/fetch_assets.py mnist"])


def test_slow_runs_them_and_a_fetched_asset_is_used(tests: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    asset = tests.path / ".assets" / "mnist"
    asset.mkdir(parents=True)
    (asset / "digits.json").write_text("[]")
    tests.runpytest_inprocess("--slow").assert_outcomes(passed=3)
    assert os.environ["HF_HUB_OFFLINE"] == "1"


def test_a_mark_that_names_no_asset_is_an_error(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("import pytest\n@pytest.mark.assets\ndef test_x(): pass")
    result = pytester.runpytest_inprocess()
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*test_x: the mark assets must name what it needs: assets('mnist')"])


def test_the_options_and_marks_explain_themselves(pytester: pytest.Pytester) -> None:
    pytester.runpytest_inprocess("--help").stdout.fnmatch_lines(["*--slow*run the tests marked slow too"])
    pytester.runpytest_inprocess("--markers").stdout.fnmatch_lines(
        ["@pytest.mark.slow: *", "@pytest.mark.assets(name*"]
    )


def test_these_very_tests_run_offline() -> None:
    assert os.environ["HF_HUB_OFFLINE"] == "1"
    assert os.environ["TOKENIZERS_PARALLELISM"] == "false"
    assert Path(os.environ.get("NIPS_ASSETS", ".")).is_dir()
