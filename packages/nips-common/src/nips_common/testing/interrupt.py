"""Kill and resume: a command is killed in the middle (SIGKILL, nothing is cleaned up) and then run to its end."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from nips_common.testing.process import Finished, Running


def kill_when(
    command: Sequence[str],
    when: Callable[[], bool] | float,
    *,
    timeout: float = 120.0,
    env: Mapping[str, str] | None = None,
    cwd: str | Path | None = None,
) -> Finished:
    """Start ``command`` and kill it, with all that it started, once ``when`` holds or after that many seconds.

    Args:
        command: The program and its arguments.
        when: Asked every 10 ms, for instance ``lambda: checkpoint.exists()``; or a delay in seconds.
        timeout: How many seconds the condition may take to hold.
        env: Variables on top of this process's.
        cwd: The working directory.

    Raises:
        AssertionError: The command ended before it could be killed, or the condition did not hold in time; the message
            holds what the command printed.
    """
    start = time.monotonic()
    holds = when if callable(when) else lambda: time.monotonic() - start >= when
    with Running(command, env, cwd) as running:
        while not holds() and running.process.poll() is None:
            if time.monotonic() - start > timeout:
                running.kill()
                raise AssertionError(f"the condition did not hold within {timeout} s: {running.finish()}")
            time.sleep(0.01)
        running.kill()
        finished = running.finish()
    if finished.returncode != -signal.SIGKILL:
        raise AssertionError(f"{list(command)} ended before it could be killed: {finished}")
    return finished


def kill_and_resume(
    command: Sequence[str],
    when: Callable[[], bool] | float,
    *,
    resume: Sequence[str] | None = None,
    timeout: float = 120.0,
    env: Mapping[str, str] | None = None,
    cwd: str | Path | None = None,
) -> tuple[Finished, Finished]:
    """Kill ``command`` as :func:`kill_when` does, then run ``resume`` (default: the same command) to its end.

    Args:
        command: The program and its arguments.
        when: When to kill; see :func:`kill_when`.
        resume: The command that continues, where it differs.
        timeout: For each of the two runs, in seconds.
        env: Variables on top of this process's.
        cwd: The working directory.

    Returns:
        The killed run and the resumed one.

    Raises:
        AssertionError: The first run could not be killed, or the second failed or took too long; the message holds
            what it printed.
    """
    killed = kill_when(command, when, timeout=timeout, env=env, cwd=cwd)
    with Running(resume or command, env, cwd) as running:
        resumed = running.wait(timeout)
    if resumed.returncode != 0:
        raise AssertionError(f"{list(resume or command)} failed after the kill: {resumed}")
    return killed, resumed
