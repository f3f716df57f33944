import re
from pathlib import Path

import bigram_subnet


def test_the_version_is_the_newest_of_the_changelog():
    changelog = Path(__file__).parents[1].joinpath("CHANGELOG.md").read_text(encoding="utf-8")
    assert re.findall(r"^## (\S+)", changelog, flags=re.MULTILINE)[0] == bigram_subnet.__version__


def test_the_public_names_are_these():
    assert bigram_subnet.__all__ == ["__version__"]
