"""Kill and resume: real processes that are killed in the middle and carry on."""

import os
import sys
import time
from pathlib import Path

import pytest

from nips_common.testing.interrupt import kill_and_resume, kill_when
from nips_common.testing.process import Running

COUNT_TO_5 = """
import sys, time
from pathlib import Path
state = Path(sys.argv[1])
start = int(state.read_text() or 0) if state.exists() else 0
print("from", start, flush=True)
for number in range(start + 1, 6):
    state.write_text(str(number))
    time.sleep(float(sys.argv[2]))
print("done", flush=True)
"""


def _count(state: Path, pause: float) -> list[str]:
    return [sys.executable, "-c", COUNT_TO_5, str(state), str(pause)]


def test_a_command_is_killed_when_the_condition_holds_and_then_resumed(tmp_path: Path) -> None:
    state = tmp_path / "state"
    killed, resumed = kill_and_resume(
        _count(state, 60),
        lambda: state.exists() and state.read_text() == "1",
        resume=_count(state, 0),
        timeout=30,
    )
    assert (killed.returncode, killed.stdout) == (-9, "from 0\n")
    assert (resumed.returncode, resumed.stdout, resumed.stderr) == (0, "from 1\ndone\n", "")


def test_a_command_is_killed_after_a_delay() -> None:
    start = time.monotonic()
    killed = kill_when([sys.executable, "-c", "import time; time.sleep(60)"], 0.2)
    assert killed.returncode == -9
    assert 0.2 <= time.monotonic() - start < 30


def test_a_command_that_ends_before_the_kill_fails_with_its_output(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=r"ended before it could be killed: exit code 0\n--- stdout\nfrom 0\ndone"):
        kill_when(_count(tmp_path / "state", 0), lambda: False, timeout=30)


def test_a_condition_that_never_holds_fails_with_the_output(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=r"did not hold within 1 s: exit code -9"):
        kill_when(_count(tmp_path / "state", 60), lambda: False, timeout=1)


def test_a_resumed_run_that_fails_is_told_with_its_output(tmp_path: Path) -> None:
    state = tmp_path / "state"
    with pytest.raises(AssertionError, match=r"failed after the kill: exit code 3\n--- stdout\n\n--- stderr\nno state"):
        kill_and_resume(
            _count(state, 60),
            state.exists,
            resume=[sys.executable, "-c", "import sys; print('no state', file=sys.stderr); sys.exit(3)"],
            timeout=30,
        )


def test_variables_and_the_working_directory_are_passed_on(tmp_path: Path) -> None:
    code = "import os, time; print(os.environ['SOME'], os.getcwd(), 'PATH' in os.environ, flush=True); time.sleep(60)"
    killed = kill_when([sys.executable, "-c", code], 1.0, env={"SOME": "thing"}, cwd=tmp_path)
    assert killed.stdout == f"thing {tmp_path} True\n"


@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux's process table")
def test_what_the_command_started_is_killed_with_it(tmp_path: Path) -> None:
    code = "import subprocess, sys, time; p = subprocess.Popen(['sleep', '60'], start_new_session=True); "
    code += f"open({str(tmp_path / 'pid')!r}, 'w').write(str(p.pid)); time.sleep(60)"
    pid_file = tmp_path / "pid"
    with Running([sys.executable, "-c", code], None, None):
        while not (pid_file.exists() and pid_file.read_text()):
            time.sleep(0.01)
    child = int(pid_file.read_text())
    for _ in range(200):  # the orphan is a zombie until init collects it
        status = Path(f"/proc/{child}/stat")
        if not status.exists() or status.read_text().rpartition(")")[2].split()[0] == "Z":
            return
        time.sleep(0.01)
    os.kill(child, 9)
    pytest.fail("the child is still alive")
