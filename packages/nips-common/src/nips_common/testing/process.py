"""A process under test: its output is kept, and it can be killed together with everything that it started."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory


@dataclass(frozen=True)
class Finished:
    """How a process ended: its exit code (negative: the signal that killed it) and what it printed."""

    returncode: int
    stdout: str
    stderr: str

    def __str__(self) -> str:
        return f"exit code {self.returncode}\n--- stdout\n{self.stdout}\n--- stderr\n{self.stderr}"


class Running:
    """A started process, as a context manager: nothing of it is left running behind the block.

    It prints into files, because a full pipe would stop it.

    Args:
        command: The program and its arguments.
        env: Variables on top of this process's.
        cwd: The working directory.
    """

    def __init__(self, command: Sequence[str], env: Mapping[str, str] | None, cwd: str | Path | None) -> None:
        self._folder = TemporaryDirectory()
        self._stdout, self._stderr = Path(self._folder.name, "stdout"), Path(self._folder.name, "stderr")
        with self._stdout.open("wb") as stdout, self._stderr.open("wb") as stderr:
            self.process = subprocess.Popen(  # noqa: S603 - a test's own command
                [str(part) for part in command],
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                env={**os.environ, **(env or {})},
                cwd=cwd,
            )

    def __enter__(self) -> Running:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        self._folder.cleanup()

    def kill(self) -> None:
        """Send SIGKILL to the process and to all that it started, whatever sessions they are in."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGSTOP)  # so that it starts nothing more while its children are listed
            for pid in (*_descendants(self.process.pid), self.process.pid):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        self.process.wait()

    def wait(self, timeout: float) -> Finished:
        """Wait for the end.

        Raises:
            AssertionError: It did not end within ``timeout`` seconds; it is killed, and the message holds its output.
        """
        try:
            self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"{self.process.args!r} did not end within {timeout} s: {self.finish()}") from None
        return self.finish()

    def finish(self) -> Finished:
        """Return the output of the process, which must have ended or been killed."""
        texts = [file.read_text("utf-8", errors="replace") for file in (self._stdout, self._stderr)]
        return Finished(self.process.wait(), *texts)


def _descendants(pid: int) -> Iterator[int]:
    """Yield the process ids below ``pid``, from Linux's process table; nothing on systems without one."""
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            # The parent is the second field behind the command, which stands in brackets and may hold anything.
            if int(entry.read_text("utf-8", errors="replace").rpartition(")")[2].split()[1]) == pid:
                child = int(entry.parent.name)
                yield from _descendants(child)
                yield child
