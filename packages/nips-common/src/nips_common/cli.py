"""The frame of every command: subcommands, logging, progress bars, and mistakes told in one line with exit code 2."""

import logging
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from typing import Annotated, Any, NoReturn, TypeVar

import typer

T = TypeVar("T")
# Newer typer carries its own copy of click, older typer uses the library: this finds the one in use.
_CommandError: Any = next(base for base in typer.BadParameter.__mro__ if base.__name__ == "ClickException")


def make_app(name: str, distribution: str, help: str) -> typer.Typer:  # noqa: A002 - typer's own word
    """Return a typer app with ``--version`` (of ``distribution``), ``--verbose``, ``--quiet``; :func:`run` runs it."""
    app = typer.Typer(name=name, add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)

    def print_version(wanted: bool) -> None:
        if wanted:
            typer.echo(f"{name} {version(distribution)}")
            raise typer.Exit

    show = typer.Option("--version", help="Print the version.", callback=print_version, is_eager=True)
    amount = typer.Option("--verbose/--quiet", "-v/-q", help="Log details, or warnings only.", show_default=False)

    @app.callback(help=help)
    def options(version: Annotated[bool, show] = False, verbose: Annotated[bool | None, amount] = None) -> None:
        logging.basicConfig(format="%(levelname)s %(name)s: %(message)s")
        level = {True: "DEBUG", None: "INFO", False: "WARNING"}[verbose]
        logging.getLogger(distribution.replace("-", "_")).setLevel(level)

    return app


@contextmanager
def user_errors(name: str) -> Iterator[None]:
    """Tell ValueError, OSError and ImportError in one line and exit with 2; other errors are faults, with a trace."""
    try:
        yield
    except (ValueError, OSError, ImportError) as error:
        if os.environ.get("NIPS_TRACEBACK") == "1":
            raise
        print(f"{name}: error: {' '.join(str(error).split()) or type(error).__name__}", file=sys.stderr)
        raise SystemExit(2) from None


def run(app: typer.Typer, args: Sequence[str] | None = None) -> NoReturn:
    """Run ``app`` on ``args`` (default: the process's) and exit: 0, 130 on Ctrl-C, or as :func:`user_errors` says."""
    name, given = str(app.info.name), list(sys.argv[1:] if args is None else args)
    with user_errors(name):
        try:
            result = typer.main.get_command(app).main(given or ["--help"], name, standalone_mode=False)
        except _CommandError as error:
            command = error.ctx.command_path if getattr(error, "ctx", None) else name
            raise ValueError(f"{error.format_message()} (see {command} --help)") from error
        raise SystemExit(result if type(result) is int else 0)  # typer returns the code of `raise typer.Exit(code)`


def progress(iterable: Iterable[T], description: str, total: int | None = None) -> Iterator[T]:
    """Yield from ``iterable`` behind a bar on stderr (``total`` items); no bar where stderr is not a terminal."""
    if sys.stderr.isatty():
        from rich.console import Console
        from rich.progress import track

        iterable = track(iterable, description=description, total=total, console=Console(stderr=True))
    yield from iterable
