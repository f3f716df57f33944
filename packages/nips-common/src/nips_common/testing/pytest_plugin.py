"""The pytest plug-in of all packages: the marks ``slow`` and ``assets``, the option ``--slow``, and no network.

It is registered as an entry point, so it is there wherever nips-common is installed.
"""

from __future__ import annotations

import os

import pytest

from nips_common.assets import AssetMissing, find_asset


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--slow``."""
    parser.addoption("--slow", action="store_true", help="run the tests marked slow too")


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests() -> None:
    """Keep Hugging Face libraries offline, before a conftest or a test imports them and they read these variables."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    os.environ["TOKENIZERS_PARALLELISM"] = "false"


def pytest_configure(config: pytest.Config) -> None:
    """Describe the marks."""
    config.addinivalue_line("markers", "slow: several processes, compilers, browsers or killed runs (run with --slow)")
    config.addinivalue_line("markers", "assets(name, ...): needs these fetched assets (see tools/fetch_assets.py)")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skip slow tests unless ``--slow`` is given, and tests whose assets are missing, naming the command.

    Raises:
        pytest.UsageError: A mark ``assets`` that names no asset.
    """
    for item in items:
        if item.get_closest_marker("slow") and not config.getoption("--slow"):
            item.add_marker(pytest.mark.skip(reason="slow: run with --slow"))
        for mark in item.iter_markers("assets"):
            if not mark.args:
                raise pytest.UsageError(f"{item.nodeid}: the mark assets must name what it needs: assets('mnist')")
            try:
                for name in mark.args:
                    find_asset(name)
            except AssetMissing as missing:
                item.add_marker(pytest.mark.skip(reason=str(missing)))
