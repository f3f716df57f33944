"""Training by transformers' Trainer: save, resume, reload, gradient checkpointing, bf16, and two processes."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from peft import AutoPeftModelForCausalLM, PeftModel
from safetensors.torch import load_file

from nips_common.testing.tiny_models import LLAMA
from nips_common.testing.torchrun import run_torchrun

sys.path.insert(0, str(Path(__file__).parent))
import training_runs

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")


def adapter(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {name: p.detach().clone() for name, p in model.named_parameters() if "aurora_" in name}


def test_a_run_that_is_resumed_ends_where_an_uninterrupted_one_does(tmp_path: Path) -> None:
    whole = training_runs.trainer(tmp_path / "whole")
    start = adapter(whole.model)
    whole.train()
    losses = [entry["loss"] for entry in whole.state.log_history if "loss" in entry]
    assert losses[-1] < losses[0]
    assert all(not torch.equal(value, start[name]) for name, value in adapter(whole.model).items())

    half = training_runs.trainer(tmp_path / "half", save_strategy="steps", save_steps=2)
    half.train()
    checkpoint = tmp_path / "half" / "checkpoint-2"
    assert (checkpoint / "adapter_model.safetensors").is_file()
    assert not (checkpoint / "model.safetensors").exists()
    resumed = training_runs.trainer(tmp_path / "resumed")
    resumed.train(resume_from_checkpoint=str(checkpoint))
    assert resumed.state.global_step == training_runs.STEPS
    for name, value in adapter(whole.model).items():
        assert torch.equal(value, adapter(resumed.model)[name]), name


def test_what_the_trainer_saves_loads_with_its_base_model(tmp_path: Path) -> None:
    LLAMA.build().save_pretrained(tmp_path / "base")
    run = training_runs.trainer(tmp_path / "run")
    run.model.peft_config["default"].base_model_name_or_path = str(tmp_path / "base")
    run.train()
    run.save_model(tmp_path / "adapter")
    loaded = AutoPeftModelForCausalLM.from_pretrained(tmp_path / "adapter")
    assert (LLAMA.output(loaded) - LLAMA.output(run.model.eval())).abs().max() <= 1e-6


@pytest.mark.parametrize(
    "options", [{"gradient_checkpointing": True}, {"bf16": True}], ids=lambda options: next(iter(options))
)
def test_trainer_options_leave_the_result_close(options: dict[str, bool], tmp_path: Path) -> None:
    plain = training_runs.trainer(tmp_path / "plain", learning_rate=1e-3)
    other = training_runs.trainer(tmp_path / "other", learning_rate=1e-3, **options)
    for run in (plain, other):
        run.train()
    losses = [[entry["loss"] for entry in run.state.log_history if "loss" in entry] for run in (plain, other)]
    assert losses[1] == pytest.approx(losses[0], rel=1e-5 if "gradient_checkpointing" in options else 1e-2)


def test_gradients_accumulate_to_those_of_the_whole_batch(tmp_path: Path) -> None:
    whole = training_runs.trainer(tmp_path / "whole", 8, training_runs.model(init_weights=False))
    parts = training_runs.trainer(
        tmp_path / "parts", 4, training_runs.model(init_weights=False), gradient_accumulation_steps=2
    )
    for run in (whole, parts):
        run.train()
    for name, value in adapter(whole.model).items():
        torch.testing.assert_close(adapter(parts.model)[name], value, atol=1e-4, rtol=1e-3)


@pytest.mark.slow
def test_two_processes_train_to_the_weights_of_one_with_the_doubled_batch(tmp_path: Path) -> None:
    outputs = run_torchrun(training_runs.__file__, [str(tmp_path), "4"], nproc=2, timeout=300)
    assert all("2 processes, distributed" in output.stdout for output in outputs)
    single = training_runs.trainer(tmp_path / "single", 8, training_runs.model(init_weights=False))
    start = adapter(single.model)
    single.train()
    single.model.save_pretrained(tmp_path / "single-adapter")
    two, one = (load_file(tmp_path / name / "adapter_model.safetensors") for name in ("adapter", "single-adapter"))
    assert two.keys() == one.keys()
    for key, value in one.items():
        torch.testing.assert_close(two[key], value, atol=1e-4, rtol=1e-3)
    moved = max(float((value - start[name]).abs().max()) for name, value in adapter(single.model).items())
    assert moved > 0.05
    loaded = PeftModel.from_pretrained(LLAMA.build(), tmp_path / "adapter")
    assert (LLAMA.output(loaded) - LLAMA.output(single.model.eval())).abs().max() <= 1e-3
