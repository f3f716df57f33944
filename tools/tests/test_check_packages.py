"""Every rule of check_packages finds its breach in an otherwise clean workspace."""

import pytest

from check_packages import findings, main
from new_package import register, write_package

METHOD = "packages/some-method"
MODULE = f"{METHOD}/src/some_method/spline.py"


@pytest.fixture
def workspace(root):
    """The tiny workspace with a started package."""
    project = root / "packages/nips-common/pyproject.toml"
    project.write_text(project.read_text().replace("test = []", 'test = ["pytest>=8.3.4"]'))
    write_package("some-method", "A method", root)
    register("some-method", "A method", root)
    return root


def test_a_clean_workspace_has_no_findings(workspace, capsys):
    assert findings(workspace) == []
    assert main(["--root", str(workspace)]) == 0
    assert "every package keeps the rules" in capsys.readouterr().err


def test_all_findings_are_printed_together(workspace, capsys):
    (workspace / METHOD / "LICENSE").write_text("mine")
    (workspace / METHOD / "src/some_method/utils.py").write_text("")
    assert main(["--root", str(workspace)]) == 1
    assert len(capsys.readouterr().err.splitlines()) == 2


NEW_FILES = [
    (MODULE, "from nips_common._private import name\n", "spline.py:1: _private is private to nips-common"),
    (MODULE, "import nips_common\n\ndef f():\n    from nips_common.cli import _run\n", "spline.py:4: _run is private"),
    (MODULE, "from . import cli\n", "spline.py:1: nothing imports the command line"),
    (MODULE, "import some_method.reproduce\n", "spline.py:1: only the command line may import reproduce"),
    (MODULE, "model.cuda()\n", "devices come from nips_common.runtime"),
    (f"{METHOD}/src/some_method/helpers.py", "", "a module is named after its idea"),
    ("packages/nips-common/src/nips_common/big.py", "x = 1\n" * 500, "it must stay under 500"),
    ("packages/nips-common/src/nips_common/a.py", "import some_method\n", "does not require some-method"),
    ("tools/notes.md", "see pypi" + ".org", "tools/notes.md: names pypi"),
]


@pytest.mark.parametrize(("name", "text", "expected"), NEW_FILES)
def test_a_file_that_breaks_a_rule_is_found(workspace, name, text, expected):
    path = workspace / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    (found,) = findings(workspace)
    assert expected in found


EDITS = [
    ("README.md", "## Limits", "## Limitations", "missing ['Limits'], unexpected ['Limitations']"),
    ("README.md", "## Install", "## Cite\n## Install", "in another order"),
    ("README.md", "```python", "```", "holds no ```python block"),
    ("README.md", "# some-method", "# Some method", "must begin with `# some-method`"),
    ("CHANGELOG.md", "0.1.0", "0.2.0", "newest version is 0.2.0, pyproject.toml says 0.1.0"),
    ("pyproject.toml", "pytest>=8.3.4", "pytest", "'pytest' has no lower bound"),
    ("pyproject.toml", "pytest>=8.3.4", "pytest>=8", "pytest has several floors: 8.3.4 in"),
    ("pyproject.toml", 'test = ["pytest>=8.3.4"]', 'test = ["torch>=2.6"]', "2.9 in CONTRIBUTING.md"),
    ("pyproject.toml", "nips-common>=0.1,<0.2", "nips-common>=0.2,<0.3", "must be a range >=,< that holds 0.1.0"),
    ("pyproject.toml", ">=3.11", ">=3.12", "requires-python must be '>=3.11'"),
    ("pyproject.toml", "1 - Planning", "3 - Alpha", "src/some_method/config.py is missing"),
    ("src/some_method/__init__.py", "__all__", "ALL", "__all__ is missing"),
    ("src/some_method/__init__.py", "__all__ =", "def f(): ...\n__all__ =", "defines f"),
    ("src/some_method/__init__.py", 'version("some-method")', '"0.2.0"', "__version__ is '0.2.0'"),
]


@pytest.mark.parametrize(("name", "old", "new", "expected"), EDITS)
def test_an_edit_that_breaks_a_rule_is_found(workspace, name, old, new, expected):
    path = workspace / METHOD / name
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new, 1))
    assert any(expected in found for found in findings(workspace)), findings(workspace)


def test_methods_may_not_require_each_other(workspace):
    write_package("other-method", "Another", workspace)
    register("other-method", "Another", workspace)
    path = workspace / METHOD / "pyproject.toml"
    path.write_text(path.read_text().replace("dependencies = [", 'dependencies = ["other-method>=0.1,<0.2", '))
    (found,) = findings(workspace)
    assert "requires other-method, but methods do not require each other" in found


def add_support_package(root):
    folder = write_package("nips-finetune", "A training script", root)
    register("nips-finetune", "A training script", root)
    for name in ("pyproject.toml", "README.md"):
        path = (root if name == "README.md" else folder) / name
        path.write_text(
            path.read_text().replace("1 - Planning", "3 - Alpha").replace("script | started", "script | ready")
        )
    headings = "\n\n".join(f"## {name}" for name in ("Install", "Ten lines that work", "Modules", "Limits"))
    text = f"# nips-finetune\n\n{headings}\n".replace("work\n", "work\n\n```python\n```\n")
    (folder / "README.md").write_text(text)
    return folder


def test_a_support_package_has_its_own_sections_and_no_command(workspace):
    add_support_package(workspace)
    assert findings(workspace) == []


def test_methods_may_require_a_support_package_and_not_the_other_way_round(workspace):
    folder = add_support_package(workspace)
    path = workspace / METHOD / "pyproject.toml"
    path.write_text(path.read_text().replace("dependencies = [", 'dependencies = ["nips-finetune>=0.1,<0.2", '))
    assert findings(workspace) == []
    path = folder / "pyproject.toml"
    path.write_text(path.read_text().replace("dependencies = [", 'dependencies = ["some-method>=0.1,<0.2", '))
    (found,) = findings(workspace)
    assert "requires some-method, but methods do not require each other" in found


def test_nips_common_requires_no_package(workspace):
    add_support_package(workspace)
    path = workspace / "packages/nips-common/pyproject.toml"
    path.write_text(
        path.read_text().replace('test = ["pytest>=8.3.4"]', 'test = ["nips-finetune>=0.1,<0.2", "pytest>=8.3.4"]')
    )
    (found,) = findings(workspace)
    assert "requires nips-finetune, but nips-common requires no package of the workspace" in found


def test_the_root_must_list_every_package(workspace):
    for name in ("pyproject.toml", "README.md"):
        lines = (workspace / name).read_text().splitlines()
        (workspace / name).write_text("\n".join(line for line in lines if "some-method" not in line))
    assert findings(workspace) == [
        "pyproject.toml: dependencies lack some-method",
        "pyproject.toml: tool.uv.sources lacks some-method = { workspace = true }",
        "README.md: the table must say that some-method is started, got None",
    ]
