"""The command line from end to end, on real pictures and small real encoders."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open

from dota_clip import DotaAdapter
from dota_clip.cli import app
from nips_common.cli import run


def call(*args: object) -> int:
    with pytest.raises(SystemExit) as ended:
        run(app, [str(arg) for arg in args])
    code = ended.value.code
    return code if isinstance(code, int) else 0


def read_rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture
def adapt_arguments(digit_image_folder: Path, open_clip_folder: Path) -> list[object]:
    return ["adapt", digit_image_folder, "--model", open_clip_folder, "--batch-size", 8]


@pytest.fixture(scope="session")
def feature_file(digit_image_folder: Path, hf_clip_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("features") / "digits.safetensors"
    assert call("extract", digit_image_folder, "--model", hf_clip_folder, "-o", file) == 0
    return file


def test_adapt_writes_a_row_for_each_image_and_the_metrics_and_the_plot(
    adapt_arguments: list[object], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "out.jsonl"
    assert call(*adapt_arguments, "-o", output) == 0
    rows = read_rows(output)
    assert len({row["image"] for row in rows}) == len(rows) == 60
    for row in rows:
        for kind in ("zero_shot", "adapted"):
            probabilities = row[f"{kind}_probabilities"]
            assert sum(probabilities) == pytest.approx(1)
            assert row[kind] == max(range(10), key=probabilities.__getitem__)
            assert row[f"{kind}_probability"] == max(probabilities)
        assert row["label_name"] == row["image"].split("/")[0]
    metrics = json.loads(capsys.readouterr().out)
    assert metrics == json.loads((tmp_path / "out-metrics.json").read_text())
    assert metrics["run"]["eta"] == 0.3
    assert metrics["run"]["seed"] == 1
    assert metrics["adapted_accuracy"] == pytest.approx(100 * sum(r["adapted"] == r["label"] for r in rows) / 60)
    assert (tmp_path / "out-accuracy.png").read_bytes().startswith(b"\x89PNG")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out-accuracy.png", "out-metrics.json", "out.jsonl"]


def test_adapt_does_what_the_library_does(
    digit_image_folder: Path, open_clip_folder: Path, adapt_arguments: list[object], tmp_path: Path
) -> None:
    from dota_clip import load_encoder, zero_shot_weights
    from dota_clip.data.opening import open_dataset

    assert (
        call(*adapt_arguments, "-o", tmp_path / "out.jsonl", "--no-shuffle", "--eta", 3, "--covariance", "pooled") == 0
    )
    encoder = load_encoder(open_clip_folder, device="cpu")
    images = open_dataset(digit_image_folder)
    weights = zero_shot_weights(encoder, images.classnames, ["a photo of a {}."])
    from dota_clip import DotaConfig

    adapter = DotaAdapter(weights, DotaConfig(eta=3.0, covariance="pooled"), encoder.logit_scale)
    for item, row in zip(images.items, read_rows(tmp_path / "out.jsonl"), strict=True):
        expected = adapter.step(encoder.encode_image([item.load()])).logits.softmax(0)
        torch.testing.assert_close(torch.tensor(row["adapted_probabilities"]), expected, atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize("method", ["dota", "tda", "zeroshot"])
@pytest.mark.parametrize("model", ["hf_clip_folder", "hf_siglip_folder"])
def test_every_method_runs_on_every_encoder_with_several_views(
    method: str, model: str, digit_image_folder: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    folder = request.getfixturevalue(model)
    arguments = ["--views", 10, "--view-fraction", 0.3, "--limit", 6, "--dtype", "bfloat16"]
    output = tmp_path / "out.jsonl"
    assert call("adapt", digit_image_folder, "--model", folder, "--method", method, "-o", output, *arguments) == 0
    rows = read_rows(output)
    assert len(rows) == 6
    assert all((row["fusion_weight"] is not None) == (method == "dota") for row in rows)
    assert all(row["adapted"] == row["zero_shot"] for row in rows if method == "zeroshot")


def test_unlabelled_photographs_are_classified_among_given_names(
    photo_folder: Path, open_clip_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "names.txt").write_text("temple\nflower\n")
    output = tmp_path / "out.jsonl"
    arguments = ["--classnames", tmp_path / "names.txt", "-o", output]
    assert call("adapt", photo_folder, "--model", open_clip_folder, *arguments) == 0
    assert {row["adapted_name"] for row in read_rows(output)} <= {"temple", "flower"}
    metrics = json.loads(capsys.readouterr().out)
    assert metrics["labelled"] == 0
    assert metrics["adapted_accuracy"] is None
    assert not (tmp_path / "out-accuracy.png").exists()


def test_parquet_and_json_lines_hold_the_same(adapt_arguments: list[object], tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    assert call(*adapt_arguments, "-o", tmp_path / "out.jsonl", "--no-plot") == 0
    assert call(*adapt_arguments, "-o", tmp_path / "out.parquet", "--no-plot") == 0
    table = pq.read_table(tmp_path / "out.parquet")
    assert table.to_pylist() == read_rows(tmp_path / "out.jsonl")


def test_a_finished_state_gives_its_output_again_without_work(
    adapt_arguments: list[object], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    arguments = [*adapt_arguments, "--state", tmp_path / "state"]
    assert call(*arguments, "-o", tmp_path / "first.jsonl") == 0
    assert call(*arguments, "-o", tmp_path / "again.jsonl") == 0
    assert "resuming at image 60 of 60" in caplog.text
    assert (tmp_path / "first.jsonl").read_text() == (tmp_path / "again.jsonl").read_text()
    adapter = DotaAdapter.from_pretrained(tmp_path / "state" / "stream-0-of-1")
    assert int(adapter.num_samples) == 60


@pytest.mark.parametrize("method", ["dota", "tda"])
def test_a_stream_stopped_midway_ends_as_if_it_had_not(
    method: str, adapt_arguments: list[object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = [*adapt_arguments, "--method", method, "--save-every", 10]
    if method == "dota":
        arguments += ["--feedback-gamma", 0.2]
    assert call(*arguments, "-o", tmp_path / "whole.jsonl") == 0

    from dota_clip import adapt

    real, calls = adapt._decide, []

    def stop_at_the_sixth_batch(*args: Any) -> Any:
        calls.append(1)
        if len(calls) == 6:
            raise KeyboardInterrupt
        return real(*args)

    monkeypatch.setattr(adapt, "_decide", stop_at_the_sixth_batch)
    resumed = [*arguments, "--state", tmp_path / "state", "-o", tmp_path / "resumed.jsonl"]
    assert call(*resumed) == 130
    assert not (tmp_path / "resumed.jsonl").exists()
    monkeypatch.setattr(adapt, "_decide", real)
    assert call(*resumed) == 0
    assert (tmp_path / "resumed.jsonl").read_text() == (tmp_path / "whole.jsonl").read_text()


def test_a_state_of_another_run_is_refused_with_what_differs(
    adapt_arguments: list[object], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [*adapt_arguments, "--state", tmp_path / "state", "-o", tmp_path / "out.jsonl"]
    assert call(*arguments) == 0
    assert call(*arguments, "--seed", 7, "--views", 1, "--limit", 20) == 2
    message = capsys.readouterr().err.splitlines()[-1]
    assert "limit was None, now 20" in message
    assert "seed was 1, now 7" in message
    assert call(*arguments, "--seed", 7, "--restart") == 0


def test_a_dry_run_also_checks_the_state(
    adapt_arguments: list[object], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [*adapt_arguments, "--state", tmp_path / "state", "-o", tmp_path / "out.jsonl"]
    assert call(*arguments) == 0
    assert call(*arguments, "--eta", 0.5, "--dry-run") == 2
    assert "eta was 0.3, now 0.5" in capsys.readouterr().err.splitlines()[-1]


def test_a_learned_state_goes_on_with_other_images_of_the_same_classes(
    digit_image_folder: Path, open_clip_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for part, numbers in (("one", "012"), ("two", "345")):
        for folder in digit_image_folder.iterdir():
            (tmp_path / part / folder.name).mkdir(parents=True)
            for number in numbers:
                shutil.copy(folder / f"{number}.png", tmp_path / part / folder.name)
    options = ["--model", open_clip_folder, "--no-plot", "-o", tmp_path / "out.jsonl"]
    assert call("adapt", tmp_path / "one", *options, "--state", tmp_path / "state") == 0
    learned = tmp_path / "state" / "stream-0-of-1"
    first = DotaAdapter.from_pretrained(learned)
    assert call("adapt", tmp_path / "two", *options, "--start-from", learned, "--state", tmp_path / "later") == 0
    assert int(DotaAdapter.from_pretrained(tmp_path / "later" / "stream-0-of-1").num_samples) == 60
    assert int(first.num_samples) == 30
    assert call("adapt", tmp_path / "two", *options, "--start-from", learned, "--eta", "0.5") == 2
    assert "was learned with" in capsys.readouterr().err


def test_a_damaged_state_is_one_line(
    adapt_arguments: list[object], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [*adapt_arguments, "--state", tmp_path / "state", "-o", tmp_path / "out.jsonl"]
    assert call(*arguments) == 0
    weights = tmp_path / "state" / "stream-0-of-1" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    assert call(*arguments) == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith("dota-clip: error:")
    assert "model.safetensors: truncated" in error


def test_a_shortened_log_is_refused(
    adapt_arguments: list[object], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [*adapt_arguments, "--state", tmp_path / "state", "-o", tmp_path / "out.jsonl"]
    assert call(*arguments) == 0
    log = tmp_path / "state" / "stream-0-of-1.jsonl"
    log.write_bytes(log.read_bytes()[:50])
    assert call(*arguments) == 2
    assert "holds 50 bytes" in capsys.readouterr().err


def test_unreadable_images_are_named_and_counted_or_fatal(
    digit_image_folder: Path,
    open_clip_folder: Path,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = tmp_path / "digits"
    shutil.copytree(digit_image_folder, folder)
    (folder / "three" / "2.png").write_bytes(b"no picture")
    arguments = ["adapt", folder, "--model", open_clip_folder, "-o", tmp_path / "out.jsonl"]
    assert call(*arguments) == 0
    metrics = json.loads(capsys.readouterr().out)
    assert (metrics["images"], metrics["skipped"], metrics["skipped_images"]) == (59, 1, ["three/2.png"])
    assert "three/2.png" in caplog.text
    assert call(*arguments, "--strict") == 2
    assert "three/2.png" in capsys.readouterr().err.splitlines()[-1]


def test_a_dry_run_says_what_would_run_and_writes_nothing(
    adapt_arguments: list[object], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(*adapt_arguments, "-o", tmp_path / "out.jsonl", "--dry-run", "--limit", 50) == 0
    plan = json.loads(capsys.readouterr().out)
    assert (plan["images"], plan["classes"], plan["dimension"]) == (50, 10, 32)
    adapter = DotaAdapter(torch.eye(32)[:, :10])
    held = sum(buffer.nbytes for buffer in adapter.buffers()) + adapter.mean.nbytes  # and the whitened means
    assert plan["state_bytes_per_stream"] == pytest.approx(held, abs=100)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--method", "magic"], "dota, tda, zeroshot"),
        (["--preset", "dtdd"], "caltech101, dtd"),
        (["--eta", "-1"], "eta must be at least 0"),
        (["--covariance", "huge"], "full, pooled, diagonal, fixed"),
        (["--views", "0"], "views must be at least 1"),
        (["--views", "5"], "keeps none"),
        (["--dtype", "int3"], "bfloat16"),
        (["--device", "gpu"], "device must be"),
        (["--model", "nowhere"], "nowhere"),
        (["--dataset", "eurosatt"], "eurosat"),
        (["--batch-size", "0"], "batch-size"),
        (["--method", "tda", "--feedback-gamma", "0.1"], "method dota"),
        (["--method", "tda", "--eta", "1"], "--eta: a setting of DOTA"),
        (["--bogus"], "bogus"),
    ],
)
def test_one_wrong_option_is_one_line_and_exit_code_2(
    options: list[str], words: str, adapt_arguments: list[object], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(*adapt_arguments, "-o", tmp_path / "out.jsonl", *options) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert words in captured.err.splitlines()[-1]
    assert "Traceback" not in captured.err
    assert list(tmp_path.iterdir()) == []


def test_an_output_of_another_kind_is_refused_before_any_work(
    adapt_arguments: list[object], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(*adapt_arguments, "-o", tmp_path / "out.csv") == 2
    assert ".jsonl or .parquet, got '.csv'" in capsys.readouterr().err


def test_duplicate_class_names_are_refused(
    photo_folder: Path, open_clip_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "names.txt").write_text("temple\nflower\ntemple\n")
    arguments = ["--classnames", tmp_path / "names.txt", "-o", tmp_path / "out.jsonl"]
    assert call("adapt", photo_folder, "--model", open_clip_folder, *arguments) == 2
    assert "'temple' given more than once" in capsys.readouterr().err


def test_extract_keeps_everything_that_run_needs(feature_file: Path) -> None:
    with safe_open(feature_file, "pt") as file:
        assert file.get_slice("features").get_shape() == [60, 16]
        assert file.get_slice("class_weights").get_shape() == [16, 10]
        assert file.get_tensor("labels").bincount().tolist() == [6] * 10
        assert json.loads(file.metadata()["logit_scale"]) == pytest.approx(100)


def test_run_gives_what_adapt_gives_on_the_same_order(
    feature_file: Path,
    digit_image_folder: Path,
    hf_clip_folder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    options = ["--preset", "eurosat", "--seed", 3]
    capsys.readouterr()
    assert call("run", "--features", feature_file, *options, "-o", tmp_path / "run.jsonl") == 0
    report = json.loads(capsys.readouterr().out)
    assert report["settings"]["eta"] == 3.0
    arguments = ["--model", hf_clip_folder, "-o", tmp_path / "adapt.jsonl", "--no-plot"]
    assert call("adapt", digit_image_folder, *arguments, *options) == 0
    ours, theirs = read_rows(tmp_path / "run.jsonl"), read_rows(tmp_path / "adapt.jsonl")
    assert [row["image"] for row in ours] == [row["image"] for row in theirs]
    for one, other in zip(ours, theirs, strict=True):
        assert one["adapted_probabilities"] == pytest.approx(other["adapted_probabilities"], abs=1e-3)


def test_run_reports_the_spread_over_several_orders(feature_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert call("run", "--features", feature_file, "--seed", 1, "--seed", 2, "--seed", 3) == 0
    report = json.loads(capsys.readouterr().out)
    assert [stream["seed"] for stream in report["streams"]] == [1, 2, 3]
    assert report["zero_shot_accuracy_std"] == pytest.approx(0)
    assert report["adapted_accuracy_std"] is not None


def test_run_with_feedback_counts_the_questions(feature_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert call("run", "--features", feature_file, "--feedback-gamma", 0.3) == 0
    assert 0 < json.loads(capsys.readouterr().out)["streams"][0]["asked"] < 60


def test_version_and_help() -> None:
    assert call("--version") == 0
    for command in ("adapt", "extract", "run"):
        assert call(command, "--help") == 0


@pytest.mark.slow
def test_two_processes_are_two_independent_streams(
    digit_image_folder: Path, open_clip_folder: Path, tmp_path: Path
) -> None:
    from nips_common.testing.torchrun import run_torchrun

    arguments = [str(digit_image_folder), "--model", str(open_clip_folder), "--state", str(tmp_path / "state")]
    run_torchrun("dota_clip.adapt", [*arguments, "-o", str(tmp_path / "both.jsonl")], nproc=2, timeout=240)
    rows = read_rows(tmp_path / "both.jsonl")
    assert len({row["image"] for row in rows}) == 60
    assert [row["stream"] for row in rows] == [0] * 30 + [1] * 30
    from dota_clip.streaming.places import visiting_order

    order = visiting_order(60, True, 1, None)
    assert [row["index"] for row in rows if row["stream"] == 1] == order[1::2]
    assert json.loads((tmp_path / "both-metrics.json").read_text())["streams"] == 2
    # a state of two streams is not resumed by one
    alone = ["adapt", *arguments, "-o", str(tmp_path / "one.jsonl")]
    assert call(*alone) == 2


@pytest.mark.slow
def test_a_killed_run_resumes_to_the_same_output(
    digit_image_folder: Path, open_clip_folder: Path, tmp_path: Path
) -> None:
    from nips_common.testing.interrupt import kill_and_resume

    arguments = [
        "adapt",
        str(digit_image_folder),
        "--model",
        str(open_clip_folder),
        "--batch-size",
        "10",
        "--views",
        "10",
    ]
    assert call(*arguments, "-o", tmp_path / "whole.jsonl") == 0
    state = tmp_path / "state"
    command = [sys.executable, "-m", "dota_clip.adapt", *arguments[1:], "--state", str(state), "--save-every", "1"]
    kill_and_resume(
        [*command, "-o", str(tmp_path / "resumed.jsonl")],
        when=lambda: (state / "stream-0-of-1" / "progress.json").exists(),
        env={**os.environ, "HF_HUB_OFFLINE": "1"},
        timeout=240,
    )
    assert (tmp_path / "resumed.jsonl").read_text() == (tmp_path / "whole.jsonl").read_text()
