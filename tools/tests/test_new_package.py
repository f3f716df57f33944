"""A started package keeps the rules and pretends nothing."""

import ast
import subprocess
import sys

import pytest

from check_packages import findings
from new_package import main


@pytest.fixture
def workspace(root):
    """The tiny workspace, whose nips-common names the floor of pytest."""
    project = root / "packages/nips-common/pyproject.toml"
    project.write_text(project.read_text().replace("test = []", 'test = ["pytest>=8.3.4"]'))
    return root


def start(workspace, name, summary="A method"):
    return main([name, "--summary", summary, "--root", str(workspace)])


def test_a_started_package_keeps_the_rules(workspace):
    assert start(workspace, "some-method") == 0
    assert findings(workspace) == []


def test_a_started_package_defines_nothing_but_its_version(workspace):
    start(workspace, "some-method")
    modules = list((workspace / "packages/some-method/src").rglob("*.py"))
    assert [module.name for module in modules] == ["__init__.py"]
    defined = [node for node in ast.walk(ast.parse(modules[0].read_text())) if isinstance(node, ast.FunctionDef)]
    assert defined == []


def test_the_tests_it_writes_pass(workspace, monkeypatch):
    start(workspace, "some-method")
    folder = workspace / "packages/some-method"
    (folder / "src/some_method-0.1.0.dist-info").mkdir()  # what an installer would write
    (folder / "src/some_method-0.1.0.dist-info/METADATA").write_text("Name: some-method\nVersion: 0.1.0\n")
    monkeypatch.setenv("PYTHONPATH", str(folder / "src"))
    done = subprocess.run([sys.executable, "-m", "pytest", "-q", "tests"], cwd=folder, capture_output=True, text=True)
    assert "2 passed" in done.stdout


def test_the_root_files_list_it_in_order(workspace):
    start(workspace, "zeta")
    start(workspace, "some-method")
    start(workspace, "alpha-method")
    text = (workspace / "pyproject.toml").read_text()
    assert '[\n  "alpha-method",\n  "nips-common",\n  "some-method",\n  "zeta",\n]' in text
    sources = text.split("[tool.uv.sources]\n")[1].splitlines()
    assert [line.split()[0] for line in sources] == ["alpha-method", "nips-common", "some-method", "zeta"]
    readme = (workspace / "README.md").read_text()
    assert "| [some-method](packages/some-method/README.md) | M | A paper | A method | started |" in readme
    assert "| [zeta](packages/zeta/README.md) | | | A method | started |" in readme


@pytest.mark.parametrize("name", ["Some-Method", "some_method", "-x", "1x", "a/b"])
def test_a_bad_name_is_refused_before_anything_is_written(workspace, name):
    with pytest.raises(ValueError, match="lower case words joined by hyphens"):
        main(["--summary", "A method", "--root", str(workspace), "--", name])
    assert [path.name for path in (workspace / "packages").iterdir()] == ["nips-common"]


def test_the_summary_of_a_planned_package_is_in_the_table(workspace):
    assert main(["some-method", "--root", str(workspace)]) == 0
    assert 'description = "A method"' in (workspace / "packages/some-method/pyproject.toml").read_text()
    with pytest.raises(ValueError, match="does not plan a package 'other'; say what it is with --summary"):
        main(["other", "--root", str(workspace)])


def test_a_taken_name_is_refused(workspace):
    with pytest.raises(ValueError, match="packages/nips-common exists already"):
        start(workspace, "nips-common")
