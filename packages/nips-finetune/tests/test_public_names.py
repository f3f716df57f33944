"""The public names: a change here is a change for the methods that build on them."""

from __future__ import annotations

import dataclasses
import inspect
from pathlib import Path

from transformers import TrainingArguments

import nips_finetune

PACKAGE = Path(__file__).parents[1]


def test_the_public_names_are_these() -> None:
    assert nips_finetune.__all__ == [
        "AdapterArguments",
        "AdapterMethod",
        "Batches",
        "FinetuneArguments",
        "FinetuneTrainer",
        "Job",
        "JobArguments",
        "SavedAdapter",
        "Task",
        "check_new_folder",
        "count_parameters",
        "count_report",
        "find_task",
        "merge_and_save",
        "parse",
        "plan",
        "prepare",
        "read_records",
        "train",
        "train_main",
    ]
    assert all(inspect.getdoc(getattr(nips_finetune, name)) for name in nips_finetune.__all__)


def test_a_method_is_described_by_these_fields() -> None:
    required = dataclasses.MISSING
    assert [(entry.name, entry.default is required) for entry in dataclasses.fields(nips_finetune.AdapterMethod)] == [
        ("name", True),
        ("title", True),
        ("import_name", True),
        ("citation", True),
        ("config_type", True),
        ("adapter_arguments", True),
        ("training_arguments", False),
        ("trainer", False),
    ]


def test_the_flags_are_these_and_say_what_they_are() -> None:
    job = dataclasses.fields(nips_finetune.JobArguments)
    shared = {entry.name for entry in dataclasses.fields(TrainingArguments)}
    training = [entry for entry in dataclasses.fields(nips_finetune.FinetuneArguments) if entry.name not in shared]
    adapter = dataclasses.fields(nips_finetune.AdapterArguments)
    assert [entry.name for entry in job] == [
        *("model", "train_data", "task", "eval_data", "train_split", "eval_split", "data_config", "text_column"),
        *("text_pair_column", "prompt_column", "label_column", "image_column", "regression", "max_length"),
        *("max_train_samples", "max_eval_samples", "dtype"),
    ]
    assert [entry.name for entry in adapter] == [
        *("target_modules", "exclude_modules", "layers_to_transform", "modules_to_save"),
    ]
    assert [entry.name for entry in training] == ["head_learning_rate", "resume", "overwrite", "dry_run"]
    assert all(entry.metadata["help"] for entry in (*job, *adapter, *training))


def test_the_version_is_the_newest_of_the_changelog() -> None:
    assert f"\n## {nips_finetune.__version__} " in (PACKAGE / "CHANGELOG.md").read_text("utf-8")
