"""The torchrun runner: two real processes that talk over gloo."""

from pathlib import Path

import pytest

from nips_common.testing.torchrun import run_torchrun

pytestmark = pytest.mark.slow

ADD_RANKS = """
import os, sys
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
total = torch.tensor([dist.get_rank() + 1])
dist.all_reduce(total)
gpus = torch.cuda.device_count()
print("rank", dist.get_rank(), "of", dist.get_world_size(), "total", int(total), sys.argv[1:], gpus)
print(os.environ["SOME"], file=sys.stderr)
if sys.argv[1] == "fail" and dist.get_rank() == 1:
    raise RuntimeError("rank one gives up")
dist.destroy_process_group()
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    (tmp_path / "add_ranks.py").write_text(ADD_RANKS)
    return tmp_path / "add_ranks.py"


def test_two_ranks_run_and_their_output_is_kept_apart(program: Path) -> None:
    outputs = run_torchrun(program, ["--lr", "1"], timeout=90, env={"SOME": "thing"})
    assert [output.rank for output in outputs] == [0, 1]
    for output in outputs:
        assert output.stdout == f"rank {output.rank} of 2 total 3 ['--lr', '1'] 0\n"
        assert "thing" in output.stderr


def test_a_module_runs_by_its_name_in_the_number_of_processes_asked_for(program: Path) -> None:
    outputs = run_torchrun("add_ranks", ["x"], nproc=1, timeout=90, env={"SOME": "", "PYTHONPATH": str(program.parent)})
    assert [output.stdout for output in outputs] == ["rank 0 of 1 total 1 ['x'] 0\n"]


def test_a_failed_rank_fails_the_run_with_the_output_of_all(program: Path) -> None:
    with pytest.raises(AssertionError) as caught:
        run_torchrun(program, ["fail"], timeout=90, env={"SOME": "thing"})
    message = str(caught.value)
    assert "torchrun failed: exit code 1" in message
    assert "rank 0 of 2 total 3" in message
    assert "RuntimeError: rank one gives up" in message


def test_a_run_that_hangs_is_killed_and_its_output_told(tmp_path: Path) -> None:
    (tmp_path / "hang.py").write_text("import time\nprint('started', flush=True)\ntime.sleep(300)\n")
    with pytest.raises(AssertionError, match=r"did not end within 25 s[\s\S]*--- rank 0 stdout\nstarted"):
        run_torchrun(tmp_path / "hang.py", timeout=25)
