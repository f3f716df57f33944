"""The commands `lora-anl count`, `gap` and `merge`; `train` is tested in test_train.py."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification, LlamaConfig, RobertaConfig, ViTConfig

import lora_anl
from lora_anl import cli
from lora_anl.arguments import METHOD
from nips_common.testing.bad_input import BadInput, bad_inputs
from nips_finetune import SavedAdapter, parse, prepare, train
from nips_finetune.testing.fixtures import query_and_value
from nips_finetune.testing.method_suite import COMMON

CPU = torch.device("cpu")


class Mistake(Exception):
    """The one line with which a command ended."""


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """Runs `lora-anl ARGS`; gives what it printed, JSON read, or raises :class:`Mistake`."""

    def run(*args: object) -> Any:
        monkeypatch.setattr(sys, "argv", ["lora-anl", *map(str, args)])
        with pytest.raises(SystemExit) as stopped:
            cli.main()
        out, err = capsys.readouterr()
        if stopped.value.code == 2:
            raise Mistake(err.removeprefix("lora-anl: error: ").removesuffix("\n"))
        assert stopped.value.code == 0, err
        return json.loads(out) if out.startswith("{") else out

    return run


def trained(out: Path, model: Path, data: Path, *more: str) -> Path:
    argv = ["--model", str(model), "--train_data", str(data), "--output_dir", str(out), *COMMON]
    train(prepare(METHOD, *parse(METHOD, [*argv, "--max_steps", "12", "--learning_rate", "2e-2", *more])))
    return out


@pytest.fixture(scope="module")
def adapters(
    tmp_path_factory: pytest.TempPathFactory, llama_folder: Path, roberta_folder: Path, text_jsonl: Path, text_csv: Path
) -> dict[str, Path]:
    """A dynamic and a static language model, and a dynamic classifier."""
    folder = tmp_path_factory.mktemp("adapters")
    prompt, static = ("--prompt_column", "question"), ("--forward_mode", "static")
    return {
        "dynamic": trained(folder / "dynamic", llama_folder, text_jsonl, *prompt),
        "static": trained(folder / "static", llama_folder, text_jsonl, *prompt, *static),
        "classifier": trained(folder / "classifier", roberta_folder, text_csv, "--task", "sequence_classification"),
    }


# count: sheet section 10.1


@pytest.mark.parametrize(
    ("config", "targets", "expected"),
    [
        (RobertaConfig(architectures=["RobertaForMaskedLM"]), None, 74_208),
        (
            LlamaConfig(
                hidden_size=4096,
                intermediate_size=14336,
                num_hidden_layers=32,
                vocab_size=128256,
                num_attention_heads=32,
                num_key_value_heads=8,
                architectures=["LlamaForCausalLM"],
            ),
            "q_proj,k_proj,v_proj,up_proj,down_proj",
            3_542_144,
        ),
        (
            ViTConfig(hidden_size=1024, num_hidden_layers=24, num_attention_heads=16, intermediate_size=4096),
            None,
            197_568,
        ),
    ],
    ids=["RoBERTa-base", "Llama-3-8B", "ViT-L"],
)
def test_the_papers_models_are_counted_from_their_configs_alone(
    config: Any, targets: str | None, expected: int, tmp_path: Path, command: Any
) -> None:
    config.save_pretrained(tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == ["config.json"]
    names = targets or ",".join(query_and_value(tmp_path))
    report = command("count", "--model", tmp_path, "--targets", names, "--r", 2)
    assert report["adapter"] == expected
    assert report["layers"] == len(report["modules"])
    assert sum(layer["parameters"] for layer in report["modules"].values()) == expected
    # r (in + out) is LoRA's part, r² + r (G + k) = 4 + 16 the nonlinear layer's
    assert report["lora_same_rank"] == expected - 20 * report["layers"]


def test_ablations_count_less_and_no_targets_mean_the_usual_ones(llama_folder: Path, command: Any) -> None:
    brief = command("count", "--model", llama_folder, "--r", 1, "--no-by-module")
    assert brief["adapter"] == 4 * (64 + 1 + 8)  # query and value of two layers of width 32
    assert "modules" not in brief
    less = command("count", "--model", llama_folder, "--r", 1, "--no-use-fixed", "--grid-size", 2, "--spline-order", 1)
    assert less["adapter"] == 4 * (64 + 3)
    assert command("count", "--model", llama_folder, "--targets", "all-linear")["layers"] == 14


# gap


def test_the_gap_of_a_dynamic_adapter_is_measured(
    adapters: dict[str, Path], text_jsonl: Path, text_csv: Path, command: Any
) -> None:
    report = command("gap", adapters["dynamic"], "--data", text_jsonl, "--limit", 6, "--device", "cpu")
    assert (report["rows"], report["forward_mode"]) == (6, "dynamic")
    saved = SavedAdapter.read(METHOD, adapters["dynamic"])
    batches = saved.batches(str(text_jsonl), saved.columns(), most=6)
    expected = lora_anl.measure_merge_gap(saved.load(CPU, torch.float32), batches)
    assert {key: report[key] for key in expected} == pytest.approx(expected)
    assert report["relative_gap"] > 0.05
    report = command("gap", adapters["classifier"], "--data", text_csv, "--batch-size", 8, "--device", "cpu")
    assert (report["rows"], report["relative_gap"] > 0) == (48, True)


def test_a_static_adapter_has_no_gap(adapters: dict[str, Path], text_jsonl: Path, command: Any) -> None:
    report = command("gap", adapters["static"], "--data", text_jsonl, "--limit", 3, "--device", "cpu")
    assert report["forward_mode"] == "static"
    assert report["relative_gap"] <= 1e-4


# merge


def test_a_static_adapter_merges_exactly_into_a_plain_model(
    adapters: dict[str, Path], text_jsonl: Path, tmp_path: Path, command: Any
) -> None:
    out = tmp_path / "merged"
    report = command("merge", adapters["static"], "--out", out, "--data", text_jsonl, "--device", "cpu")
    assert (report["policy"], report["rows"]) == ("exact", 24)
    assert report["loss_after"] == pytest.approx(report["loss_before"], rel=1e-5)
    ids = torch.tensor([[0, 4, 6, 9]])
    adapted = SavedAdapter.read(METHOD, adapters["static"]).load(CPU, torch.float32)
    with torch.no_grad():
        merged = AutoModelForCausalLM.from_pretrained(out)(ids).logits
        assert (merged - adapted(input_ids=ids).logits).abs().max() <= 1e-5


@pytest.mark.filterwarnings("ignore::lora_anl.StaticMergeWarning")
def test_the_calibrated_merge_of_a_dynamic_adapter_is_closer_than_the_static_one(
    adapters: dict[str, Path], text_csv: Path, tmp_path: Path, command: Any
) -> None:
    change = {}
    for policy in ("static", "calibrated"):
        given = ("--out", tmp_path / policy, "--policy", policy, "--data", text_csv, "--device", "cpu")
        report = command("merge", adapters["classifier"], *given)
        assert report == json.loads((tmp_path / policy / "merge.json").read_text())
        assert 0 <= report["same_class"] <= 1
        change[policy] = report["relative_output_change"]
        plain = AutoModelForSequenceClassification.from_pretrained(tmp_path / policy)
        assert plain.config.id2label == {0: "bad", 1: "good"}
        assert not any("aurora" in name for name, _ in plain.named_parameters())
    assert 0 < change["calibrated"] < change["static"]


def test_the_static_merge_is_the_papers(adapters: dict[str, Path], tmp_path: Path, command: Any) -> None:
    with pytest.warns(lora_anl.StaticMergeWarning):
        command("merge", adapters["dynamic"], "--out", tmp_path / "out", "--policy", "static", "--device", "cpu")
    model = SavedAdapter.read(METHOD, adapters["dynamic"]).load(CPU, torch.float32)
    layer = model.base_model.model.model.layers[0].self_attn.q_proj
    merged = AutoModelForCausalLM.from_pretrained(tmp_path / "out").model.layers[0].self_attn.q_proj
    torch.testing.assert_close(merged.weight, layer.base_layer.weight + layer.get_delta_weight("default"))


@bad_inputs(
    [
        BadInput(
            "an exact merge of a dynamic adapter",
            lambda run, at: run("merge", at["dynamic"], "--out", at["out"]),
            ("forward_mode='dynamic'", "--policy calibrated --data", "--policy static", "lora-anl gap"),
            Mistake,
        ),
        BadInput(
            "another policy for a static adapter",
            lambda run, at: run("merge", at["static"], "--out", at["out"], "--policy", "static"),
            ("forward_mode='static'", "--policy exact"),
            Mistake,
        ),
        BadInput(
            "calibration on nothing",
            lambda run, at: run("merge", at["dynamic"], "--out", at["out"], "--policy", "calibrated"),
            ("--policy calibrated needs --data",),
            Mistake,
        ),
        BadInput(
            "a folder with something in it",
            lambda run, at: run("merge", at["static"], "--out", at["dynamic"]),
            ("--out", "new or empty folder"),
            Mistake,
        ),
        BadInput(
            "an unknown policy",
            lambda run, at: run("merge", at["static"], "--out", at["out"], "--policy", "hope"),
            ("'hope'", "calibrated", "--help"),
            Mistake,
        ),
        BadInput(
            "no adapter",
            lambda run, at: run("gap", at["data"].parent, "--data", at["data"]),
            ("adapter_config.json is missing",),
            Mistake,
        ),
        BadInput(
            "no such column",
            lambda run, at: run("gap", at["dynamic"], "--data", at["data"], "--text-column", "body"),
            ("'body'", "question, text, score"),
            Mistake,
        ),
        BadInput(
            "no such device",
            lambda run, at: run("gap", at["dynamic"], "--data", at["data"], "--device", "abacus"),
            ("abacus", "cpu"),
            Mistake,
        ),
        BadInput(
            "no such base",
            lambda run, at: run("merge", at["static"], "--out", at["out"], "--base", "no/where", "--device", "cpu"),
            ("'no/where'",),
            Mistake,
        ),
        BadInput(
            "rank 0",
            lambda run, at: run("count", "--model", at["llama"], "--r", 0),
            ("r", "at least 1", "0"),
            Mistake,
        ),
        BadInput(
            "targets that are not there",
            lambda run, at: run("count", "--model", at["llama"], "--targets", "q,k"),
            ("target_modules ['k', 'q']", "no module ends in", "linear layers end in q_proj, k_proj"),
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
    assert command("--version") == f"lora-anl {lora_anl.__version__}\n"
    text = command()
    assert all(name in text for name in ("train", "count", "gap", "merge"))
    assert "--prompt-column" in command("gap", "--help")
