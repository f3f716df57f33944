"""What the training script of every method must do; a package subclasses :class:`MethodSuite` with its method.

The ``conftest.py`` beside the subclass imports the fixtures of :mod:`nips_finetune.testing.fixtures`.
"""

# ruff: noqa: D102 - the names of the tests say what they are about
from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import peft
import pytest
import torch
import transformers
from peft import PeftModel
from safetensors.torch import load_file
from torch import Tensor, nn

from nips_common.testing.interrupt import kill_and_resume
from nips_common.testing.torchrun import run_torchrun
from nips_finetune.dry_run import plan
from nips_finetune.job import Job, prepare
from nips_finetune.method import AdapterMethod
from nips_finetune.parsing import parse
from nips_finetune.saved_adapter import SavedAdapter
from nips_finetune.testing.fixtures import query_and_value
from nips_finetune.train import train

CPU = torch.device("cpu")
COMMON = ("--use_cpu", "true", "--seed", "3", "--per_device_train_batch_size", "8", "--save_strategy", "no")


class MethodSuite:
    """Tests of a method's training script on tiny models.

    Set ``method``; ``flags`` that every run gets; ``program``, the module or script that trains, for the tests in
    processes of their own; ``learning_rate``, with which it learns in some fifty steps of eight rows.
    """

    method: ClassVar[AdapterMethod]
    program: ClassVar[str]
    flags: ClassVar[tuple[str, ...]] = ()
    learning_rate: ClassVar[float] = 2e-2

    def arguments(self, model: Path, data: Path, out: Path, *more: str) -> list[str]:
        """Flags of a run."""
        given = ["--model", str(model), "--train_data", str(data), "--output_dir", str(out)]
        rate = ["--learning_rate", str(self.learning_rate)]
        return [*given, *COMMON, *rate, *self.flags, *more]

    def job(self, argv: Sequence[str]) -> Job:
        """A prepared run."""
        return prepare(self.method, *parse(self.method, argv))

    def train(self, argv: Sequence[str]) -> dict[str, Any]:
        """Train and return the metrics."""
        return train(self.job(argv))

    @staticmethod
    def adapter(out: Path) -> dict[str, Tensor]:
        """The tensors of a trained adapter."""
        tensors: dict[str, Tensor] = load_file(out / "adapter_model.safetensors")
        return tensors

    @staticmethod
    def logits(model: nn.Module, job: Job, rows: Any) -> tuple[Tensor, Tensor]:
        """Logits and labels of a model for all rows."""
        batch = job.collator([rows[index] for index in range(len(rows))])
        labels = batch.pop("labels")
        with torch.no_grad():
            return model.eval()(**batch).logits, labels

    def test_a_language_model_learns_and_loads_back(self, llama_folder: Path, text_jsonl: Path, tmp_path: Path) -> None:
        out = tmp_path / "out"
        more = ("--prompt_column", "question", "--eval_data", str(text_jsonl), "--num_train_epochs", "8")
        argv = self.arguments(llama_folder, text_jsonl, out, *more)
        report = self.train(argv)
        assert report["steps"] == 24
        untrained = self.train(
            [*self.arguments(llama_folder, text_jsonl, tmp_path / "start", *more), "--learning_rate", "1e-12"]
        )
        assert report["eval_loss"] < 0.7 * untrained["eval_loss"]

        model = peft.AutoPeftModelForCausalLM.from_pretrained(out)
        job = self.job(argv)
        logits, labels = self.logits(model, job, job.eval_rows)
        loss = nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten(), ignore_index=-100)
        assert float(loss) == pytest.approx(report["eval_loss"], rel=1e-3)
        assert report["eval_perplexity"] == pytest.approx(torch.tensor(report["eval_loss"]).exp().item(), rel=1e-5)

    def test_a_text_classifier_learns_and_loads_back(
        self, roberta_folder: Path, text_csv: Path, tmp_path: Path
    ) -> None:
        out = tmp_path / "out"
        more = ("--task", "sequence_classification", "--eval_data", str(text_csv), "--num_train_epochs", "8")
        argv = self.arguments(roberta_folder, text_csv, out, *more)
        report = self.train(argv)
        assert report["eval_accuracy"] >= 0.9
        model = peft.AutoPeftModelForSequenceClassification.from_pretrained(
            out, num_labels=2, ignore_mismatched_sizes=True
        )
        job = self.job(argv)
        logits, labels = self.logits(model, job, job.eval_rows)
        assert float((logits.argmax(-1) == labels).float().mean()) == pytest.approx(report["eval_accuracy"])
        assert float(nn.functional.cross_entropy(logits, labels)) == pytest.approx(report["eval_loss"], rel=1e-3)
        assert json.loads((out / "labelled_config.json").read_text())["id2label"] == {"0": "bad", "1": "good"}

    def test_an_image_classifier_learns_and_loads_back(
        self, vit_folder: Path, image_folder: Path, tmp_path: Path
    ) -> None:
        out = tmp_path / "out"
        more = ("--task", "image_classification", "--eval_data", str(image_folder), "--num_train_epochs", "12")
        names = ("--target_modules", *query_and_value(vit_folder))
        argv = self.arguments(vit_folder, image_folder, out, *more, *names)
        report = self.train(argv)
        assert report["eval_accuracy"] >= 0.9
        base = transformers.AutoModelForImageClassification.from_pretrained(
            vit_folder, num_labels=2, ignore_mismatched_sizes=True
        )
        job = self.job(argv)
        for model in (
            PeftModel.from_pretrained(base, out),
            peft.AutoPeftModel.from_pretrained(out, num_labels=2, ignore_mismatched_sizes=True),
        ):
            logits, labels = self.logits(model, job, job.eval_rows)
            assert float(nn.functional.cross_entropy(logits, labels)) == pytest.approx(report["eval_loss"], rel=1e-3)

    def test_what_is_written_beside_the_adapter(self, llama_folder: Path, text_jsonl: Path, tmp_path: Path) -> None:
        out = tmp_path / "out"
        report = self.train(self.arguments(llama_folder, text_jsonl, out, "--max_steps", "2", "--logging_steps", "1"))
        names = {file.name for file in out.iterdir()}
        assert "config.json" not in names  # transformers would look for a whole model beside it
        assert names >= {"adapter_config.json", "adapter_model.safetensors", "labelled_config.json", "tokenizer.json"}
        assert names >= {"metrics.json", "training.json", "loss.png", "README.md"}
        assert not [name for name in names if name.endswith((".bin", ".pt", ".pkl")) or name.startswith(".")]
        text = (out / "metrics.json").read_text()
        assert json.loads(text, parse_constant=_not_json) == report
        assert (out / "loss.png").read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
        card = (out / "README.md").read_text()
        assert f"# {self.method.title} adapter of `{llama_folder.name}`" in card
        assert f"{report['parameters']['adapter']:,} parameters" in card
        assert str(llama_folder.parent) not in card  # a path tells about a machine
        assert (f"import {self.method.import_name}\n" in card.replace("  # ", "\n")) == (
            self.method.import_name != "peft"
        )

    @pytest.mark.parametrize("task", ["causal_lm", "sequence_classification"])
    def test_the_card_and_transformers_load_the_trained_model(
        self, task: str, llama_folder: Path, roberta_folder: Path, text_csv: Path, tmp_path: Path
    ) -> None:
        out = tmp_path / "out"
        model = llama_folder if task == "causal_lm" else roberta_folder
        job = self.job(self.arguments(model, text_csv, out, "--task", task, "--max_steps", "4"))
        train(job)
        code = (out / "README.md").read_text().split("```python\n")[1].split("```")[0]
        names: dict[str, Any] = {}
        exec(code.replace("path/of/this/folder", str(out)), names)  # noqa: S102 - what the card tells to type
        expected, _ = self.logits(SavedAdapter.read(self.method, out).load(CPU, torch.float32), job, job.train_rows)
        labels = {} if task == "causal_lm" else {"id2label": {0: "bad", 1: "good"}, "label2id": {"bad": 0, "good": 1}}
        by_transformers = getattr(transformers, job.task.auto_class).from_pretrained(out, **labels)
        for loaded in (names["model"], by_transformers):
            assert torch.equal(self.logits(loaded, job, job.train_rows)[0], expected)
            if labels:
                assert {key: getattr(loaded.config, key) for key in labels} == labels

    def test_a_dry_run_writes_nothing_and_says_what_the_real_run_has(
        self, roberta_folder: Path, text_csv: Path, tmp_path: Path
    ) -> None:
        more = ("--task", "sequence_classification", "--num_train_epochs", "2", "--gradient_accumulation_steps", "2")
        argv = self.arguments(roberta_folder, text_csv, tmp_path / "out", *more)
        planned = plan(self.job([*argv, "--dry_run"]))
        assert list(tmp_path.iterdir()) == []
        report = self.train(argv)
        same = ("parameters", "train_rows", "rows_a_step", "steps_an_epoch", "steps")
        assert {key: planned[key] for key in same} == {key: report[key] for key in same}
        assert planned["steps"] == 6
        assert planned["memory"]["trained_bytes"] == 16 * report["parameters"]["trainable"]
        assert planned["memory"]["activations_bytes"] > 0

    def test_flags_and_yaml_give_the_same(self, llama_folder: Path, text_jsonl: Path, tmp_path: Path) -> None:
        argv = self.arguments(llama_folder, text_jsonl, tmp_path / "out", "--max_steps", "7")
        assert len(argv) % 2 == 0
        pairs = dict(zip([name.removeprefix("--") for name in argv[::2]], argv[1::2], strict=True))
        file = tmp_path / "run.yaml"
        file.write_text("".join(f"{name}: {value}\n" for name, value in pairs.items() if name != "seed"))
        by_flags, by_file = parse(self.method, argv), parse(self.method, [str(file), "--seed", "3"])
        for flags, entries in zip(by_flags, by_file, strict=True):
            assert vars_of(flags) == vars_of(entries)
        json_file = tmp_path / "run.json"
        json_file.write_text(json.dumps(pairs))
        assert vars_of(parse(self.method, [str(json_file)])[2]) == vars_of(by_flags[2])

    def test_a_resumed_run_ends_bit_for_bit_where_an_uninterrupted_one_does(
        self, roberta_folder: Path, text_csv: Path, tmp_path: Path
    ) -> None:
        more = (
            "--task",
            "sequence_classification",
            "--max_steps",
            "6",
            "--save_strategy",
            "steps",
            "--save_steps",
            "3",
        )
        whole = self.arguments(roberta_folder, text_csv, tmp_path / "whole", *more)
        self.train(whole)
        part = self.arguments(roberta_folder, text_csv, tmp_path / "part", *more)
        self.train(part)
        for name in ("adapter_model.safetensors", "checkpoint-6/adapter_model.safetensors"):
            (tmp_path / "part" / name).unlink()
        (tmp_path / "part" / "checkpoint-6" / "trainer_state.json").write_text("{")  # as a kill leaves it
        report = self.train([*part, "--resume"])
        assert report["resumed_from"] == "checkpoint-3"
        assert report["steps"] == 6
        one, other = self.adapter(tmp_path / "whole"), self.adapter(tmp_path / "part")
        assert one.keys() == other.keys()
        assert all(torch.equal(value, other[key]) for key, value in one.items())

    def test_bf16_stays_close_with_what_trains_in_float32(
        self, llama_folder: Path, text_jsonl: Path, tmp_path: Path
    ) -> None:
        short = ("--max_steps", "4", "--logging_steps", "1")
        plain = self.train(self.arguments(llama_folder, text_jsonl, tmp_path / "plain", *short))
        half = self.train(
            self.arguments(llama_folder, text_jsonl, tmp_path / "half", *short, "--bf16", "true", "--dtype", "bfloat16")
        )
        assert half["train_loss"] == pytest.approx(plain["train_loss"], rel=3e-2)
        assert {value.dtype for value in self.adapter(tmp_path / "half").values()} == {torch.float32}

    @pytest.mark.parametrize(
        "more",
        [
            ("--per_device_train_batch_size", "4", "--gradient_accumulation_steps", "2"),
            ("--gradient_checkpointing", "true"),
        ],
        ids=["accumulation", "checkpointing"],
    )
    def test_saving_memory_leaves_the_result_as_it_is(
        self, more: tuple[str, ...], llama_folder: Path, text_jsonl: Path, tmp_path: Path
    ) -> None:
        short = ("--max_steps", "3", "--prompt_column", "question", "--learning_rate", "1e-3")
        self.train(self.arguments(llama_folder, text_jsonl, tmp_path / "plain", *short))
        self.train(self.arguments(llama_folder, text_jsonl, tmp_path / "less", *short, *more))
        less = self.adapter(tmp_path / "less")
        for key, value in self.adapter(tmp_path / "plain").items():
            torch.testing.assert_close(less[key], value, atol=1e-4, rtol=1e-3)

    @pytest.mark.slow
    def test_a_killed_run_resumes_and_ends_where_an_uninterrupted_one_does(
        self, llama_folder: Path, text_jsonl: Path, tmp_path: Path
    ) -> None:
        more = ("--max_steps", "200", "--save_strategy", "steps", "--save_steps", "20", "--save_total_limit", "2")
        whole, out = tmp_path / "whole", tmp_path / "out"
        self.train(self.arguments(llama_folder, text_jsonl, whole, *more))
        target = [self.program] if self.program.endswith(".py") else ["-m", self.program]
        command = [sys.executable, *target, *self.arguments(llama_folder, text_jsonl, out, *more)]
        reached = lambda: (out / "checkpoint-40" / "trainer_state.json").is_file()
        _, resumed = kill_and_resume(
            command, reached, resume=[*command, "--resume"], timeout=300, env={"OMP_NUM_THREADS": "1"}
        )
        report = json.loads(resumed.stdout)
        assert report["steps"] == 200
        assert report["resumed_from"].startswith("checkpoint-")
        one, other = self.adapter(whole), self.adapter(out)
        assert all(torch.equal(value, other[key]) for key, value in one.items())

    @pytest.mark.slow
    def test_two_processes_train_to_the_weights_of_one_with_the_doubled_batch(
        self, llama_folder: Path, text_jsonl: Path, tmp_path: Path
    ) -> None:
        # one epoch in order, so that both see the same rows in the same steps
        more = ("--max_steps", "3", "--learning_rate", "1e-3", "--prompt_column", "question")
        self.train(self.arguments(llama_folder, text_jsonl, tmp_path / "one", *more))
        argv = self.arguments(llama_folder, text_jsonl, tmp_path / "two", *more, "--per_device_train_batch_size", "4")
        outputs = run_torchrun(self.program, argv, nproc=2, timeout=300)
        report = json.loads(outputs[0].stdout)
        assert report["rows_a_step"] == 8
        assert outputs[1].stdout == ""
        two = self.adapter(tmp_path / "two")
        for key, value in self.adapter(tmp_path / "one").items():
            torch.testing.assert_close(two[key], value, atol=1e-4, rtol=1e-3)


def vars_of(arguments: Any) -> dict[str, Any]:
    """The fields of a dataclass of arguments, without what transformers makes anew every time."""
    return {name: value for name, value in vars(arguments).items() if name not in ("distributed_state", "logging_dir")}


def _not_json(word: str) -> Any:
    raise AssertionError(f"{word} is not JSON")
