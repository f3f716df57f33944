"""A tiny real workspace: a root, nips-common, and what the tools themselves add to it."""

import functools
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))

ROOT_PROJECT = """\
[project]
name = "tiny"
version = "0"
requires-python = ">=3.11"
dependencies = [
  "nips-common",
]

[tool.uv]
package = false

[tool.uv.workspace]
members = ["packages/*"]

[tool.uv.sources]
nips-common = { workspace = true }
"""

COMMON_PROJECT = """\
[project]
name = "nips-common"
version = "0.1.0"
readme = "README.md"
requires-python = ">=3.11"
license = "Apache-2.0"
license-files = ["LICENSE"]
classifiers = ["Development Status :: 3 - Alpha"]

[dependency-groups]
test = []

[build-system]
requires = ["uv_build>=0.9,<0.14"]
build-backend = "uv_build"
"""

FILES = {
    "pyproject.toml": ROOT_PROJECT,
    "README.md": "| nips-common | | | What is shared | ready |\n| some-method | M | A paper | A method | planned |\n",
    "CONTRIBUTING.md": "| library | floor |\n|---|---|\n| torch | 2.9 |\n",
    "CITATION.cff": "cff-version: 1.2.0\n",
    "LICENSE": "Licence\n",
    "noxfile.py": "",
    "uv.lock": "",
    "packages/nips-common/pyproject.toml": COMMON_PROJECT,
    "packages/nips-common/README.md": "# nips-common\n\n## Install\n\n## Ten lines that work\n\n```python\n```\n\n"
    "## Modules\n\n## Limits\n",
    "packages/nips-common/CHANGELOG.md": "# Changelog\n\n## 0.1.0 - unreleased\n\n- First version.\n",
    "packages/nips-common/LICENSE": "Licence\n",
    "packages/nips-common/src/nips_common/__init__.py": "from importlib.metadata import version\n\n"
    '__all__ = ["__version__"]\n__version__ = version("nips-common")\n',
    "packages/nips-common/src/nips_common/py.typed": "",
    "packages/nips-common/tests/test_package.py": "",
}


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A workspace that keeps the rules, committed in a git repository of its own."""
    for name, text in FILES.items():
        path = tmp_path / "workspace" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    for who in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{who}_NAME", "A Tester")
        monkeypatch.setenv(f"GIT_{who}_EMAIL", "tester@example.org")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", "/dev/null")
    git(tmp_path / "workspace", "init", "--quiet", "--initial-branch", "main")
    commit(tmp_path / "workspace")
    return tmp_path / "workspace"


def git(root: Path, *arguments: str) -> str:
    """Runs git in the workspace and returns what it says."""
    return subprocess.run(["git", *arguments], cwd=root, check=True, capture_output=True, text=True).stdout.strip()


def commit(root: Path) -> str:
    """Commits everything and returns the commit."""
    git(root, "add", "--all")
    git(root, "commit", "--quiet", "--allow-empty", "--message", "A change")
    return git(root, "rev-parse", "HEAD")


@pytest.fixture
def git_in(root: Path) -> Callable[..., str]:
    """Git in the workspace."""
    return functools.partial(git, root)


@pytest.fixture
def commit_all(root: Path) -> Callable[[], str]:
    """Commits everything in the workspace."""
    return functools.partial(commit, root)
