"""The frame of the commands: help, version, logging, and every user's mistake in one line with exit code 2."""

import logging
import os
import pty
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import pytest
import typer

from nips_common.cli import make_app, progress, run, user_errors

PROGRAM = '''
import logging
from pathlib import Path
from nips_common import cli

app = cli.make_app("fit", "nips-common", "Fits things.")

@app.command()
def train(data: Path, steps: int = 3) -> None:
    """Train on DATA."""
    logging.getLogger("nips_common.fit").info("begins")
    print(len(data.read_text()), steps)

@app.command()
def check() -> None:
    """Check."""
    raise RuntimeError("our fault")

cli.run(app)
'''


def _app() -> typer.Typer:
    app = make_app("fit", "nips-common", "Fits things.")

    @app.command()
    def train(
        data: Path,
        steps: Annotated[int, typer.Option(min=1, help="How many steps.")] = 3,
        name: Annotated[str, typer.Option(help="What to fail with.")] = "",
    ) -> None:
        """Train on DATA."""
        if name == "value":
            raise ValueError("rank must be between 1 and 64,\n  got 0")
        if name == "empty":
            raise ValueError
        if name == "import":
            raise ImportError('torch is not installed: pip install "nips-common[torch]"')
        if name == "exit":
            raise typer.Exit(3)
        if name == "interrupt":
            raise KeyboardInterrupt
        if name == "option":
            raise typer.BadParameter("no such name")
        print(len(data.read_text()) * steps)

    @app.command()
    def other() -> None:
        """Do something else."""
        logging.getLogger("nips_common.somewhere").debug("details")
        logging.getLogger("nips_common.somewhere").info("news")

    return app


def _run(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as caught:
        run(_app(), args)
    assert isinstance(caught.value.code, int)
    out, err = capsys.readouterr()
    return caught.value.code, out, err


def test_a_command_that_works_exits_with_0(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "data").write_text("abc")
    assert _run(capsys, "train", str(tmp_path / "data"), "--steps", "2") == (0, "6\n", "")


def test_a_mistake_is_one_line_and_exit_code_2_in_a_real_process(tmp_path: Path) -> None:
    (tmp_path / "fit.py").write_text(PROGRAM)

    def call(*args: str, **env: str) -> tuple[int, str, str]:
        command = [sys.executable, str(tmp_path / "fit.py"), *args]
        done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, **env})
        return done.returncode, done.stdout, done.stderr

    assert call("train", str(tmp_path / "fit.py"))[0::2] == (0, "INFO nips_common.fit: begins\n")
    code, out, err = call("--quiet", "train", str(tmp_path / "absent.txt"))
    assert (code, out) == (2, "")
    assert err == f"fit: error: [Errno 2] No such file or directory: '{tmp_path}/absent.txt'\n"
    code, _, err = call("train", str(tmp_path / "absent.txt"), NIPS_TRACEBACK="1")
    assert code != 0
    assert "Traceback (most recent call last)" in err
    code, _, err = call("check")
    assert code == 1
    assert "Traceback (most recent call last)" in err
    assert err.endswith("RuntimeError: our fault\n")


@pytest.mark.parametrize(
    ("args", "code", "line"),
    [
        (["train", "x", "--name", "value"], 2, "fit: error: rank must be between 1 and 64, got 0"),
        (["train", "x", "--name", "empty"], 2, "fit: error: ValueError"),
        (
            ["train", "x", "--name", "import"],
            2,
            'fit: error: torch is not installed: pip install "nips-common[torch]"',
        ),
        (["train", "x", "--name", "option"], 2, "fit: error: Invalid value: no such name (see fit train --help)"),
        (["train", "x", "--name", "exit"], 3, ""),
        (["train", "x", "--name", "interrupt"], 130, ""),
    ],
)
def test_an_error_in_a_command_is_one_line(
    capsys: pytest.CaptureFixture[str], args: list[str], code: int, line: str
) -> None:
    assert _run(capsys, *args) == (code, "", f"{line}\n" if line else "")


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["train"], ("Missing argument", "(see fit train --help)")),
        (["train", "x", "--stpes", "2"], ("No such option", "--stpes", "--steps", "(see fit train --help)")),
        (["train", "x", "--steps", "many"], ("--steps", "integer", "(see fit train --help)")),
        (["train", "x", "--steps", "0"], ("--steps", "1", "(see fit train --help)")),
        (["tarin"], ("No such command 'tarin'", "(see fit --help)")),
        (["--loud"], ("No such option", "--loud", "(see fit --help)")),
    ],
)
def test_a_wrong_call_is_one_line_that_names_what_was_wrong(
    capsys: pytest.CaptureFixture[str], args: list[str], words: tuple[str, ...]
) -> None:
    code, out, err = _run(capsys, *args)
    assert (code, out) == (2, "")
    assert err.startswith("fit: error: ")
    assert err.count("\n") == 1
    for word in words:
        assert word in err


def test_help_explains_the_commands_and_their_options(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = _run(capsys, "--help")
    assert code == 0
    for words in ("Fits things.", "train", "Train on DATA.", "other", "--version", "--verbose"):
        assert words in out
    code, out, _ = _run(capsys, "train", "--help")
    assert code == 0
    assert "How many steps." in out
    assert "╭" not in out


def test_without_arguments_the_help_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert _run(capsys) == _run(capsys, "--help")


def test_the_version_is_that_of_the_distribution(capsys: pytest.CaptureFixture[str]) -> None:
    assert _run(capsys, "--version") == (0, f"fit {version('nips-common')}\n", "")


@pytest.mark.parametrize(
    ("option", "expected"), [("--verbose", ["details", "news"]), ("--quiet", []), ("", ["news"]), ("-q", [])]
)
def test_verbose_and_quiet_set_what_is_logged(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture, option: str, expected: list[str]
) -> None:
    logger = logging.getLogger("nips_common")
    before = logger.level
    assert _run(capsys, *([option] if option else []), "other")[0] == 0
    logger.setLevel(before)
    assert [record.getMessage() for record in caplog.records] == expected


def test_other_errors_keep_their_traceback() -> None:
    with pytest.raises(RuntimeError, match="our fault"), user_errors("fit"):
        raise RuntimeError("our fault")


def test_progress_is_silent_where_stderr_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    assert list(progress(iter("abc"), "letters", total=3)) == ["a", "b", "c"]
    assert capsys.readouterr() == ("", "")


def test_progress_shows_a_bar_on_a_terminal_and_nothing_on_stdout() -> None:
    code = "from nips_common.cli import progress; print(list(progress([1, 2, 3], 'counting')))"
    parent, child = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "80"}
    done = subprocess.run(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=child, text=True, check=True, env=environment
    )
    os.close(child)
    shown = os.read(parent, 100_000).decode()
    os.close(parent)
    assert done.stdout == "[1, 2, 3]\n"
    assert "counting" in shown
    assert "100%" in shown
