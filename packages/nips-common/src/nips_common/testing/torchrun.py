"""Runs a program in two processes under torchrun on the CPU (gloo), and gives back what each rank printed."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from nips_common.testing.process import Running

_ENVIRONMENT = {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}  # without a GPU, "auto" devices are CPUs
if sys.platform == "linux":
    _ENVIRONMENT["GLOO_SOCKET_IFNAME"] = "lo"  # a test machine's own name need not resolve


@dataclass(frozen=True)
class RankOutput:
    """What one rank printed."""

    rank: int
    stdout: str
    stderr: str


def run_torchrun(
    program: str | Path,
    args: Sequence[str] = (),
    *,
    nproc: int = 2,
    timeout: float = 120.0,
    env: Mapping[str, str] | None = None,
    cwd: str | Path | None = None,
) -> list[RankOutput]:
    """Run ``program`` under torchrun and return the output of each rank, in the order of the ranks.

    Args:
        program: A module (``"dota_clip.adapt"``) or the path of a script, which ends in ``.py``.
        args: Its arguments.
        nproc: The number of processes.
        timeout: After this many seconds all of them are killed.
        env: Variables on top of this process's and of those that keep the run on the CPU.
        cwd: The working directory.

    Raises:
        AssertionError: A rank failed or the time was over; the message holds what all ranks and torchrun printed.
    """
    target = [str(program)] if str(program).endswith(".py") else ["-m", str(program)]
    with TemporaryDirectory() as logs:
        launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--local-addr", "localhost"]
        options = ["--nproc-per-node", str(nproc), "--redirects", "3", "--log-dir", logs]
        with Running([*launcher, *options, *target, *args], {**_ENVIRONMENT, **(env or {})}, cwd) as running:
            try:
                finished, problem = running.wait(timeout), ""
            except AssertionError as error:
                finished, problem = running.finish(), str(error)
        outputs = [_read(folder) for folder in Path(logs).glob("*/attempt_0/*") if folder.name.isdigit()]
    outputs.sort(key=lambda output: output.rank)
    if problem or finished.returncode != 0 or len(outputs) != nproc:
        told = [
            f"--- rank {out.rank} stdout\n{out.stdout}\n--- rank {out.rank} stderr\n{out.stderr}" for out in outputs
        ]
        raise AssertionError("\n".join([problem or f"torchrun failed: {finished}", *told]))
    return outputs


def _read(folder: Path) -> RankOutput:
    texts = [(folder / f"{name}.log").read_text("utf-8", errors="replace") for name in ("stdout", "stderr")]
    return RankOutput(int(folder.name), *texts)
