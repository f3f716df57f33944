"""`ridgelora train`: what every method's training script does, and RidgeLoRA's own flags."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM

from nips_common.testing.bad_input import BadInput, bad_inputs
from nips_finetune import AdapterArguments, FinetuneArguments, find_task, parse, prepare, train
from nips_finetune.testing.method_suite import MethodSuite
from ridgelora import RidgeLoraConfig, ridge_squashing_loss
from ridgelora.arguments import METHOD, RidgeLoraArguments, RidgeTrainingArguments
from ridgelora.train import main

NEEDED = ["--model", "m", "--train_data", "d.csv", "--output_dir", "o"]


class TestRidgeLora(MethodSuite):
    """All that every method must do."""

    method = METHOD
    program = "ridgelora.train"

    def test_the_card_says_that_it_merges_and_what_the_start_did(
        self, llama_folder: Path, text_jsonl: Path, tmp_path: Path
    ) -> None:
        for init, changes in (("exact", False), ("gaussian", True)):
            more = ("--max_steps", "1", "--init_weights", init)
            self.train(self.arguments(llama_folder, text_jsonl, tmp_path / init, *more))
            card = (tmp_path / init / "README.md").read_text()
            assert "merges exactly" in card
            assert ("was not the base model at the first step" in card) == changes
            assert "import ridgelora  #" in card
            assert "OpenReview 0RF80tUWuv" in card
            assert f"| init_weights | {init} |" in card

    def test_the_module_is_a_program(
        self, llama_folder: Path, text_jsonl: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        main(self.arguments(llama_folder, text_jsonl, tmp_path / "out", "--max_steps", "1"))
        assert json.loads(capsys.readouterr().out)["steps"] == 1

    def test_a_negative_beta_grows_the_update_and_a_positive_one_shrinks_it(
        self, llama_folder: Path, text_jsonl: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        norms = {}
        for beta in ("-0.5", "0.5"):
            more = ("--max_steps", "4", "--logging_steps", "1", "--beta_rs", beta, "--rs_every", "2")
            caplog.clear()
            with caplog.at_level("INFO", "nips_finetune"):
                self.train(self.arguments(llama_folder, text_jsonl, tmp_path / beta, *more))
            logged = [entry.args[0] for entry in caplog.records if "ridge_squashing_loss" in entry.getMessage()]
            assert logged == [1, 3]  # the steps that are done then
            base = AutoModelForCausalLM.from_pretrained(llama_folder)
            norms[beta] = float(ridge_squashing_loss(PeftModel.from_pretrained(base, tmp_path / beta)))
        assert norms["-0.5"] > norms["0.5"]

    def test_drawn_layers_are_drawn_again_when_a_run_resumes(
        self, llama_folder: Path, text_jsonl: Path, tmp_path: Path
    ) -> None:
        more = ("--max_steps", "4", "--save_strategy", "steps", "--save_steps", "2")
        more = (*more, "--beta_rs", "-0.1", "--rs_modules", "1", "--ridge_learning_rate", "0.05")
        whole = self.arguments(llama_folder, text_jsonl, tmp_path / "run", *more)
        self.train(whole)
        expected = self.adapter(tmp_path / "run")
        for name in ("adapter_model.safetensors", "checkpoint-4/adapter_model.safetensors"):
            (tmp_path / "run" / name).unlink()
        (tmp_path / "run" / "checkpoint-4" / "trainer_state.json").unlink()
        assert self.train([*whole, "--resume"])["resumed_from"] == "checkpoint-2"
        found = self.adapter(tmp_path / "run")
        assert all(torch.equal(value, found[key]) for key, value in expected.items())

    def test_a_run_with_another_beta_is_not_resumed(self, llama_folder: Path, text_jsonl: Path, tmp_path: Path) -> None:
        argv = self.arguments(llama_folder, text_jsonl, tmp_path / "out", "--max_steps", "1", "--beta_rs", "-0.1")
        self.train(argv)
        with pytest.raises(ValueError, match="beta_rs"):
            self.train([*argv, "--beta_rs", "-0.5", "--resume"])

    def test_the_squashing_loss_of_a_parallel_adapter_is_refused_with_nothing_written(
        self, llama_folder: Path, text_jsonl: Path, tmp_path: Path
    ) -> None:
        more = ("--connection", "parallel", "--beta_rs", "-0.5", "--max_steps", "1")
        with pytest.raises(ValueError, match=r"--beta_rs -0\.5 is for --connection series") as caught:
            self.train(self.arguments(llama_folder, text_jsonl, tmp_path / "out", *more))
        assert "\n" not in str(caught.value)
        assert list(tmp_path.iterdir()) == []

    def test_a_pattern_of_ranks_reaches_the_layers(self, llama_folder: Path, text_jsonl: Path, tmp_path: Path) -> None:
        config = tmp_path / "run.yaml"
        config.write_text("rank_pattern: {v_proj: 3}\nalpha_pattern: {v_proj: 6}\nmax_steps: 1\n")
        self.train([str(config), *self.arguments(llama_folder, text_jsonl, tmp_path / "out")])
        shapes = {
            key.split(".")[-2]: value.shape
            for key, value in self.adapter(tmp_path / "out").items()
            if key.endswith("_A")
        }
        assert shapes == {"q_proj": (8, 32), "v_proj": (3, 32)}


# the optimizer


@pytest.mark.parametrize("head_rate", [None, 0.3])
def test_the_ridge_has_its_own_rate_and_no_decay(
    head_rate: float | None, roberta_folder: Path, text_csv: Path, tmp_path: Path
) -> None:
    seen: dict[str, tuple[float, float]] = {}

    class Trainer(METHOD.trainer):  # type: ignore[name-defined,misc]
        def create_optimizer(self, *args: Any) -> torch.optim.Optimizer:
            made = super().create_optimizer(*args)
            names = {id(parameter): name for name, parameter in self.model.named_parameters()}
            entries = [(names[id(p)], g["lr"], g["weight_decay"]) for g in made.param_groups for p in g["params"]]
            assert len(entries) == len({name for name, *_ in entries})
            assert {name for name, *_ in entries} == {n for n, p in self.model.named_parameters() if p.requires_grad}
            seen.update({name: (rate, decay) for name, rate, decay in entries})
            return made

    method = replace(METHOD, trainer=Trainer)
    argv = ["--model", str(roberta_folder), "--train_data", str(text_csv), "--output_dir", str(tmp_path / "out")]
    argv += ["--task", "sequence_classification", "--max_steps", "1", "--use_cpu", "true", "--weight_decay", "0.25"]
    argv += ["--learning_rate", "0.1", "--ridge_learning_rate", "0.2", "--lr_scheduler_type", "constant"]
    argv += [] if head_rate is None else ["--head_learning_rate", str(head_rate)]
    train(prepare(method, *parse(method, [*argv, "--warmup_steps", "0"])))
    ridge = {value for name, value in seen.items() if "ridgelora_sigma" in name or "ridgelora_lambda" in name}
    factors = {value for name, value in seen.items() if "ridgelora_A" in name or "ridgelora_B" in name}
    head = {rate for name, (rate, _) in seen.items() if "modules_to_save" in name}
    assert (ridge, factors, head) == ({(0.2, 0.0)}, {(0.1, 0.25)}, {head_rate or 0.1})


# flags


def test_every_setting_of_the_config_is_a_flag_and_reaches_it() -> None:
    given = {
        "r": "3",
        "ridgelora_alpha": "7.5",
        "target_modules": "q_proj v_proj",
        "exclude_modules": "lm_head",
        "ridgelora_dropout": "0.25",
        "init_weights": "gaussian_calibrated",
        "noise_mean": "-1.5",
        "noise_std": "0.5",
        "use_rslora": "true",
        "connection": "parallel",
        "bias": "none",
        "fan_in_fan_out": "true",
        "rank_pattern": '{"q_proj":5}',
        "alpha_pattern": '{"v_proj":2.5}',
        "modules_to_save": "lm_head",
        "layers_to_transform": "0 2",
        "layers_pattern": "layers",
    }
    shared = {entry.name for entry in fields(RidgeLoraConfig.__mro__[1])}
    assert set(given) == {entry.name for entry in fields(RidgeLoraArguments)}
    assert set(given) == {entry.name for entry in fields(RidgeLoraConfig)} - shared
    flags = [part for name, values in given.items() for part in (f"--{name}", *values.split())]
    job, adapter, _ = parse(METHOD, [*NEEDED, *flags])
    config = adapter.make_config(job.find_task())
    assert isinstance(config, RidgeLoraConfig)
    assert {name: getattr(config, name) for name in given} == {
        "r": 3,
        "ridgelora_alpha": 7.5,
        "target_modules": {"q_proj", "v_proj"},
        "exclude_modules": {"lm_head"},
        "ridgelora_dropout": 0.25,
        "init_weights": "gaussian_calibrated",
        "noise_mean": -1.5,
        "noise_std": 0.5,
        "use_rslora": True,
        "connection": "parallel",
        "bias": "none",
        "fan_in_fan_out": True,
        "rank_pattern": {"q_proj": 5},
        "alpha_pattern": {"v_proj": 2.5},
        "modules_to_save": ["lm_head"],
        "layers_to_transform": [0, 2],
        "layers_pattern": ["layers"],
    }


def test_the_flags_have_the_defaults_of_the_config() -> None:
    config, flags = RidgeLoraConfig(), RidgeLoraArguments().make_config(find_task("causal_lm"))
    own = {entry.name for entry in fields(RidgeLoraArguments)} - {entry.name for entry in fields(AdapterArguments)}
    assert len(own) == 13
    for name in own:
        assert getattr(flags, name) == getattr(config, name), name


def test_the_training_flags_take_dashes_too() -> None:
    dashed = ["--beta-rs", "-0.5", "--rs-every", "4", "--rs-modules", "2", "--ridge-learning-rate", "1e-3"]
    training = parse(METHOD, [*NEEDED, *dashed])[2]
    assert isinstance(training, RidgeTrainingArguments)
    own = {entry.name for entry in fields(RidgeTrainingArguments)} - {entry.name for entry in fields(FinetuneArguments)}
    found = {name: getattr(training, name) for name in own}
    assert found == {"beta_rs": -0.5, "rs_every": 4, "rs_modules": 2, "ridge_learning_rate": 1e-3}
    plain = parse(METHOD, NEEDED)[2]
    assert {name: getattr(plain, name) for name in own} == {
        "beta_rs": 0.0,
        "rs_every": 1,
        "rs_modules": None,
        "ridge_learning_rate": None,
    }


def flags(*more: str) -> Any:
    return lambda: parse(METHOD, [*NEEDED, *more])


@bad_inputs(
    [
        BadInput("rank 0", flags("--r", "0"), ("r", "at least 1", "0")),
        BadInput("alpha 0", flags("--ridgelora_alpha", "0"), ("ridgelora_alpha", "above 0")),
        BadInput("dropout 1", flags("--ridgelora_dropout", "1"), ("ridgelora_dropout", "[0, 1)")),
        BadInput("an unknown start", flags("--init_weights", "orthogonal"), ("'orthogonal'", "gaussian_calibrated")),
        BadInput("an unknown place", flags("--connection", "before"), ("'before'", "series", "parallel")),
        BadInput("negative noise", flags("--noise_std", "-1"), ("noise_std", "-1")),
        BadInput("no JSON", flags("--rank_pattern", "q_proj=5"), ("--rank_pattern", "JSON", "'q_proj=5'")),
        BadInput("a list of ranks", flags("--rank_pattern", "[5]"), ("--rank_pattern", "'[5]'")),
        BadInput("rank 0 in a pattern", flags("--rank_pattern", '{"q": 0}'), ("rank_pattern['q']", "at least 1")),
        BadInput("beta nan", flags("--beta_rs", "nan"), ("--beta_rs", "finite", "nan")),
        BadInput("every 0th step", flags("--rs_every", "0"), ("--rs_every", "at least 1", "0")),
        BadInput("no layer", flags("--rs_modules", "0"), ("--rs_modules", "at least 1", "0")),
        BadInput("rate 0", flags("--ridge_learning_rate", "0"), ("--ridge_learning_rate", "above 0")),
        BadInput("LoRA's name", flags("--lora_alpha", "8"), ("did you mean --ridgelora_alpha?",)),
    ]
)
def test_a_setting_out_of_range_is_told_in_one_line(case: BadInput) -> None:
    case.check()


def test_without_the_extra_one_line_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "nips_finetune", None)  # Python's own way to say that there is none
    from ridgelora import cli

    for program, name in ((main, "ridgelora train"), (cli.main, "ridgelora")):
        with pytest.raises(SystemExit) as stopped:
            program()
        assert stopped.value.code == 2
        line = f'{name}: error: nips_finetune is not installed: pip install "ridgelora[train]"\n'
        assert capsys.readouterr() == ("", line)


@pytest.mark.slow
def test_importing_the_package_needs_no_training_script() -> None:
    code = "import sys; sys.modules['nips_finetune'] = None; import ridgelora; print(*ridgelora.__all__)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "RidgeLoraConfig" in run.stdout
