"""The commands `ridgelora count` and `merge`; `train` is tested in test_train.py."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification, LlamaConfig, LlamaForCausalLM

import ridgelora
from nips_common.testing.bad_input import BadInput, bad_inputs
from nips_finetune import SavedAdapter, parse, prepare, train
from nips_finetune.testing.method_suite import COMMON
from ridgelora import cli
from ridgelora.arguments import METHOD

CPU = torch.device("cpu")
SEVEN = "q_proj,k_proj,v_proj,o_proj,gate_proj,up_proj,down_proj"


class Mistake(Exception):
    """The one line with which a command ended."""


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """Runs `ridgelora ARGS`; gives what it printed, JSON read, or raises :class:`Mistake`."""

    def run(*args: object) -> Any:
        monkeypatch.setattr(sys, "argv", ["ridgelora", *map(str, args)])
        with pytest.raises(SystemExit) as stopped:
            cli.main()
        out, err = capsys.readouterr()
        if stopped.value.code == 2:
            raise Mistake(err.removeprefix("ridgelora: error: ").removesuffix("\n"))
        assert stopped.value.code == 0, err
        return json.loads(out) if out.startswith("{") else out

    return run


def trained(out: Path, model: Path, data: Path, *more: str) -> Path:
    argv = ["--model", str(model), "--train_data", str(data), "--output_dir", str(out), *COMMON]
    train(prepare(METHOD, *parse(METHOD, [*argv, "--max_steps", "6", "--learning_rate", "2e-2", *more])))
    return out


def damaged(adapter: Path, out: Path) -> Path:
    """A copy of an adapter with a NaN in it."""
    shutil.copytree(adapter, out)
    file = out / "adapter_model.safetensors"
    tensors = load_file(file)
    next(value for key, value in tensors.items() if key.endswith("sigma"))[3] = torch.nan
    save_file(tensors, file)
    return out


@pytest.fixture(scope="module")
def adapters(
    tmp_path_factory: pytest.TempPathFactory, llama_folder: Path, roberta_folder: Path, text_jsonl: Path, text_csv: Path
) -> dict[str, Path]:
    """Language models with a calibrated and a parallel adapter, one of these with a NaN, a classifier, another base."""
    folder = tmp_path_factory.mktemp("adapters")
    sizes = {"num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 8, "vocab_size": 16}
    LlamaForCausalLM(LlamaConfig(hidden_size=16, **sizes)).save_pretrained(folder / "other")
    calibrated = (
        "--prompt_column",
        "question",
        "--init_weights",
        "gaussian_calibrated",
        "--rank_pattern",
        '{"q_proj": 2}',
    )
    model = trained(folder / "calibrated", llama_folder, text_jsonl, *calibrated)
    return {
        "calibrated": model,
        "parallel": trained(folder / "parallel", llama_folder, text_jsonl, "--connection", "parallel"),
        "classifier": trained(folder / "classifier", roberta_folder, text_csv, "--task", "sequence_classification"),
        "other": folder / "other",
        "damaged": damaged(model, folder / "damaged"),
    }


# count: sheet section 10.1

LLAMA_2_7B = {"intermediate_size": 11008, "num_key_value_heads": 32, "vocab_size": 32000}
LLAMA_3_8B = {"intermediate_size": 14336, "num_key_value_heads": 8, "vocab_size": 128256}


@pytest.mark.parametrize(
    ("sizes", "r", "expected"),
    [
        (LLAMA_2_7B, 8, 19_357_920),
        (LLAMA_2_7B, 64, 146_890_976),
        (LLAMA_3_8B, 8, 21_168_352),
        (LLAMA_3_8B, 64, 160_628_960),
    ],
    ids=["Llama-2-7B, r = 8", "Llama-2-7B, r = 64", "Llama-3.1-8B, r = 8", "Llama-3.1-8B, r = 64"],
)
def test_the_papers_models_are_counted_from_their_configs_alone(
    sizes: dict[str, int], r: int, expected: int, tmp_path: Path, command: Any
) -> None:
    config = LlamaConfig(
        hidden_size=4096, num_hidden_layers=32, num_attention_heads=32, architectures=["LlamaForCausalLM"], **sizes
    )
    config.save_pretrained(tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == ["config.json"]
    report = command("count", "--model", tmp_path, "--targets", SEVEN, "--r", r)
    assert report["adapter"] == expected
    assert (report["layers"], len(report["modules"])) == (224, 224)
    for layer in report["modules"].values():
        width = layer["in_features"]
        assert layer["parameters"] == 2 * r * width + width + 1


def test_a_parallel_adapter_counts_as_lora_does_and_its_diagonal(llama_folder: Path, command: Any) -> None:
    brief = command("count", "--model", llama_folder, "--r", 2, "--no-by-module")
    assert brief["adapter"] == 4 * (2 * 2 * 32 + 32 + 1)  # query and value of two layers of width 32
    assert "modules" not in brief
    given = ("--targets", "gate_proj,down_proj", "--r", 2, "--connection", "parallel")
    report = command("count", "--model", llama_folder, *given)
    assert report["adapter"] == report["lora_same_rank"] + 4 * (32 + 1)  # the smaller of 32 and 48, and lambda
    assert command("count", "--model", llama_folder, "--targets", "all-linear")["layers"] == 14


# merge


@pytest.mark.parametrize("kind", ["calibrated", "parallel"])
def test_an_adapter_merges_exactly_into_a_plain_model(
    kind: str, adapters: dict[str, Path], text_jsonl: Path, tmp_path: Path, command: Any
) -> None:
    out = tmp_path / "merged"
    report = command("merge", adapters[kind], "--out", out, "--data", text_jsonl, "--limit", 6, "--device", "cpu")
    assert report == json.loads((out / "merge.json").read_text())
    assert report["rows"] == 6
    assert report["loss_after"] == pytest.approx(report["loss_before"], rel=1e-5)
    ids = torch.tensor([[0, 4, 6, 9]])
    adapted = SavedAdapter.read(METHOD, adapters[kind]).load(CPU, torch.float32)
    base = AutoModelForCausalLM.from_pretrained(SavedAdapter.read(METHOD, adapters[kind]).base)
    plain = AutoModelForCausalLM.from_pretrained(out)
    assert not any("ridge" in name for name, _ in plain.named_parameters())
    with torch.no_grad():
        expected = adapted(input_ids=ids).logits
        assert (plain(ids).logits - expected).abs().max() <= 1e-5
        assert (base(ids).logits - expected).abs().max() > 1e-2


def test_a_classifier_keeps_its_classes_and_its_head(
    adapters: dict[str, Path], text_csv: Path, tmp_path: Path, command: Any
) -> None:
    given = ("--out", tmp_path / "out", "--data", text_csv, "--limit", 8, "--device", "cpu")
    report = command("merge", adapters["classifier"], *given)
    assert report["same_class"] == 1
    assert report["relative_output_change"] <= 1e-5
    plain = AutoModelForSequenceClassification.from_pretrained(tmp_path / "out")
    assert plain.config.id2label == {0: "bad", 1: "good"}


def test_half_precision_rounds_the_exact_result_once(adapters: dict[str, Path], tmp_path: Path, command: Any) -> None:
    for dtype in ("float64", "bfloat16"):
        command("merge", adapters["calibrated"], "--out", tmp_path / dtype, "--dtype", dtype, "--device", "cpu")
    exact, half = (load_file(tmp_path / dtype / "model.safetensors") for dtype in ("float64", "bfloat16"))
    assert {value.dtype for value in half.values()} == {torch.bfloat16}
    for key, value in exact.items():
        # one rounding: half a unit in the last of 8 places
        assert ((half[key].double() - value).abs() <= value.abs() * 2.0**-8 + 1e-9).all(), key


def test_without_the_check_a_damaged_adapter_is_merged_as_it_is(
    adapters: dict[str, Path], tmp_path: Path, command: Any
) -> None:
    command("merge", adapters["damaged"], "--out", tmp_path / "out", "--no-safe", "--device", "cpu")
    tensors = load_file(tmp_path / "out" / "model.safetensors")
    assert sum(bool(value.isnan().any()) for value in tensors.values()) == 1


@bad_inputs(
    [
        BadInput(
            "a NaN in the adapter",
            lambda run, at: run("merge", at["damaged"], "--out", at["out"], "--device", "cpu"),
            ("'default'", "NaN or infinite"),
            Mistake,
        ),
        BadInput(
            "a folder with something in it",
            lambda run, at: run("merge", at["calibrated"], "--out", at["parallel"]),
            ("--out", "new or empty folder"),
            Mistake,
        ),
        BadInput(
            "no adapter",
            lambda run, at: run("merge", at["data"].parent, "--out", at["out"]),
            ("adapter_config.json is missing",),
            Mistake,
        ),
        BadInput(
            "no such column",
            lambda run, at: run(
                "merge", at["calibrated"], "--out", at["out"], "--data", at["data"], "--text-column", "body"
            ),
            ("'body'", "question, text, score"),
            Mistake,
        ),
        BadInput(
            "no such device",
            lambda run, at: run("merge", at["calibrated"], "--out", at["out"], "--device", "abacus"),
            ("abacus", "cpu"),
            Mistake,
        ),
        BadInput(
            "no such base",
            lambda run, at: run("merge", at["calibrated"], "--out", at["out"], "--base", "no/where", "--device", "cpu"),
            ("'no/where'",),
            Mistake,
        ),
        BadInput(
            "another base",
            lambda run, at: run(
                "merge", at["calibrated"], "--out", at["out"], "--base", at["other"], "--device", "cpu"
            ),
            ("other", "do not have the shapes of its config"),
            Mistake,
        ),
        BadInput(
            "rank 0",
            lambda run, at: run("count", "--model", at["llama"], "--r", 0),
            ("r", "at least 1", "0"),
            Mistake,
        ),
        BadInput(
            "a rank above the width",
            lambda run, at: run("count", "--model", at["llama"], "--r", 33),
            ("at most in_features=32", "33"),
            Mistake,
        ),
        BadInput(
            "targets that are not there",
            lambda run, at: run("count", "--model", at["llama"], "--targets", "q,k"),
            ("target_modules", "'q'"),
            Mistake,
        ),
        BadInput(
            "targets that are not linear",
            lambda run, at: run("count", "--model", at["llama"], "--targets", "embed_tokens"),
            ("embed_tokens", "Embedding"),
            Mistake,
        ),
        BadInput("no model", lambda run, at: run("count"), ("--model", "--help"), Mistake),
        BadInput("an unknown command", lambda run, at: run("trian"), ("trian", "--help"), Mistake),
    ]
)
def test_a_mistake_is_told_in_one_line_and_nothing_is_written(
    case: BadInput, command: Any, adapters: dict[str, Path], llama_folder: Path, text_jsonl: Path, tmp_path: Path
) -> None:
    case.check(command, {**adapters, "out": tmp_path / "out", "data": text_jsonl, "llama": llama_folder})
    assert not (tmp_path / "out").exists()


def test_help_and_version_are_there(command: Any) -> None:
    assert command("--version") == f"ridgelora {ridgelora.__version__}\n"
    text = command()
    assert all(name in text for name in ("train", "count", "merge"))
    assert "--no-safe" in command("merge", "--help")
