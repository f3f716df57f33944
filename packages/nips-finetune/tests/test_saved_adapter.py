"""A trained adapter is found again with its base, task and columns, runs on data, and merges into a plain model."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest
import torch
from peft import IA3Config, LoraConfig
from torch import nn
from transformers import (
    AutoImageProcessor,
    AutoModelForCausalLM,
    AutoModelForImageClassification,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    LlamaConfig,
    LlamaForCausalLM,
)

from nips_common.testing.bad_input import BadInput, bad_inputs
from nips_finetune import SavedAdapter, merge_and_save, parse, prepare, train
from nips_finetune.saved_adapter import Outcome
from nips_finetune.testing.fixtures import query_and_value
from nips_finetune.testing.method_suite import COMMON

sys.path.insert(0, str(Path(__file__).parent))
from lora_program import METHOD

CPU, FLOAT = torch.device("cpu"), torch.float32


def trained(out: Path, model: Path, data: Path, *more: str) -> Path:
    argv = ["--model", str(model), "--train_data", str(data), "--output_dir", str(out), *COMMON, "--target_modules"]
    argv += query_and_value(model)
    train(prepare(METHOD, *parse(METHOD, [*argv, "--max_steps", "4", "--learning_rate", "1e-2", *more])))
    return out


@pytest.fixture(scope="module")
def language(tmp_path_factory: pytest.TempPathFactory, llama_folder: Path, text_jsonl: Path) -> Path:
    out = tmp_path_factory.mktemp("adapters") / "language"
    return trained(out, llama_folder, text_jsonl, "--prompt_column", "question")


@pytest.fixture(scope="module")
def classifier(tmp_path_factory: pytest.TempPathFactory, roberta_folder: Path, text_csv: Path) -> Path:
    out = tmp_path_factory.mktemp("adapters") / "classifier"
    return trained(out, roberta_folder, text_csv, "--task", "sequence_classification", "--max_length", "20")


def test_a_merged_language_model_is_a_plain_one_with_the_same_loss(
    language: Path, text_jsonl: Path, tmp_path: Path
) -> None:
    saved = SavedAdapter.read(METHOD, language)
    batches = saved.batches(str(text_jsonl), saved.columns(), most=5)
    report = merge_and_save(saved, tmp_path / "merged", batches, CPU, FLOAT, about={"policy": "exact"})
    assert (report["rows"], report["policy"], report["adapter"]) == (5, "exact", str(language))
    assert report["loss_after"] == pytest.approx(report["loss_before"], rel=1e-5)
    assert json.loads((tmp_path / "merged" / "merge.json").read_text()) == report
    assert not (tmp_path / "merged" / "adapter_config.json").exists()
    plain = AutoModelForCausalLM.from_pretrained(tmp_path / "merged")
    ids = torch.tensor([[0, 4, 6, 9]])
    with torch.no_grad():
        expected = saved.load(CPU, FLOAT)(input_ids=ids).logits
        assert (plain(input_ids=ids).logits - expected).abs().max() <= 1e-5
        assert (AutoModelForCausalLM.from_pretrained(saved.base)(ids).logits - expected).abs().max() > 1e-3
    assert AutoTokenizer.from_pretrained(tmp_path / "merged")("film")["input_ids"][0] == 0


def test_a_merged_classifier_keeps_head_and_labels(classifier: Path, text_csv: Path, tmp_path: Path) -> None:
    saved = SavedAdapter.read(METHOD, classifier)
    batches = saved.batches(str(text_csv), saved.columns())
    report = merge_and_save(saved, tmp_path / "merged", batches, CPU, FLOAT)
    assert report["relative_output_change"] <= 1e-5
    assert report["same_class"] == 1.0
    plain = AutoModelForSequenceClassification.from_pretrained(tmp_path / "merged")
    assert plain.config.id2label == {0: "bad", 1: "good"}
    after = Outcome.of(plain, batches, saved.task)
    assert Outcome.of(saved.load(CPU, FLOAT), batches, saved.task).change_to(after)["relative_output_change"] <= 1e-5


def test_a_merged_image_classifier_brings_its_image_processor(
    vit_folder: Path, image_folder: Path, tmp_path: Path
) -> None:
    out = trained(tmp_path / "adapter", vit_folder, image_folder, "--task", "image_classification")
    saved = SavedAdapter.read(METHOD, out)
    batches = saved.batches(str(image_folder), saved.columns(), batch_size=5)
    assert len(batches) == 3
    assert [len(batch["pixel_values"]) for batch in batches] == [5, 5, 2]
    report = merge_and_save(saved, tmp_path / "merged", batches, CPU, FLOAT)
    assert report["relative_output_change"] <= 1e-5
    assert AutoModelForImageClassification.from_pretrained(tmp_path / "merged").config.id2label == {
        0: "dark",
        1: "light",
    }
    assert AutoImageProcessor.from_pretrained(tmp_path / "merged").size["height"] == 16


def test_merging_by_other_means_shows_in_the_comparison(classifier: Path, text_csv: Path, tmp_path: Path) -> None:
    def drop(model: nn.Module) -> nn.Module:
        return model.unload()

    saved = SavedAdapter.read(METHOD, classifier)
    batches = saved.batches(str(text_csv), saved.columns(), most=9)
    report = merge_and_save(saved, tmp_path / "merged", batches, CPU, FLOAT, merge=drop)
    assert report["relative_output_change"] > 1e-3
    assert 0 <= report["same_class"] <= 1


def test_without_data_nothing_is_compared(classifier: Path, tmp_path: Path) -> None:
    report = merge_and_save(SavedAdapter.read(METHOD, classifier), tmp_path / "merged", None, CPU, FLOAT)
    assert set(report) == {"adapter", "base", "out"}


def test_the_columns_are_those_of_training_unless_others_are_named(language: Path, classifier: Path) -> None:
    saved = SavedAdapter.read(METHOD, language)
    assert saved.columns().used() == {"text": "text", "prompt": "question"}
    assert saved.columns(text="answer").used() == {"text": "answer", "prompt": "question"}
    assert SavedAdapter.read(METHOD, classifier).columns(text=None).used() == {"text": "text"}
    with pytest.raises(ValueError, match="--image_column does not belong to the task causal_lm"):
        saved.columns(image="picture")


def test_an_adapter_of_other_origin_is_read_with_what_peft_knows(
    language: Path, llama_folder: Path, tmp_path: Path
) -> None:
    for file in language.glob("adapter_*"):
        shutil.copy(file, tmp_path)
    saved = SavedAdapter.read(METHOD, tmp_path)
    assert (saved.task.name, saved.base, saved.record) == ("causal_lm", str(llama_folder), {})
    assert saved.columns().used() == {"text": "text"}
    assert saved.load_processor()("film")["input_ids"][0] == 0
    assert SavedAdapter.read(METHOD, tmp_path, base="elsewhere").base == "elsewhere"


def test_an_empty_folder_may_be_filled_and_a_full_one_not(classifier: Path, tmp_path: Path) -> None:
    saved = SavedAdapter.read(METHOD, classifier)
    (tmp_path / "note").write_text("mine")
    with pytest.raises(ValueError, match=r"--out .* must be a new or empty folder"):
        merge_and_save(saved, tmp_path, None, CPU, FLOAT)
    assert [file.name for file in tmp_path.iterdir()] == ["note"]
    (tmp_path / "empty").mkdir()
    merge_and_save(saved, tmp_path / "empty", None, CPU, FLOAT)
    assert (tmp_path / "empty" / "model.safetensors").is_file()


def config_only(folder: Path, config: object) -> Path:
    config.save_pretrained(folder)  # type: ignore[attr-defined]
    return folder


@bad_inputs(
    [
        BadInput(
            "no adapter", lambda f: SavedAdapter.read(METHOD, f), ("adapter_config.json is missing",), FileNotFoundError
        ),
        BadInput(
            "another method",
            lambda f: SavedAdapter.read(
                METHOD, config_only(f, IA3Config(base_model_name_or_path="b", task_type="CAUSAL_LM"))
            ),
            ("method IA3", "expected LoRA"),
        ),
        BadInput(
            "no base model",
            lambda f: SavedAdapter.read(METHOD, config_only(f, LoraConfig(task_type="CAUSAL_LM"))),
            ("does not name its base model", "--base"),
        ),
        BadInput(
            "no task",
            lambda f: SavedAdapter.read(METHOD, config_only(f, LoraConfig(base_model_name_or_path="b"))),
            ("does not name its task", "--task", "image_classification"),
        ),
        BadInput(
            "an unknown task",
            lambda f: SavedAdapter.read(METHOD, config_only(f, LoraConfig()), base="b", task="poetry"),
            ("'poetry'", "causal_lm"),
        ),
        BadInput(
            "an unknown method of peft",
            lambda f: (f / "adapter_config.json").write_text('{"peft_type": "NOPE"}') and SavedAdapter.read(METHOD, f),
            ("adapter_config.json", "NOPE"),
        ),
    ]
)
def test_a_folder_that_is_no_such_adapter_is_told(case: BadInput, tmp_path: Path) -> None:
    case.check(tmp_path)


def test_an_adapter_on_another_base_is_told(language: Path, tmp_path: Path) -> None:
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 8}
    LlamaForCausalLM(LlamaConfig(**sizes, vocab_size=20)).save_pretrained(tmp_path / "base")
    (tmp_path / "adapter").mkdir()
    for file in language.glob("adapter_*"):
        shutil.copy(file, tmp_path / "adapter")
    saved = SavedAdapter.read(METHOD, tmp_path / "adapter", base=str(tmp_path / "base"))
    with pytest.raises(ValueError, match=r"adapter does not fit its base model .*base: .*size mismatch") as caught:
        saved.load(CPU, FLOAT)
    assert "\n" not in str(caught.value)
