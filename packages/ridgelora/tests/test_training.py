"""Training by transformers' Trainer: the ridge-squashing loss, save, resume, reload, bf16, and two processes."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import AutoPeftModelForCausalLM, PeftModel
from safetensors.torch import load_file
from transformers import default_data_collator

from nips_common.testing.tiny_models import LLAMA
from nips_common.testing.torchrun import run_torchrun
from ridgelora import RidgeSquashingTrainer, ridge_squashing_loss

sys.path.insert(0, str(Path(__file__).parent))
import training_runs

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")


def adapter(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {name: p.detach().clone() for name, p in model.named_parameters() if "ridgelora_" in name}


def logged(run: RidgeSquashingTrainer, key: str = "loss") -> list[float]:
    return [entry[key] for entry in run.state.log_history if key in entry]


def batch() -> dict[str, torch.Tensor]:
    return default_data_collator(training_runs.samples(8))


# the ridge-squashing loss


def test_the_loss_is_the_tasks_plus_beta_times_the_norm(tmp_path: Path) -> None:
    gaussian = training_runs.model(init_weights="gaussian")
    task = float(gaussian(**batch()).loss)
    norm = float(ridge_squashing_loss(gaussian))
    assert norm > 0.05
    run = training_runs.trainer(tmp_path, adapted=gaussian, squash={"beta_rs": -0.5})
    assert float(run.compute_loss(gaussian, batch())) == pytest.approx(task - 0.5 * norm, rel=1e-5)
    loss, outputs = run.compute_loss(gaussian, batch(), return_outputs=True)
    assert float(loss) == pytest.approx(task - 0.5 * norm, rel=1e-5)
    assert outputs["logits"].shape == (8, 9, 64)
    plain = training_runs.trainer(tmp_path, adapted=gaussian)
    assert float(plain.compute_loss(gaussian, batch())) == pytest.approx(task, rel=1e-6)


def test_a_negative_beta_makes_the_update_larger_and_a_positive_one_smaller(tmp_path: Path) -> None:
    norms = {}
    for beta in (-0.5, 0.0, 0.5):
        run = training_runs.trainer(tmp_path / str(beta), squash={"beta_rs": beta})
        run.train()
        norms[beta] = float(ridge_squashing_loss(run.model))
        assert len(logged(run, "ridge_squashing_loss")) == (training_runs.STEPS if beta else 0)
    assert norms[-0.5] > norms[0.0] > norms[0.5]


def test_evaluation_reports_the_tasks_loss(tmp_path: Path) -> None:
    gaussian = training_runs.model(init_weights="gaussian")
    run = training_runs.trainer(tmp_path, adapted=gaussian, squash={"beta_rs": -0.5})
    expected = float(gaussian.eval()(**default_data_collator(training_runs.samples()[:8])).loss)
    assert run.evaluate()["eval_loss"] == pytest.approx(expected, rel=1e-5)


def test_it_is_added_in_every_nth_step(tmp_path: Path) -> None:
    run = training_runs.trainer(tmp_path, squash={"beta_rs": -0.1, "rs_every": 3, "rs_max_modules": 2})
    run.train()
    steps = [entry["step"] for entry in run.state.log_history if "ridge_squashing_loss" in entry]
    assert steps == [1, 4]


@pytest.mark.parametrize("beta", [0.0, -0.05])
def test_gradients_accumulate_to_those_of_the_whole_batch(beta: float, tmp_path: Path) -> None:
    """The norm counts once a step, in however many parts its batch comes."""
    runs = []
    for name, size, steps in (("whole", 8, 1), ("parts", 4, 2)):
        gaussian = training_runs.model(init_weights="gaussian")
        options = {"gradient_accumulation_steps": steps, "optim": "sgd", "max_grad_norm": 0.0}
        runs.append(training_runs.trainer(tmp_path / name, size, gaussian, {"beta_rs": beta}, **options))
        runs[-1].train()
    for name, value in adapter(runs[0].model).items():
        torch.testing.assert_close(adapter(runs[1].model)[name], value, atol=1e-5, rtol=1e-4)


def test_the_trainers_weight_decay_leaves_the_ridge_alone(tmp_path: Path) -> None:
    run = training_runs.trainer(tmp_path, weight_decay=0.1)
    optimizer = run.create_optimizer()
    known = {id(parameter): name for name, parameter in run.model.named_parameters()}
    decay = {known[id(p)]: group["weight_decay"] for group in optimizer.param_groups for p in group["params"]}
    assert set(decay) == {name for name, p in run.model.named_parameters() if p.requires_grad}
    assert all((value == 0) == ("sigma" in name or "lambda" in name) for name, value in decay.items())


@pytest.mark.parametrize(
    ("squash", "words"),
    [
        ({"beta_rs": float("nan")}, "beta_rs must be a finite number, got nan"),
        ({"beta_rs": "-0.5"}, "beta_rs must be a finite number, got '-0.5'"),
        ({"rs_every": 0}, "rs_every must be a whole number of at least 1, got 0"),
        ({"rs_max_modules": 0}, "rs_max_modules must be a whole number of at least 1, got 0"),
    ],
    ids=str,
)
def test_settings_out_of_range_are_named(squash: dict[str, Any], words: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=words):
        training_runs.trainer(tmp_path, squash=squash)


# life with the Trainer


def test_a_run_that_is_resumed_ends_where_an_uninterrupted_one_does(tmp_path: Path) -> None:
    squash = {"beta_rs": -0.01, "rs_max_modules": 2}
    whole = training_runs.trainer(tmp_path / "whole", squash=squash)
    start = adapter(whole.model)
    whole.train()
    losses = logged(whole)
    assert losses[-1] < losses[0]
    assert all(not torch.equal(value, start[name]) for name, value in adapter(whole.model).items())

    half = training_runs.trainer(tmp_path / "half", squash=squash, save_strategy="steps", save_steps=2)
    half.train()
    checkpoint = tmp_path / "half" / "checkpoint-2"
    assert (checkpoint / "adapter_model.safetensors").is_file()
    assert not (checkpoint / "model.safetensors").exists()
    resumed = training_runs.trainer(tmp_path / "resumed", squash=squash)
    resumed.train(resume_from_checkpoint=str(checkpoint))
    assert resumed.state.global_step == training_runs.STEPS
    for name, value in adapter(whole.model).items():
        assert torch.equal(value, adapter(resumed.model)[name]), name


def test_what_the_trainer_saves_loads_with_its_base_model(tmp_path: Path) -> None:
    LLAMA.build().save_pretrained(tmp_path / "base")
    run = training_runs.trainer(tmp_path / "run", adapted=training_runs.model(init_weights="gaussian_calibrated"))
    run.model.peft_config["default"].base_model_name_or_path = str(tmp_path / "base")
    run.train()
    run.save_model(tmp_path / "adapter")
    loaded = AutoPeftModelForCausalLM.from_pretrained(tmp_path / "adapter")
    assert (LLAMA.output(loaded) - LLAMA.output(run.model.eval())).abs().max() <= 1e-6


@pytest.mark.parametrize(
    "options", [{"gradient_checkpointing": True}, {"bf16": True}], ids=lambda options: next(iter(options))
)
def test_trainer_options_leave_the_result_close(options: dict[str, bool], tmp_path: Path) -> None:
    runs = [
        training_runs.trainer(tmp_path / name, learning_rate=1e-3, squash={"beta_rs": -0.1}, **more)
        for name, more in (("plain", {}), ("other", options))
    ]
    for run in runs:
        run.train()
    near = 1e-5 if "gradient_checkpointing" in options else 1e-2
    assert logged(runs[1]) == pytest.approx(logged(runs[0]), rel=near)


@pytest.mark.slow
def test_two_processes_train_to_the_weights_of_one_with_the_doubled_batch(tmp_path: Path) -> None:
    outputs = run_torchrun(training_runs.__file__, [str(tmp_path), "4"], nproc=2, timeout=300)
    assert all("2 processes, distributed" in output.stdout for output in outputs)
    gaussian = training_runs.model(init_weights="gaussian")
    single = training_runs.trainer(tmp_path / "single", 8, gaussian, {"beta_rs": -0.01})
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
