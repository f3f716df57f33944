"""Runs of the training script beyond what every method must do: further data, the head, folders, mistakes."""

from __future__ import annotations

import csv
import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import peft
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file
from torch import Tensor
from transformers import AutoModelForCausalLM

from nips_common.testing.bad_input import BadInput, bad_inputs
from nips_finetune import AdapterMethod, FinetuneTrainer, Job, SavedAdapter, parse, plan, prepare, train, train_main
from nips_finetune.checkpoints import last_checkpoint
from nips_finetune.testing.fixtures import query_and_value
from nips_finetune.testing.method_suite import COMMON

sys.path.insert(0, str(Path(__file__).parent))
from lora_program import METHOD, LoraArguments

CLASSIFY = ("--task", "sequence_classification")
BARE = ("--optim", "sgd", "--max_grad_norm", "0", "--warmup_steps", "0", "--lr_scheduler_type", "constant")


def flags(model: Path, data: Path, out: Path, *more: str) -> list[str]:
    return ["--model", str(model), "--train_data", str(data), "--output_dir", str(out), *COMMON, *more]


def make_job(argv: list[str], method: AdapterMethod = METHOD) -> Job:
    return prepare(method, *parse(method, argv))


def trained(out: Path) -> dict[str, Tensor]:
    return load_file(out / "adapter_model.safetensors")


# data


def test_a_regression_of_pairs_is_trained_and_measured(roberta_folder: Path, tmp_path: Path) -> None:
    table = tmp_path / "pairs.tsv"
    with table.open("w", newline="") as file:
        rows = [("the film", word, value) for word, value in (("fine", "1.5"), ("dull", "-1.5"))] * 12
        csv.writer(file, delimiter="\t").writerows([("first", "second", "score"), *rows])
    columns = ("--text_column", "first", "--text_pair_column", "second", "--label_column", "score")
    argv = flags(roberta_folder, table, tmp_path / "out", *CLASSIFY, *columns, "--regression", "true")
    more = ("--eval_data", str(table), "--num_train_epochs", "8", "--learning_rate", "1e-2")
    report = train(make_job([*argv, *more]))
    assert report["eval_pearson"] > 0.9
    assert "eval_accuracy" not in report
    config = json.loads((tmp_path / "out" / "labelled_config.json").read_text())
    assert config["problem_type"] == "regression"
    model = peft.AutoPeftModelForSequenceClassification.from_pretrained(
        tmp_path / "out", num_labels=1, ignore_mismatched_sizes=True
    )
    assert model(torch.tensor([[0, 4]])).logits.shape == (1, 1)


def test_splits_of_one_folder_are_trained_and_evaluated_on(vit_folder: Path, tmp_path: Path) -> None:
    features = datasets.Features({"img": datasets.Image(), "y": datasets.ClassLabel(names=["light", "dark"])})
    pictures = [Image.new("RGB", (16, 16), (level,) * 3) for level in (220, 30)]
    rows = datasets.Dataset.from_dict({"img": pictures * 4, "y": [0, 1] * 4}, features=features)
    datasets.DatasetDict({"train": rows, "validation": rows.select([0, 1, 2])}).save_to_disk(tmp_path / "data")
    more = ("--task", "image_classification", "--image_column", "img", "--label_column", "y")
    more = (*more, "--eval_split", "validation", "--target_modules", *query_and_value(vit_folder))
    report = train(make_job(flags(vit_folder, tmp_path / "data", tmp_path / "out", *more, "--max_steps", "1")))
    assert (report["train_rows"], report["eval_rows"]) == (8, 3)
    labels = json.loads((tmp_path / "out" / "labelled_config.json").read_text())["id2label"]
    assert labels == {"0": "light", "1": "dark"}


def test_only_so_many_rows_are_used(llama_folder: Path, text_jsonl: Path, tmp_path: Path) -> None:
    more = ("--max_train_samples", "9", "--max_eval_samples", "2", "--eval_data", str(text_jsonl))
    job = make_job(flags(llama_folder, text_jsonl, tmp_path / "out", *more, "--num_train_epochs", "1.5"))
    assert job.steps() == {"train_rows": 9, "eval_rows": 2, "rows_a_step": 8, "steps_an_epoch": 2, "steps": 3}


def test_the_last_batch_of_an_epoch_may_be_short_and_accumulation_cut_off(
    llama_folder: Path, text_jsonl: Path, tmp_path: Path
) -> None:
    more = ("--max_train_samples", "20", "--gradient_accumulation_steps", "2", "--num_train_epochs", "2")
    job = make_job(flags(llama_folder, text_jsonl, tmp_path / "out", *more))
    assert job.steps()["steps"] == train(job)["steps"] == 4  # 3 batches an epoch: 2 and 1


def test_a_dry_run_in_half_precision_keeps_the_weights_and_saves_activations(
    vit_folder: Path, image_folder: Path, tmp_path: Path
) -> None:
    targets = ("--target_modules", *query_and_value(vit_folder))
    argv = flags(vit_folder, image_folder, tmp_path / "out", "--task", "image_classification", *targets)
    full, half = (plan(make_job([*argv, *more]))["memory"] for more in ((), ("--bf16", "true")))
    small = plan(make_job([*argv, "--bf16", "true", "--dtype", "bfloat16"]))["memory"]
    assert (
        half["weights_bytes"] == full["weights_bytes"] == 2 * small["weights_bytes"]
    )  # autocast leaves weights as they are
    assert half["trained_bytes"] == full["trained_bytes"] == small["trained_bytes"]
    assert half["activations_bytes"] == small["activations_bytes"]
    assert (
        0.5 * full["activations_bytes"] < half["activations_bytes"] < 0.8 * full["activations_bytes"]
    )  # softmax keeps float32


# the head


def test_the_head_has_its_own_learning_rate(roberta_folder: Path, text_csv: Path, tmp_path: Path) -> None:
    def after_one_step(*more: str) -> dict[str, Tensor]:
        out = tmp_path / "-".join(more)
        argv = flags(roberta_folder, text_csv, out, *CLASSIFY, *BARE, "--max_steps", "1", "--learning_rate", "1e-2")
        train(make_job([*argv, *more]))
        return trained(out)

    still = after_one_step("--head_learning_rate", "1e-30")
    same, slow, fast = (
        after_one_step(*more) for more in ((), ("--head_learning_rate", "0.01"), ("--head_learning_rate", "0.04"))
    )
    for key, start in still.items():
        if "lora_" in key:
            assert torch.equal(slow[key], fast[key])
            assert torch.equal(slow[key], start)
        else:
            assert torch.equal(same[key], slow[key])
            assert float((slow[key] - start).abs().max()) > 0
            torch.testing.assert_close(fast[key] - start, 4 * (slow[key] - start), rtol=1e-3, atol=1e-6)


def test_weight_decay_spares_what_it_spares_without_a_head_rate(
    roberta_folder: Path, text_csv: Path, tmp_path: Path
) -> None:
    argv = flags(roberta_folder, text_csv, tmp_path / "out", *CLASSIFY, "--weight_decay", "0.1")
    job = make_job([*argv, "--learning_rate", "0.01", "--head_learning_rate", "0.02"])
    from nips_finetune.job import adapt
    from nips_finetune.pretrained import load_model

    model = adapt(job, load_model(job.task.auto_class, job.arguments.model, job.config))
    trainer = FinetuneTrainer(model=model, args=job.training, data_collator=job.collator)
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    found = {
        names[id(parameter)]: (group["lr"], group["weight_decay"])
        for group in trainer.create_optimizer().param_groups
        for parameter in group["params"]
    }
    assert set(found) == {name for name, parameter in model.named_parameters() if parameter.requires_grad}
    for name, (rate, decay) in found.items():
        assert rate == (0.02 if ".modules_to_save." in name else 0.01), name
        assert decay == (0.0 if name.endswith("bias") else 0.1), name


class LoudTrainer(FinetuneTrainer):
    """A method's trainer: a loss twice as large, and no weight decay anywhere."""

    def compute_loss(self, *args: Any, **kwargs: Any) -> Any:
        loss = super().compute_loss(*args, **kwargs)
        return (2 * loss[0], *loss[1:]) if isinstance(loss, tuple) else 2 * loss

    def get_decay_parameter_names(self, model: Any) -> list[str]:
        return []


def test_a_method_may_bring_its_own_trainer(llama_folder: Path, text_jsonl: Path, tmp_path: Path) -> None:
    loud = AdapterMethod(
        "loud", "Loud", "peft", "none", METHOD.config_type, LoraArguments, METHOD.training_arguments, LoudTrainer
    )
    losses = [
        train(make_job(flags(llama_folder, text_jsonl, tmp_path / method.name, "--max_steps", "1"), method))[
            "train_loss"
        ]
        for method in (METHOD, loud)
    ]
    assert losses[1] == pytest.approx(2 * losses[0], rel=1e-5)


def test_a_new_head_is_told_once_and_saved_once(
    roberta_folder: Path, text_csv: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    out = tmp_path / "out"
    argv = flags(roberta_folder, text_csv, out, *CLASSIFY, "--max_steps", "1", "--save_strategy", "steps")
    told = lambda: [record for record in caplog.records if "new, random weights" in record.message]
    train(make_job([*argv, "--save_steps", "1"]))
    assert len(told()) == 1
    names = json.loads((out / "adapter_config.json").read_text())["modules_to_save"]
    assert names == ["classifier", "score"]  # peft adds the usual names
    caplog.clear()
    train(make_job([*argv, "--save_steps", "1", "--max_steps", "2", "--resume"]))
    SavedAdapter.read(METHOD, out).load(torch.device("cpu"), torch.float32)
    assert not told()


# folders


@pytest.fixture
def run_folder(llama_folder: Path, text_jsonl: Path, tmp_path: Path) -> Path:
    """The folder of a run of two steps with a checkpoint after each."""
    more = ("--max_steps", "2", "--save_strategy", "steps", "--save_steps", "1")
    train(make_job(flags(llama_folder, text_jsonl, tmp_path / "run", *more)))
    return tmp_path / "run"


def test_a_folder_with_a_run_is_refused_unless_it_may_be_lost(
    run_folder: Path, llama_folder: Path, text_jsonl: Path
) -> None:
    before = {file: file.stat().st_mtime_ns for file in run_folder.rglob("*")}
    again = flags(llama_folder, text_jsonl, run_folder, "--max_steps", "1", "--r", "2")
    for more in ([], ["--dry_run"]):
        with pytest.raises(SystemExit) as stopped:
            train_main(METHOD, [*again, *more])
        assert stopped.value.code == 2
    assert {file: file.stat().st_mtime_ns for file in run_folder.rglob("*")} == before
    assert train(make_job([*again, "--overwrite"]))["steps"] == 1
    assert not list(run_folder.glob("checkpoint-*"))
    assert json.loads((run_folder / "adapter_config.json").read_text())["r"] == 2


def test_only_the_same_run_is_resumed(run_folder: Path, llama_folder: Path, text_jsonl: Path) -> None:
    other = flags(llama_folder, text_jsonl, run_folder, "--max_steps", "3", "--r", "2", "--resume")
    with pytest.raises(
        ValueError, match=r"training\.json is of another run, which differs in adapter\.r \(4, now 2\);"
    ):
        train(make_job(other))
    faster = flags(llama_folder, text_jsonl, run_folder, "--max_steps", "3", "--weight_decay", "0.5", "--resume")
    with pytest.raises(ValueError, match=r"weight_decay \(0\.0, now 0\.5\); .* another --output_dir, or .*--overwrite"):
        train(make_job(faster))
    longer = train(make_job(flags(llama_folder, text_jsonl, run_folder, "--max_steps", "3", "--resume")))
    assert (longer["resumed_from"], longer["steps"]) == ("checkpoint-2", 3)


def test_resuming_where_there_is_nothing_yet_starts(llama_folder: Path, text_jsonl: Path, tmp_path: Path) -> None:
    report = train(make_job(flags(llama_folder, text_jsonl, tmp_path / "new", "--max_steps", "1", "--resume")))
    assert (report["resumed_from"], report["steps"]) == (None, 1)


def test_a_checkpoint_can_be_named(run_folder: Path, llama_folder: Path, text_jsonl: Path, tmp_path: Path) -> None:
    chosen = str(run_folder / "checkpoint-1")
    argv = flags(llama_folder, text_jsonl, tmp_path / "next", "--max_steps", "2", "--resume_from_checkpoint")
    report = train(make_job([*argv, chosen]))
    assert (report["resumed_from"], report["steps"]) == ("checkpoint-1", 2)
    assert all(torch.equal(value, trained(run_folder)[key]) for key, value in trained(tmp_path / "next").items())
    with pytest.raises(ValueError, match=r"no whole checkpoint \(trainer_state.*; --resume finds the last one"):
        train(make_job([*argv, str(run_folder / "checkpoint-9")]))


def test_a_finished_run_is_left_as_it_is_and_tells_its_metrics(
    run_folder: Path,
    llama_folder: Path,
    text_jsonl: Path,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    before = {file: (file.stat().st_mtime_ns, file.is_dir() or file.read_bytes()) for file in run_folder.rglob("*")}
    train_main(METHOD, flags(llama_folder, text_jsonl, run_folder, "--max_steps", "2", "--resume"))
    assert json.loads(capsys.readouterr().out) == json.loads((run_folder / "metrics.json").read_text())
    assert [record.message for record in caplog.records if record.name.startswith("nips_finetune")] == [
        f"{run_folder} holds the finished run, 2 of 2 steps: nothing to do"
    ]
    now = {file: (file.stat().st_mtime_ns, file.is_dir() or file.read_bytes()) for file in run_folder.rglob("*")}
    assert now == before


def test_a_run_killed_behind_its_last_step_is_saved_without_another_step(
    run_folder: Path, llama_folder: Path, text_jsonl: Path
) -> None:
    expected, measured = trained(run_folder), json.loads((run_folder / "metrics.json").read_text())
    (run_folder / "metrics.json").unlink()
    (run_folder / "adapter_model.safetensors").unlink()
    argv = flags(llama_folder, text_jsonl, run_folder, "--max_steps", "2", "--resume")
    report = train(make_job(argv))
    assert (report["resumed_from"], report["steps"]) == ("checkpoint-2", 2)
    assert report["parameters"] == measured["parameters"]
    assert all(torch.equal(value, trained(run_folder)[key]) for key, value in expected.items())
    assert json.loads((run_folder / "metrics.json").read_text()) == report


def test_a_run_that_is_overwritten_does_not_pass_for_finished(
    run_folder: Path, llama_folder: Path, text_jsonl: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(Exception):
        pass

    def kill(*args: Any, **kwargs: Any) -> None:
        raise Killed

    argv = flags(llama_folder, text_jsonl, run_folder, "--max_steps", "1")
    with monkeypatch.context() as patch:
        patch.setattr(FinetuneTrainer, "train", kill)
        with pytest.raises(Killed):
            train(make_job([*argv, "--overwrite"]))
    report = train(make_job([*argv, "--resume"]))
    assert (report["resumed_from"], report["steps"]) == (None, 1)


PARTS = ("trainer_state.json", "adapter_model.safetensors", "optimizer.pt", "scheduler.pt", "rng_state.pth")


@pytest.mark.parametrize("part", PARTS)
def test_a_checkpoint_with_a_part_missing_or_cut_short_is_passed_over(
    part: str, run_folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert last_checkpoint(run_folder) == run_folder / "checkpoint-2"
    file = run_folder / "checkpoint-2" / part
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    assert last_checkpoint(run_folder) == run_folder / "checkpoint-1"
    file.unlink()
    assert last_checkpoint(run_folder) == run_folder / "checkpoint-1"
    for record in caplog.records:
        assert str(file.parent) in record.message
        assert f"{part} is missing" in record.message
    assert len(caplog.records) == 2
    (run_folder / "checkpoint-1" / part).unlink()
    (run_folder / "checkpoint-x").mkdir()
    assert last_checkpoint(run_folder) is None


def test_a_run_continues_from_the_last_whole_checkpoint_or_starts_anew_and_says_so(
    run_folder: Path, llama_folder: Path, text_jsonl: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "nips_finetune")
    argv = flags(llama_folder, text_jsonl, run_folder, "--max_steps", "3", "--resume")
    (run_folder / "checkpoint-2" / "optimizer.pt").unlink()
    assert train(make_job(argv))["resumed_from"] == "checkpoint-1"
    assert f"continuing from {run_folder / 'checkpoint-1'}, step 1 of 3" in caplog.messages
    expected = trained(run_folder)
    shutil.rmtree(run_folder / "checkpoint-2")
    (run_folder / "checkpoint-1" / "scheduler.pt").write_bytes(b"PK")
    (run_folder / "metrics.json").unlink()
    assert train(make_job(argv))["resumed_from"] is None
    assert f"{run_folder} has no whole checkpoint: starting at the first step" in caplog.messages
    assert all(torch.equal(value, trained(run_folder)[key]) for key, value in expected.items())


# mistakes


Case = Callable[[dict[str, Path]], object]


def started(model: str, data: str, *more: str, run: Callable[[Job], object] = lambda job: job) -> Case:
    return lambda at: run(make_job(flags(at.get(model, Path(model)), at.get(data, Path(data)), at["out"], *more)))


@bad_inputs(
    [
        BadInput("no such model", started("no/model", "jsonl"), ("'no/model'", "no local folder", "hub id"), OSError),
        BadInput(
            "an empty model folder", started("empty", "jsonl"), ("cannot load the model of", "empty", "config.json")
        ),
        BadInput("no such data", started("llama", "gone.csv"), ("gone.csv: no such file",), FileNotFoundError),
        BadInput(
            "data without the column", started("roberta", "jsonl", *CLASSIFY), ("'label'", "question, text, score")
        ),
        BadInput(
            "a text too long", started("roberta", "csv", *CLASSIFY, "--max_length", "40"), ("at most 32", "got 40")
        ),
        BadInput(
            "an evaluation of nothing",
            started("llama", "jsonl", "--eval_strategy", "epoch"),
            ("--eval_data", "--eval_split"),
        ),
        BadInput(
            "evaluation rows of nothing",
            started("llama", "jsonl", "--max_eval_samples", "3"),
            ("--max_eval_samples needs --eval_data or --eval_split",),
        ),
        BadInput(
            "a split to evaluate on that a file cannot have",
            started("llama", "jsonl", "--eval_split", "validation"),
            ("train.jsonl has no splits, so no split 'validation'", "--eval_data"),
        ),
        BadInput(
            "other classes to evaluate on",
            lambda at: started("roberta", "csv", *CLASSIFY, "--eval_data", str(at["other"]))(at),
            ("other.csv, row 1", "class 'ugly' is not one of bad, good"),
        ),
        BadInput(
            "targets that are not there",
            started("llama", "jsonl", "--target_modules", "no_proj", run=train),
            ("target_modules ['no_proj']", "q_proj", "down_proj"),
        ),
        BadInput(
            "targets that are not there in a dry run",
            started("llama", "jsonl", "--target_modules", "no_proj", "--dry_run", run=plan),
            ("target_modules ['no_proj']", "q_proj"),
        ),
        BadInput(
            "a target that is not there beside one that is",
            started("llama", "jsonl", "--target_modules", "q_proj", "vproj", run=train),
            ("target_modules ['q_proj', 'vproj']", "no module ends in 'vproj'", "linear layers end in q_proj, k_proj"),
        ),
        BadInput(
            "a target that is not there beside one that is in a dry run",
            started("llama", "jsonl", "--target_modules", "q_proj", "vproj", "--dry_run", run=plan),
            ("no module ends in 'vproj'", "v_proj"),
        ),
        BadInput(
            "an exclusion of what is not there",
            started("llama", "jsonl", "--exclude_modules", "lmhead", run=train),
            ("exclude_modules ['lmhead']", "mlp", "lm_head"),
        ),
        BadInput(
            "a module to save that is not there",
            started("llama", "jsonl", "--modules_to_save", "lm_head", "score", run=train),
            ("modules_to_save ['lm_head', 'score']", "no module ends in 'score'", "embed_tokens"),
        ),
        BadInput(
            "an encoder as a language model",
            started("roberta", "jsonl"),
            ("is an encoder (roberta)", "--task sequence_classification"),
        ),
        BadInput(
            "fractions as classes",
            started("roberta", "fractions", *CLASSIFY),
            ("fractions.csv: column 'label'", "0.5", "--regression true"),
        ),
        BadInput(
            "a broken image",
            started("vit", "pictures", "--task", "image_classification"),
            ("row 2", "broken.png' is no readable image"),
        ),
        BadInput(
            "a language model without its head",
            started("headless", "jsonl", run=train),
            ("headless has no weights for lm_head.weight", "--modules_to_save"),
        ),
        BadInput(
            "a model of another kind",
            started("vit", "jsonl", run=train),
            ("tokenizer", "vit"),
        ),
        BadInput("an encoder to continue texts", started("vit2", "jsonl", run=train), ("vit", "AutoModelForCausalLM")),
        BadInput("weights of another model", started("damaged", "jsonl", run=train), ("damaged", "LlamaForCausalLM")),
        BadInput(
            "a file for a folder",
            lambda at: train(make_job(flags(at["llama"], at["jsonl"], at["csv"]))),
            ("--output_dir", "is a file"),
        ),
        BadInput(
            "a hub that cannot be reached",
            started("llama", "jsonl", "--push_to_hub", "true", "--hub_model_id", "me/mine", run=train),
            ("offline",),
            OSError,
        ),
    ]
)
def test_a_mistake_stops_a_run_before_its_first_step(
    case: BadInput,
    llama_folder: Path,
    roberta_folder: Path,
    vit_folder: Path,
    text_jsonl: Path,
    text_csv: Path,
    tmp_path: Path,
) -> None:
    places = {"llama": llama_folder, "roberta": roberta_folder, "vit": vit_folder, "jsonl": text_jsonl, "csv": text_csv}
    places |= {name: tmp_path / name for name in ("empty", "vit2", "damaged", "headless", "pictures", "out")} | {
        "other": tmp_path / "other.csv",
        "fractions": tmp_path / "fractions.csv",
    }
    places["empty"].mkdir()
    places["other"].write_text("text,label\na,ugly\nthe,good\n")
    for name, body, rest in (("vit2", "vit", "llama/tokenizer*"), ("damaged", "llama", "vit/model.safetensors")):
        shutil.copytree(places[body], places[name])
        other, pattern = rest.split("/")
        for file in places[other].glob(pattern):
            shutil.copy(file, places[name])
    places["fractions"].write_text("text,label\na,0.5\nthe,1\nfilm,2.5\n")
    for name in ("dark", "light"):
        (places["pictures"] / name).mkdir(parents=True)
        Image.new("RGB", (8, 8)).save(places["pictures"] / name / "whole.png")
    (places["pictures"] / "light" / "broken.png").write_bytes(b"no picture")
    (places["pictures"] / "dark" / "whole.png").replace(places["pictures"] / "dark" / "a.png")
    AutoModelForCausalLM.from_pretrained(llama_folder).model.save_pretrained(places["headless"])
    for file in llama_folder.glob("tokenizer*"):
        shutil.copy(file, places["headless"])
    case.check(places)
    assert not places["out"].exists()
