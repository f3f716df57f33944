"""The commands, on a tiny model with its own tokenizer, as a user types them."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from bigram_subnet import BigramCounts, SubnetworkMask, TrainLog
from bigram_subnet.cli import app, main
from bigram_subnet.train import main as train_main
from nips_common import cli
from nips_common.testing.interrupt import kill_and_resume
from nips_common.testing.torchrun import run_torchrun

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs the command; gives exit code, standard output and standard error."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments: object) -> tuple[int, str, str]:
        words, code = [str(argument) for argument in arguments], 0
        try:
            cli.run(app, words)
        except SystemExit as end:
            code = int(end.code or 0)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


@pytest.fixture
def counts_file(run: Run, text_file: Path, model_folder: Path, tmp_path: Path) -> Path:
    code, _, error = run("count", "counts.safetensors", "--text", text_file, "--tokenizer", model_folder)
    assert code == 0, error
    return tmp_path / "counts.safetensors"


@pytest.fixture
def mask_file(model_folder: Path, tmp_path: Path) -> Path:
    model = AutoModelForCausalLM.from_pretrained(model_folder)
    mask = SubnetworkMask.empty(model).set_mlp_units(0, range(20)).set_attention_head(1, 2)
    mask.save(tmp_path / "mask.safetensors")
    return tmp_path / "mask.safetensors"


def report_of(result: tuple[int, str, str]) -> Any:
    code, out, error = result
    assert code == 0, error
    return json.loads(out)


def refused(result: tuple[int, str, str], *words: str) -> None:
    code, out, error = result
    told = [line for line in error.splitlines() if ": error: " in line]
    assert (code, out) == (2, "")
    assert len(told) == 1, error
    assert all(word in told[0] for word in words), told[0]
    assert "Traceback" not in error


def test_count_reads_text_through_the_tokenizer(
    run: Run, text_file: Path, model_folder: Path, counts_file: Path
) -> None:
    counts = BigramCounts.load(counts_file)
    tokenizer = AutoTokenizer.from_pretrained(model_folder)
    ids = [i for line in text_file.open(newline="") for i in tokenizer(line, add_special_tokens=False)["input_ids"]]
    assert counts.tokens == len(ids)
    rows = [ids[start : start + 128] for start in range(0, len(ids), 128)]
    expected = BigramCounts.from_sequences(rows, len(tokenizer))
    query = torch.arange(counts.vocab_size)[None]
    assert torch.equal(counts.next_token_probs(query), expected.next_token_probs(query))


def test_token_files_take_size_and_vocabulary_from_a_tokenizer(
    run: Run, model_folder: Path, text_file: Path, mask_file: Path, tmp_path: Path
) -> None:
    (tmp_path / "tokens.txt").write_text("0 1 2\n1 2 3 4\n")
    report = report_of(run("count", "c.safetensors", "--tokens", "tokens.txt", "--tokenizer", model_folder))
    assert (report["vocab_size"], report["tokens"]) == (300, 7)
    by_text = report_of(run("count", "t.safetensors", "--text", text_file, "--tokenizer", model_folder))
    assert by_text["vocab_size"] == 300
    digests = {BigramCounts.load(name).vocabulary for name in ("c.safetensors", "t.safetensors")}
    assert len(digests) == 1
    assert None not in digests


def test_count_reads_token_files_of_any_order(run: Run, tmp_path: Path) -> None:
    (tmp_path / "tokens.txt").write_text("0 1 2\n1 2 3\n")
    report = report_of(run("count", "c.safetensors", "--tokens", "tokens.txt", "--vocab-size", 4, "--order", 3))
    assert report == {"counts": "c.safetensors", "order": 3, "vocab_size": 4, "tokens": 6, "lines": 2}


def test_evaluate_reports_correlations_and_controls(
    run: Run, mask_file: Path, counts_file: Path, model_folder: Path, text_file: Path
) -> None:
    report = report_of(
        run("evaluate", mask_file, "--model", model_folder, "--counts", counts_file, "--text", text_file,
            "--sequence-length", 32, "--limit", 8)
    )  # fmt: skip
    assert report["controls"].keys() == {"full", "random", "empty"}
    assert -1 <= report["ngram_corr_dropinf"] <= 1
    assert report["ngram_xent"] > 0
    assert report["kept"] == SubnetworkMask.load(mask_file).kept > 0


def test_a_correlation_that_cannot_be_said_is_told(
    run: Run, mask_file: Path, model_folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    Path("same.txt").write_text("5 5 5 5 5\n5 5 5 5 5\n")
    run("count", "same.safetensors", "--tokens", "same.txt", "--tokenizer", model_folder)
    given = ("--model", model_folder, "--counts", "same.safetensors", "--tokens", "same.txt")
    assert report_of(run("evaluate", mask_file, *given))["ngram_corr_dropinf"] is None
    assert "r is null: every held-out token that same.safetensors knows" in caplog.text


def test_ablate_reports_the_five_losses(run: Run, mask_file: Path, model_folder: Path, text_file: Path) -> None:
    report = report_of(
        run("ablate", mask_file, "--model", model_folder, "--text", text_file, "--sequence-length", 32, "--limit", 4)
    )
    assert report["losses_in_nats"].keys() == {"full", "subnetwork", "random", "ablated", "random_ablated"}


def test_ablate_draws_several_random_masks(run: Run, mask_file: Path, model_folder: Path, text_file: Path) -> None:
    arguments = ("ablate", mask_file, "--model", model_folder, "--text", text_file, "--sequence-length", 32)
    losses = report_of(run(*arguments, "--limit", 4, "--draws", 3))["losses_in_nats"]
    assert losses.keys() - {"random_std", "random_ablated_std"} == {
        "full", "subnetwork", "random", "ablated", "random_ablated",
    }  # fmt: skip
    assert losses["random_std"] > 0
    refused(run(*arguments, "--draws", 0), "--draws")


def test_overlap_of_a_mask_with_itself(run: Run, mask_file: Path, model_folder: Path) -> None:
    report = report_of(run("overlap", mask_file, mask_file, "--draws", 50))
    assert (report["contained"], report["p_value"]) == (1.0, 1 / 51)
    converted = report_of(run("convert", mask_file, "mask.pickle"))
    assert report["kept_a"] == converted["kept"]
    refused(run("overlap", "mask.pickle", "mask.pickle"), "query_key_value", "config")
    assert (
        report_of(run("overlap", "mask.pickle", mask_file, "--model", model_folder, "--draws", 9))["contained"] == 1.0
    )


def test_overlap_with_an_empty_mask_says_why_its_shares_are_null(
    run: Run, mask_file: Path, model_folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    SubnetworkMask.empty(AutoModelForCausalLM.from_pretrained(model_folder)).save("empty.safetensors")
    report = report_of(run("overlap", "empty.safetensors", mask_file, "--draws", 9))
    assert (report["ratio"], report["contained"]) == (None, None)
    assert "empty.safetensors keeps no weight" in caplog.text
    assert str(mask_file) not in caplog.text


def test_rotate_reports_every_layer(run: Run, mask_file: Path, model_folder: Path, text_file: Path) -> None:
    report = report_of(
        run("rotate", "--model", model_folder, "--mask", mask_file, "--text", text_file, "--sequence-length", 32,
            "--limit", 8, "--lens")
    )  # fmt: skip
    assert [row["layer"] for row in report["layers"]] == [0, 1, 2]
    assert report["layers"][0]["to_input"] == pytest.approx(0, abs=1e-6)
    assert report["layers"][2]["lens_output"]["correlation"] == pytest.approx(1, abs=1e-3)


def test_show_prints_a_row_a_part_and_draws(run: Run, mask_file: Path) -> None:
    code, out, _ = run("show", mask_file, "--plot", "mask.png")
    assert code == 0
    lines = out.splitlines()
    assert len(lines) == 2 + 2 * 3
    assert lines[1].split() == ["layer", "part", "kept", "total", "density", "share"]
    kept, total = 20 * 16 * 2, 64 * 16 * 2  # 20 of 64 units in layer 0
    share = kept / SubnetworkMask.load(mask_file).kept
    assert lines[4].split() == ["0", "mlp", str(kept), f"{total:,}", f"{kept / total:.3%}", f"{share:.2%}", "#" * 40]
    assert Path("mask.png").read_bytes().startswith(b"\x89PNG")


def test_convert_goes_both_ways(run: Run, mask_file: Path, model_folder: Path) -> None:
    report_of(run("convert", mask_file, "mask.pickle"))
    report_of(run("convert", "mask.pickle", "back.safetensors", "--model", model_folder))
    assert SubnetworkMask.load("back.safetensors") == SubnetworkMask.load(mask_file)


def test_generate_goes_on_from_a_prompt_and_follows_the_mask(run: Run, mask_file: Path, model_folder: Path) -> None:
    arguments = ("generate", "The list of", "--model", model_folder, "--max-new-tokens", 12, "--temperature", 0)
    full, masked = run(*arguments), run(*arguments, "--mask", mask_file)
    assert full[0] == masked[0] == 0
    assert full[1].startswith("The list of")
    assert full[1] != masked[1]


TRAIN = (
    "--max_steps",
    8,
    "--batch_size",
    4,
    "--learning_rate",
    0.05,
    "--temperature_factor",
    1.2,
    "--sequence_length",
    32,
)


def train_arguments(model_folder: Path, text_file: Path, counts_file: Path, output: str = "masks") -> list[object]:
    return [
        "train", "--model", model_folder, "--output", output, "--text", text_file, "--counts", counts_file, *TRAIN,
    ]  # fmt: skip


def test_train_writes_masks_logs_results_and_a_card(
    run: Run, model_folder: Path, text_file: Path, counts_file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    arguments = train_arguments(model_folder, text_file, counts_file)
    arguments += ["--l0_lambda", 0, 10, "--eval_text", text_file, "--eval_limit", 8, "--limit", 64]
    results = report_of(run(*arguments))
    told = [record.getMessage() for record in caplog.records if record.name == "bigram_subnet.train"]
    number = r"-?\d+\.\d{3}"
    assert re.fullmatch(
        f"r with the n-gram surprisal: subnetwork {number}, full model {number}, random mask {number}, "
        f"no weight {number}",
        told[-2],
    )
    assert re.fullmatch(
        f"loss in nats: full model {number}, subnetwork {number}, random mask {number}, without the subnetwork "
        f"{number}, without the random mask {number}",
        told[-1],
    )
    assert [row["l0_lambda"] for row in results["masks"]] == [0, 10]
    assert results["chosen_lambda"] in (0, 10)
    model = AutoModelForCausalLM.from_pretrained(model_folder)
    for value in (0, 10):
        mask = SubnetworkMask.load(f"masks/lambda{value}", model)
        log = TrainLog.load(f"masks/lambda{value}/train_log.json")
        assert (log.mask_size, log.train_steps, log.l0_lambda) == (mask.kept, 8, value)
        assert log.ngram_corr_dropinf is not None
        assert log.outpath == f"masks/lambda{value}/mask.safetensors"
    assert json.loads(Path("masks/results.json").read_text()) == results
    assert Path("masks/README.md").read_text().startswith("---\nbase_model:")
    refused(run(*arguments), "masks is not empty", "--resume")
    assert report_of(run(*arguments, "--resume"))["masks"] == results["masks"]
    changed = (*arguments, "--resume", "--target", "self", "--l0_lambda", 1, "--max_steps", 9, "--dtype", "bfloat16")
    told = ("target was 'ngram', is 'self'", "max_steps was 8, is 9", "dtype was 'auto', is 'bfloat16'")
    refused(run(*changed), *told)
    refused(run(*changed, "--dry_run"), *told)
    assert not Path("masks/lambda1").exists()


def test_train_takes_a_file_of_settings_and_the_self_target(run: Run, model_folder: Path, text_file: Path) -> None:
    Path("settings.yaml").write_text(
        f"model: {model_folder}\noutput: masks\ntext: [{text_file}]\ntarget: self\nmax_steps: 3\nbatch_size: 4\n"
        "sequence_length: 16\nlimit: 16\n"
    )
    assert report_of(run("train", "--config", "settings.yaml"))["target"] == "self"
    assert TrainLog.load("masks/lambda10/train_log.json").train_steps == 3


def test_a_dry_run_counts_and_writes_nothing(run: Run, model_folder: Path, text_file: Path, counts_file: Path) -> None:
    report = report_of(run(*train_arguments(model_folder, text_file, counts_file), "--dry_run"))
    assert report["parameters"]["maskable"] == 12 * 16**2 * 2
    assert report["per_mask_and_attempt_at_most"] == {"optimizer_steps": 8, "sequences_read": 32}
    assert report["memory_bytes"]["scores, gradients, AdamW"] == 4 * 4 * 12 * 16**2 * 2
    assert not Path("masks").exists()


def test_a_dry_run_refuses_what_a_run_refuses(
    run: Run, model_folder: Path, text_file: Path, counts_file: Path, tmp_path: Path
) -> None:
    arguments = [*train_arguments(model_folder, text_file, counts_file), "--dry_run"]
    (tmp_path / "ids.txt").write_text("1 2 3\n4 5\n6 7 8\n" * 4)
    (tmp_path / "used").mkdir()
    (tmp_path / "used" / "file").touch()
    refused(run(*arguments, "--counts", "none.safetensors"), "none.safetensors")
    refused(run(*arguments, "--text", "none.txt"), "none.txt")
    refused(run(*arguments, "--eval_tokens", "ids.txt"), "ids.txt, line 2: all lines must have 3 tokens")
    refused(run(*arguments, "--output", "used"), "used is not empty")
    refused(run(*arguments, "--sequence_length", 65), "sequences of 65 tokens are too long", "at most 64")
    refused(run(*arguments, "--batch_size", 100000), "--batch_size 100000")
    refused(run(*arguments, "--revision", "step4"), "--revision step4 is for hub ids")
    assert not Path("masks").exists()


def test_mistakes_of_train_are_one_line_and_leave_nothing(
    run: Run, model_folder: Path, text_file: Path, counts_file: Path
) -> None:
    arguments = train_arguments(model_folder, text_file, counts_file)
    refused(run(*arguments, "--learning_rate", -1), "learning_rate must be above 0, got -1")
    refused(run(*arguments, "--l0_lambda", 1, 1), "different numbers")
    refused(run(*arguments, "--target", "trigram"), "ngram or self", "trigram")
    refused(run(*arguments, "--tokens", "a.txt"), "--tokens", "--text")
    refused(run(*arguments, "--counts", "absent.safetensors"), "absent.safetensors")
    refused(run(*arguments, "--eval_text", "absent.txt"), "absent.txt")
    refused(run(*arguments, "--batch_size", 100000, "--max_steps", 1), "--batch_size 100000", "docs.txt")
    refused(run(*arguments, "--sequence_length", 65), "sequences of 65 tokens are too long", "at most 64")
    refused(run(*arguments, "--limit", 2), "--limit 2 is less than one micro-batch, --batch_size 4")
    refused(run("train", "--config", "absent.yaml"), "absent.yaml")
    assert not Path("masks").exists()


def test_counts_of_another_tokenizer_are_refused(
    run: Run, model_folder: Path, text_file: Path, mask_file: Path, tmp_path: Path
) -> None:
    from tokenizers import ByteLevelBPETokenizer
    from transformers import PreTrainedTokenizerFast

    short = tmp_path / "short.txt"
    short.write_text("zebra zebra quagga quagga okapi okapi " * 50)
    for name, corpus, size in (("smaller", text_file, 280), ("other", short, 300), ("larger", text_file, 400)):
        trained = ByteLevelBPETokenizer()
        trained.train([str(corpus)], vocab_size=size, show_progress=False)
        other = PreTrainedTokenizerFast(tokenizer_object=trained._tokenizer)
        if len(other) < size:
            other.add_tokens([f"<{i}>" for i in range(size - len(other))])
        other.save_pretrained(tmp_path / name)
        run("count", f"{name}.safetensors", "--text", text_file, "--tokenizer", tmp_path / name)
    command = (
        "evaluate",
        mask_file,
        "--model",
        model_folder,
        "--text",
        text_file,
        "--sequence-length",
        16,
        "--limit",
        4,
    )
    refused(run(*command, "--counts", "smaller.safetensors"), "counts of 280 tokens", "tokenizer has 300")
    refused(run(*command, "--counts", "other.safetensors"), "as many tokens (300)", "other tokens")
    larger = (*command, "--counts", "larger.safetensors", "--tokenizer", "larger")
    refused(run(*larger), "counts of 400 tokens, but the model knows 304")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["show", "absent.safetensors"], ["absent.safetensors", "no such mask file"]),
        (["show", "mask.safetensors", "--plot", "mask.svg"], [".png", "mask.svg"]),
        (["show", "mask.safetensors", "--layout", "rows"], ["layout", "per_head"]),
        (["convert", "mask.safetensors", "mask.npz"], ["mask.npz", ".safetensors"]),
        (["count", "counts.npz", "--tokens", "t.txt", "--vocab-size", "3"], ["counts.npz", ".safetensors"]),
        (["count", "c.safetensors"], ["--tokens", "--text"]),
        (["count", "c.safetensors", "--tokens", "t.txt"], ["--vocab-size"]),
        (["count", "c.safetensors", "--text", "t.txt"], ["--tokenizer"]),
        (["count", "c.safetensors", "--tokens", "t.txt", "--tokenizer", "notok"], ["notok: no such folder"]),
        (
            ["count", "c.safetensors", "--text", "t.txt", "--tokenizer", "x", "--vocab-size", "3"],
            ["either --tokenizer or --vocab-size"],
        ),
        (["count", "c.safetensors", "--tokens", "t.txt", "--vocab-size", "3"], ["t.txt", "no such token file"]),
        (["count", "c.safetensors", "--tokens", "t.txt", "--vocab-size", "three"], ["--vocab-size", "integer"]),
        (["evaluate", "mask.safetensors", "--model", "x", "--counts", "c.safetensors"], ["c.safetensors"]),
        (["ablate", "mask.safetensors", "--model", "no/such/model", "--tokens", "t.txt"], ["t.txt"]),
        (["unknown"], ["unknown"]),
    ],
)
def test_a_mistake_is_one_line(run: Run, mask_file: Path, arguments: list[str], words: list[str]) -> None:
    before = sorted(Path().iterdir())
    refused(run(*arguments), *words)
    assert sorted(Path().iterdir()) == before


def test_sequences_that_the_model_cannot_take_are_refused(
    run: Run, mask_file: Path, counts_file: Path, model_folder: Path, text_file: Path
) -> None:
    model = ("--model", model_folder)
    long = (*model, "--text", text_file, "--limit", 2, "--sequence-length", 65)
    told = ("sequences of 65 tokens are too long", "at most 64 (max_position_embeddings)")
    refused(run("evaluate", mask_file, "--counts", counts_file, *long), *told)
    refused(run("ablate", mask_file, *long), *told)
    refused(run("rotate", *long), *told)
    refused(run("generate", "The list", *model, "--max-new-tokens", 64), "and 64 new ones are too long", "at most 64")
    single = (*model, "--text", text_file, "--limit", 2, "--sequence-length", 1)
    refused(run("ablate", mask_file, *single), "at least 2 tokens", "got 1")
    refused(run("evaluate", mask_file, "--counts", counts_file, *single), "at least 2 tokens", "got 1")
    report_of(run("ablate", mask_file, *long[:-1], 64))


def test_the_output_of_a_training_run_stands_for_the_chosen_mask(run: Run, mask_file: Path, tmp_path: Path) -> None:
    mask, folder = SubnetworkMask.load(mask_file), tmp_path / "masks"
    for name, each in (("lambda0", mask), ("lambda0.5", ~mask)):
        (folder / name).mkdir(parents=True)
        each.save(folder / name / "mask.safetensors")
        assert report_of(run("show", "masks/lambda0", "--json"))["kept"] == mask.kept
        if name == "lambda0":
            assert report_of(run("show", "masks", "--json"))["kept"] == mask.kept  # its only one
    several = ("masks: the folder holds several masks", "masks/lambda0, masks/lambda0.5")
    refused(run("show", "masks"), *several)
    for chosen, kept in ((0.5, (~mask).kept), (0, mask.kept)):
        (folder / "results.json").write_text(json.dumps({"chosen_lambda": chosen}))
        assert report_of(run("show", "masks", "--json"))["kept"] == kept
    for unknown in (None, 7):
        (folder / "results.json").write_text(json.dumps({"chosen_lambda": unknown}))
        refused(run("show", "masks"), *several)


@pytest.mark.parametrize("text", ["--version", "evaluate --help", "train --help", "train --steps 3"])
def test_help_version_and_wrong_flags_need_no_torch(text: str) -> None:
    """torch alone takes seconds to import."""
    if text.startswith("train") and version("transformers").startswith("5.0"):
        pytest.skip("the parser of transformers 5.0 imports torch itself")
    code = (
        "import sys; from bigram_subnet.cli import app; from nips_common import cli\ntry: cli.run(app, sys.argv[1:])\n"
    )
    code += "finally: print('torch' in sys.modules, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code, *text.split()], capture_output=True, text=True, check=False)
    assert done.returncode == (2 if "steps" in text else 0)
    assert done.stderr.splitlines()[-1] == "False"


@pytest.mark.parametrize("command", ["evaluate", "ablate", "overlap", "rotate", "show"])
def test_help_explains_the_numbers_that_a_command_prints(run: Run, command: str) -> None:
    words = {
        "evaluate": ["ngram_corr_dropinf", "ngram_correlation", "ngram_xent", "distill_", "Controls"],
        "ablate": ["nats", "ablated", "random_ablated"],
        "overlap": ["overlap is", "expected", "ratio", "contained", "p_value"],
        "rotate": ["Layer 0", "positions", "first 1, 5 and 10"],
        "show": ["density", "share"],
    }[command]
    code, out, _ = run(command, "--help")
    assert code == 0
    assert [word for word in words if word not in " ".join(out.split())] == []


def test_no_bars_where_standard_error_is_a_file(
    mask_file: Path, model_folder: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["convert", str(mask_file), str(mask_file.with_name("copy.safetensors")), "--model", str(model_folder)]
    monkeypatch.setattr(sys, "argv", ["bigram-subnet", *words])
    with pytest.raises(SystemExit) as end:
        main()
    captured = capfd.readouterr()
    assert (end.value.code, captured.err) == (0, "")
    assert json.loads(captured.out)["kept"] == SubnetworkMask.load(mask_file).kept


def test_a_run_is_not_resumed_with_other_data_under_the_same_name(
    run: Run, model_folder: Path, text_file: Path, counts_file: Path
) -> None:
    text, ids = Path("own.txt").absolute(), Path("ids.txt")
    before = text_file.read_text("utf-8")
    text.write_text(before, "utf-8")
    words = [*train_arguments(model_folder, text, counts_file), "--max_steps", 2]
    report_of(run(*words))
    report_of(run(*words, "--resume"))
    text.write_text(before.upper(), "utf-8")
    refused(run(*words, "--resume"), "a run is resumed with its own data; changed: training data")
    text.write_text(before, "utf-8")
    ids.write_text("1 2 3\n", "utf-8")
    assert run("count", counts_file, "--tokens", ids, "--tokenizer", model_folder)[0] == 0
    refused(run(*words, "--resume"), "a run is resumed with its own data; changed: counts")


@pytest.mark.parametrize("by_module", [False, True])
def test_ctrl_c_in_training_is_one_line_that_names_resume(
    by_module: bool,
    run: Run,
    model_folder: Path,
    text_file: Path,
    counts_file: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    words = [str(word) for word in train_arguments(model_folder, text_file, counts_file)]
    more = ["--max_steps", "2000", "--save_steps", "2", "--stop_fraction", "0", "--temperature_factor", "1.001"]
    monkeypatch.setattr(sys, "argv", ["train.py", *words[1:], *more] if by_module else ["bigram-subnet", *words, *more])
    checkpoint = Path("masks/lambda10/checkpoints/attempt-0/checkpoint-2/trainer_state.json").absolute()

    def press() -> None:
        while not checkpoint.is_file():
            time.sleep(0.01)
        signal.raise_signal(signal.SIGINT)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background ignores it
    threading.Thread(target=press, daemon=True).start()
    try:
        with pytest.raises(SystemExit) as end:
            train_main() if by_module else main()
    finally:
        signal.signal(signal.SIGINT, before)
    captured = capsys.readouterr()
    assert (end.value.code, captured.out) == (130, "")
    assert captured.err.splitlines()[-1] == (
        "bigram-subnet train: interrupted; add --resume to go on from the last checkpoint"
    )
    assert "Traceback" not in captured.err


def test_a_hostile_pickle_is_refused_by_the_commands_too(run: Run, tmp_path: Path) -> None:
    (tmp_path / "mask.pickle").write_bytes(b"cos\nsystem\n(S'touch ran'\ntR.")
    refused(run("show", "mask.pickle"), "mask.pickle", "system", "refused")
    assert not (tmp_path / "ran").exists()


@pytest.mark.slow
def test_two_processes_find_the_mask_of_one(
    run: Run, model_folder: Path, text_file: Path, counts_file: Path, tmp_path: Path
) -> None:
    one = report_of(run(*train_arguments(model_folder, text_file, counts_file, "one"), "--device", "cpu"))
    arguments = [str(word) for word in train_arguments(model_folder, text_file, counts_file, "two")[1:]]
    ranks = run_torchrun("bigram_subnet.train", [*arguments, "--device", "cpu"], cwd=tmp_path)
    two = json.loads(ranks[0].stdout)
    assert ranks[1].stdout == ""
    assert two["masks"][0]["train_steps"] == one["masks"][0]["train_steps"]
    a, b = (SubnetworkMask.load(tmp_path / name / "lambda10") for name in ("one", "two"))
    assert (a - b).kept + (b - a).kept <= 0.002 * a.total  # sums of two halves round differently


@pytest.mark.slow
def test_a_killed_run_resumes_to_the_same_mask(
    run: Run, model_folder: Path, text_file: Path, counts_file: Path, tmp_path: Path
) -> None:
    import sys

    more = ["--max_steps", "40", "--save_steps", "5", "--device", "cpu", "--stop_fraction", "0"]

    def command(output: str) -> list[str]:
        words = [str(word) for word in train_arguments(model_folder, text_file, counts_file, output)[1:]]
        return [sys.executable, "-m", "bigram_subnet.train", *words, *more]

    checkpoint = tmp_path / "killed/lambda10/checkpoints/attempt-0/checkpoint-5/trainer_state.json"
    kill_and_resume(
        command("killed"), checkpoint.is_file, resume=[*command("killed"), "--resume"], cwd=tmp_path,
        env={"OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    report_of(run("train", *command("whole")[3:]))
    killed, whole = (SubnetworkMask.load(tmp_path / name / "lambda10") for name in ("killed", "whole"))
    assert killed == whole
    logs = [TrainLog.load(tmp_path / name / "lambda10/train_log.json") for name in ("killed", "whole")]
    assert logs[0].xent_loss_per_step == logs[1].xent_loss_per_step
