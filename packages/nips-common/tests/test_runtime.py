"""Devices, dtypes and seeds on a machine without accelerators; the CUDA answers need one and are marked so."""

import random

import numpy as np
import pytest
import torch

from nips_common.runtime import describe, require, resolve_device, resolve_dtype, seed_everything
from nips_common.testing.bad_input import BadInput, bad_inputs

has_cuda = torch.cuda.is_available()
on_cuda = pytest.mark.skipif(not has_cuda, reason="needs a CUDA device")
without_cuda = pytest.mark.skipif(has_cuda, reason="needs a machine without CUDA devices")


def test_the_cpu_is_always_there() -> None:
    assert resolve_device("cpu") == torch.device("cpu")
    assert resolve_device(torch.device("cpu")) == torch.device("cpu")


@pytest.mark.skipif(has_cuda or torch.backends.mps.is_available(), reason="needs a machine with only a CPU")
def test_auto_is_the_cpu_where_there_is_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCAL_RANK", "3")
    assert resolve_device("auto") == torch.device("cpu")


@on_cuda
def test_auto_is_the_cuda_device_of_the_local_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCAL_RANK", str(torch.cuda.device_count()))  # more ranks than devices share them
    assert resolve_device("auto") == resolve_device("cuda") == torch.device("cuda:0")
    assert describe(resolve_device("cuda"), torch.bfloat16).startswith("cuda:0 (")


@on_cuda
def test_auto_is_bfloat16_on_cuda_devices_that_compute_in_it() -> None:
    expected = torch.bfloat16 if torch.cuda.get_device_capability() >= (8, 0) else torch.float32
    assert resolve_dtype("auto", "cuda") == expected


def test_auto_is_float32_on_the_cpu() -> None:
    assert resolve_dtype("auto", "cpu") == torch.float32


@pytest.mark.parametrize("name", ["float32", "bfloat16", "float16", "float64"])
def test_a_dtype_is_named_as_torch_names_it(name: str) -> None:
    assert resolve_dtype(name) == getattr(torch, name)


@without_cuda
@bad_inputs(
    [
        BadInput("no CUDA", lambda: resolve_device("cuda"), ("one of auto, ", "cpu", torch.__version__, "got 'cuda'")),
        BadInput("no second CUDA", lambda: resolve_device("cuda:1"), ("one of auto, ", "cpu", "got 'cuda:1'")),
        BadInput("dtype for no CUDA", lambda: resolve_dtype("auto", "cuda"), ("cpu", "got 'cuda'")),
    ]
)
def test_a_missing_device_is_refused_with_those_that_are_there(case: BadInput) -> None:
    case.check()


@bad_inputs(
    [
        BadInput("unknown device", lambda: resolve_device("gpu"), ("one of auto, ", "cpu", "got 'gpu'")),
        BadInput("no device", lambda: resolve_device(""), ("one of auto, ", "cpu", "got ''")),
        BadInput(
            "unknown dtype", lambda: resolve_dtype("fp16"), ("auto, float32, bfloat16, float16, float64", "'fp16'")
        ),
        BadInput("integers", lambda: resolve_dtype("int64"), ("float32", "'int64'")),
        BadInput("negative seed", lambda: seed_everything(-1), ("between 0 and 2**32 - 1", "-1")),
        BadInput("large seed", lambda: seed_everything(2**32), ("between 0 and 2**32 - 1", "4294967296")),
        BadInput(
            "missing extra",
            lambda: require("no_such_module.sub", "nips-common[torch]"),
            ("no_such_module is not installed", 'pip install "nips-common[torch]"'),
            ImportError,
        ),
    ]
)
def test_bad_input(case: BadInput) -> None:
    case.check()


def test_the_same_seed_gives_the_same_numbers_from_all_generators() -> None:
    def draw(seed: int) -> tuple[float, float, float]:
        seed_everything(seed)
        return random.random(), float(np.random.rand()), float(torch.rand(()))  # noqa: NPY002 - the generator seeded

    first, again, other = draw(3), draw(3), draw(4)
    assert first == again
    assert all(a != b for a, b in zip(first, other, strict=True))


def test_what_was_picked_is_one_line() -> None:
    assert describe(torch.device("cpu"), torch.float32) == "cpu, float32"
