"""Flags and files: what is accepted, and how a mistake is told."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from nips_common.testing.bad_input import BadInput, bad_inputs
from nips_finetune import AdapterMethod, FinetuneArguments, parse

sys.path.insert(0, str(Path(__file__).parent))
from lora_program import METHOD, LoraArguments

NEEDED = ["--model", "m", "--train_data", "d.csv", "--output_dir", "o"]
CLASSIFY = ["--task", "sequence_classification"]


def test_what_is_not_given_has_the_scripts_defaults() -> None:
    job, adapter, training = parse(METHOD, NEEDED)
    assert (job.model, job.train_data, job.task, job.dtype) == ("m", "d.csv", "causal_lm", "float32")
    assert isinstance(adapter, LoraArguments)
    assert adapter.r == 4
    assert (training.learning_rate, training.head_learning_rate) == (5e-4, None)
    assert training.report_to == []
    assert (training.push_to_hub, training.resume, training.dry_run) == (False, False, False)
    assert training.remove_unused_columns is False


def test_hyphens_and_underscores_are_the_same() -> None:
    _, _, training = parse(METHOD, [*NEEDED, "--learning-rate", "0.25", "--dry-run"])
    assert (training.learning_rate, training.dry_run) == (0.25, True)


def test_flags_override_the_file_and_no_is_a_word_in_it(tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    file.write_text(
        "model: m\ntrain_data: d.csv\noutput-dir: o\nsave_strategy: no\nlearning_rate: 1e-3\nbf16: true\n"
        "use_cpu: true\ntarget_modules: [q_proj, v_proj]\n"
        "lr_scheduler_kwargs: {min_lr: 1.0e-5}\nmax_length: null\nr: 3\n"
    )
    job, adapter, training = parse(METHOD, [str(file), "--r", "5"])
    assert (job.max_length, adapter.r, adapter.target_modules) == (None, 5, ["q_proj", "v_proj"])
    assert (training.save_strategy, training.learning_rate, training.bf16) == ("no", 1e-3, True)
    assert training.lr_scheduler_kwargs == {"min_lr": 1e-5}


def test_all_linear_is_a_word_and_other_targets_are_a_list() -> None:
    for given, expected in ((["all-linear"], "all-linear"), (["q_proj"], {"q_proj"})):
        job, adapter, _ = parse(METHOD, [*NEEDED, "--target_modules", *given])
        assert adapter.make_config(job.find_task()).target_modules == expected


def test_a_head_joins_the_modules_that_are_trained_in_full() -> None:
    job, adapter, _ = parse(METHOD, [*NEEDED, *CLASSIFY, "--modules_to_save", "norm", "classifier"])
    config = adapter.make_config(job.find_task(), ["classifier"])
    assert config.modules_to_save == ["classifier", "norm"]
    assert config.task_type == "SEQ_CLS"


@dataclass
class RidgeArguments(FinetuneArguments):
    """Flags that a method adds."""

    beta_rs: float = field(default=0.1, metadata={"help": "weight of the loss"})


def test_a_method_may_add_flags_of_training() -> None:
    method = AdapterMethod("m", "M", "peft", "none", METHOD.config_type, LoraArguments, RidgeArguments)
    _, _, training = parse(method, [*NEEDED, "--beta_rs", "0.5", "--learning_rate", "0.1"])
    assert isinstance(training, RidgeArguments)
    assert (training.beta_rs, training.learning_rate) == (0.5, 0.1)


def test_help_lists_every_flag(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        parse(METHOD, ["--help"])
    assert stopped.value.code == 0
    text = capsys.readouterr().out
    assert "plain-lora train [CONFIG.yaml]" in text
    for name in ("--train_data", "--prompt_column", "--lora_alpha", "--head_learning_rate", "--dry_run", "--bf16"):
        assert name in text


def with_file(text: str, name: str = "run.yaml") -> Callable[[Path], object]:
    def call(folder: Path) -> object:
        (folder / name).write_text(text)
        return parse(METHOD, [str(folder / name)])

    return call


def with_flags(*flags: str) -> Callable[[Path], object]:
    return lambda _: parse(METHOD, [*NEEDED, *flags])


@bad_inputs(
    [
        BadInput("nothing given", lambda _: parse(METHOD, []), ("required", "--model", "--train_data", "--help")),
        BadInput(
            "a misspelt flag", with_flags("--learning_rat", "1"), ("--learning_rat", "did you mean --learning_rate?")
        ),
        BadInput("hyphens misspelt", with_flags("--eval-dta=x"), ("--eval-dta=x", "did you mean --eval_data?")),
        BadInput("an unknown flag", with_flags("--zzzzzz"), ("unknown arguments: --zzzzzz", "--help")),
        BadInput("a word for a number", with_flags("--r", "two"), ("--r", "invalid int value: 'two'")),
        BadInput("an unknown task", with_flags("--task", "poetry"), ("--task", "'poetry'", "image_classification")),
        BadInput("no learning rate", with_flags("--learning_rate", "0"), ("--learning_rate", "above 0", "got 0")),
        BadInput("an infinite rate", with_flags("--learning_rate", "inf"), ("finite", "got inf")),
        BadInput(
            "a negative head rate", with_flags(*CLASSIFY, "--head_learning_rate", "-1"), ("--head_learning_rate", "-1")
        ),
        BadInput("a head rate without head", with_flags("--head_learning_rate", "1"), ("no head", "causal_lm")),
        BadInput(
            "no batch", with_flags("--per_device_train_batch_size", "0"), ("--per_device_train_batch_size", "got 0")
        ),
        BadInput("no accumulation", with_flags("--gradient_accumulation_steps", "0"), ("at least 1, got 0",)),
        BadInput("no epochs", with_flags("--num_train_epochs", "-1"), ("--num_train_epochs", "above 0", "-1")),
        BadInput("too short", with_flags("--max_length", "1"), ("--max_length", "at least 2, got 1")),
        BadInput("no rows", with_flags("--max_train_samples", "0"), ("--max_train_samples", "at least 1, got 0")),
        BadInput("regression of language", with_flags("--regression"), ("--regression", "sequence_classification")),
        BadInput(
            "a column of another task",
            with_flags("--label_column", "y"),
            ("--label_column", "causal_lm", "--text_column"),
        ),
        BadInput("half precision without autocast", with_flags("--dtype", "bfloat16"), ("--dtype bfloat16", "--bf16")),
        BadInput("no folder", lambda _: parse(METHOD, [*NEEDED[:4], "--output_dir", ""]), ("--output_dir",)),
        BadInput(
            "a misspelt name in a file",
            with_file("learning_rte: 1"),
            ("run.yaml", "learning_rte", "did you mean learning_rate?"),
        ),
        BadInput("an unknown name in a file", with_file("qqq: 1"), ("run.yaml", "unknown name 'qqq'")),
        BadInput("a file that is a list", with_file("- a"), ("run.yaml", "names with values", "list")),
        BadInput("a file that is no YAML", with_file("a: ["), ("run.yaml", "cannot be read")),
        BadInput("a file that is no JSON", with_file("{", "run.json"), ("run.json", "cannot be read")),
        BadInput(
            "no such file",
            lambda folder: parse(METHOD, [str(folder / "no.yaml")]),
            ("no.yaml: no such file",),
            FileNotFoundError,
        ),
    ]
)
def test_a_mistake_is_told_in_one_line(case: BadInput, tmp_path: Path) -> None:
    case.check(tmp_path)
