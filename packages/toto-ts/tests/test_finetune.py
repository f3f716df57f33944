"""Training: it learns, keeps the best, resumes exactly, and two processes agree with one."""

from __future__ import annotations

import json
import math
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from nips_common.testing.bad_input import BadInput, bad_inputs
from nips_common.testing.torchrun import run_torchrun
from toto_ts import CompositeLoss, FinetuneConfig, Toto, TotoForecaster, WarmupStableDecay, next_patch_loss

sys.path.insert(0, str(Path(__file__).parent))
import training_runs

from toto_ts.finetune import prepare_data
from toto_ts.resume import last_checkpoint
from toto_ts.trainer import NextPatch, last_valid, run_training
from toto_ts.windows import collate

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore:.*pin_memory:UserWarning")


def losses(history: list[dict[str, Any]], key: str = "loss") -> list[float]:
    return [entry[key] for entry in history if key in entry]


def test_training_lowers_the_loss_and_gives_the_best_weights(tmp_path: Path) -> None:
    start = training_runs.model()
    result = training_runs.run(tmp_path / "run", max_steps=40, stable_steps=28, decay_steps=10)
    assert not result.model.training
    assert any(not torch.equal(a, b) for a, b in zip(result.model.parameters(), start.parameters(), strict=True))
    first, last = losses(result.history)[:5], losses(result.history)[-5:]
    assert sum(last) < 0.9 * sum(first)
    validation = losses(result.history, "eval_loss")
    assert len(validation) == 10
    assert result.best_val_loss == pytest.approx(min(validation))
    loaded = Toto.from_pretrained(tmp_path / "run")
    assert result.checkpoint_dir == tmp_path / "run"
    assert all(torch.equal(t, result.model.state_dict()[name]) for name, t in loaded.state_dict().items())
    data = prepare_data(training_runs.series(), 8, FinetuneConfig(**training_runs.RECIPE))
    again = [float(validation_loss(loaded, data.validation[i])) for i in range(3)]
    assert sum(again) / 3 == pytest.approx(result.best_val_loss, rel=1e-4)


def validation_loss(model: Toto, window: Any) -> torch.Tensor:
    """The loss of a window's last steps, from the public pieces."""
    batch = collate([window])
    labels = last_valid(batch.pop("labels"), 96) != -100
    series, mask, ids = batch["series"], batch["padding_mask"], batch["id_mask"]
    with torch.no_grad():
        output = model(series[..., :-8], mask[..., :-8], ids[..., :-8], num_exogenous=batch["num_exogenous"])
        return next_patch_loss(output, series[..., 8:], labels)


def test_the_rates_are_those_of_the_schedule() -> None:
    result = training_runs.run(None)
    optimizer = torch.optim.AdamW([torch.zeros(1)], lr=5e-3)
    schedule = WarmupStableDecay(optimizer, 2, 6, 4, min_lr=1e-4)
    expected = []
    for _ in range(training_runs.STEPS):
        expected.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    # the Trainer logs the rate of the step to come, or of the one that was, by its version
    logged = losses(result.history, "learning_rate")
    assert logged == pytest.approx(expected) or logged[:-1] == pytest.approx(expected[1:])
    assert result.checkpoint_dir is None


def test_a_run_that_goes_on_from_a_checkpoint_ends_where_the_whole_one_does(tmp_path: Path) -> None:
    whole = training_runs.run(tmp_path / "whole")
    assert last_checkpoint(tmp_path / "whole") == tmp_path / "whole" / "checkpoint-12"
    recipe = FinetuneConfig(output_dir=str(tmp_path / "again"), **training_runs.RECIPE)
    checkpoint = next(path for path in (tmp_path / "whole").glob("checkpoint-*") if path.name != "checkpoint-12")
    resumed = run_training(training_runs.model(), training_runs.series(), recipe, checkpoint=checkpoint)
    assert resumed.best_val_loss == whole.best_val_loss
    for name, tensor in whole.model.state_dict().items():
        assert torch.equal(tensor, resumed.model.state_dict()[name]), name


def test_known_futures_are_trained_with_labels_and_forecast_with_the_same_shift(tmp_path: Path) -> None:
    data = training_runs.series(exogenous=True)
    result = training_runs.run(tmp_path, data, max_steps=4, val_interval=2)
    assert result.model.model.exogenous_variate_label is not None
    loaded = TotoForecaster(Toto.from_pretrained(tmp_path))
    values = torch.cat([torch.from_numpy(data[0]["target"]), torch.from_numpy(data[0]["exogenous"])])
    forecast = loaded.forecast(
        values[:, :200], 16, num_samples=4, seed=0, future_exogenous=values[2:, 200:216], shift_exogenous=True
    )
    assert bool(forecast.samples.isfinite().all())


def test_what_the_network_sees_in_training_is_what_the_forecaster_shows_it() -> None:
    model, seen = training_runs.model().eval(), []
    model.model.patch_embed.register_forward_hook(lambda module, inputs, output: seen.append(inputs[0]))
    data = training_runs.series()
    data[0][:, 20:31] = float("nan")
    window = prepare_data(data[:1], 8, FinetuneConfig(**training_runs.RECIPE)).train[3]
    for fill in ("mean", "zero", "last"):
        batch = collate([window])
        NextPatch(model, CompositeLoss(), fill)(**batch)
        TotoForecaster(model, fill=fill).forecast(batch["series"][..., :-8], 8, num_samples=None)
        torch.testing.assert_close(seen[-2], seen[-1])


def test_only_the_last_valid_targets_count_in_validation() -> None:
    labels = torch.tensor([[0, 0, -100, 0, -100], [-100, -100, -100, -100, 0]])
    expected = [[-100, 0, -100, 0, -100], [-100, -100, -100, -100, 0]]
    assert last_valid(labels, 2).tolist() == expected


def test_accumulated_batches_take_the_step_of_the_whole_batch(tmp_path: Path) -> None:
    data = training_runs.series()
    data[0][:, 40:90] = float("nan")  # batches of unequal weight
    whole = training_runs.run(None, data, training_runs.model(0.0), max_steps=4)
    parts = training_runs.run(
        None, data, training_runs.model(0.0), max_steps=4, train_batch_size=2, gradient_accumulation_steps=4
    )
    for name, tensor in whole.model.state_dict().items():
        torch.testing.assert_close(parts.model.state_dict()[name], tensor, atol=1e-4, rtol=1e-3)


@pytest.mark.parametrize("precision", ["bf16"])
def test_mixed_precision_stays_near(precision: Any) -> None:
    exact = training_runs.run(None, started=training_runs.model(0.0), max_steps=6)
    rough = training_runs.run(None, started=training_runs.model(0.0), max_steps=6, precision=precision)
    assert losses(rough.history) == pytest.approx(losses(exact.history), rel=0.05)
    assert {p.dtype for p in rough.model.parameters()} == {torch.float32}


@pytest.mark.slow
def test_two_processes_train_to_the_weights_of_one_with_the_doubled_batch(tmp_path: Path) -> None:
    run_torchrun(training_runs.__file__, [str(tmp_path / "two"), "4"], nproc=2, timeout=300)
    one = training_runs.run(tmp_path / "one", started=training_runs.model(0.0), train_batch_size=8).model
    two = Toto.from_pretrained(tmp_path / "two")
    start = training_runs.model(0.0).state_dict()
    moved = 0.0
    for name, tensor in one.state_dict().items():
        torch.testing.assert_close(two.state_dict()[name], tensor, atol=1e-4, rtol=1e-3)
        moved = max(moved, float((tensor - start[name]).abs().max()))
    assert moved > 0.01


@bad_inputs(
    [
        BadInput("model", lambda: training_runs.run(None, started="toto"), ("a Toto", "str")),  # type: ignore[arg-type]
        BadInput("steps", lambda: FinetuneConfig(max_steps=0), ("max_steps", "at least 1", "0")),
        BadInput("text", lambda: FinetuneConfig(seed="1"), ("seed", "whole number", "'1'")),  # type: ignore[arg-type]
        BadInput("rate", lambda: FinetuneConfig(learning_rate=1e-6), ("learning_rate", "min_lr=1e-05", "1e-06")),
        BadInput("rate nan", lambda: FinetuneConfig(learning_rate=math.nan), ("learning_rate", "nan")),
        BadInput("test part", lambda: FinetuneConfig(test_fraction=1.0), ("test_fraction", "[0, 1)", "1.0")),
        BadInput("norm", lambda: FinetuneConfig(max_grad_norm=-1.0), ("max_grad_norm", "-1.0")),
        BadInput("rate as text", lambda: FinetuneConfig(learning_rate="1"), ("learning_rate", "a number", "'1'")),  # type: ignore[arg-type]
        BadInput("moment", lambda: FinetuneConfig(adam_beta2=1.0), ("adam_beta2", "below 1", "1.0")),
        BadInput("decay", lambda: FinetuneConfig(weight_decay=-0.1), ("weight_decay", "at least 0", "-0.1")),
        BadInput("fill", lambda: FinetuneConfig(fill="median"), ("fill", "'median'")),  # type: ignore[arg-type]
        BadInput("precision", lambda: FinetuneConfig(precision="int8"), ("precision", "'int8'")),  # type: ignore[arg-type]
        BadInput("alpha", lambda: FinetuneConfig(alpha=3.0), ("alpha", "at most 2", "3.0")),
        BadInput("options", lambda: FinetuneConfig(trainer_options="[1]"), ("trainer_options", "JSON object", "[1]")),
        BadInput("broken options", lambda: FinetuneConfig(trainer_options="{"), ("trainer_options", "JSON object")),
        BadInput(
            "unknown option",
            lambda: training_runs.run(None, trainer_options={"tpu": 1}),
            ("trainer_options", "tpu"),
        ),
        BadInput("short", lambda: training_runs.run(None, [training_runs.series()[0][:, :30]]), ("long enough", "30")),
    ]
)
def test_a_recipe_that_cannot_be_is_refused(case: BadInput) -> None:
    case.check()


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a short run with two checkpoints, 4 and 8."""
    folder = tmp_path_factory.mktemp("finished")
    training_runs.run(folder, max_steps=8)
    return folder


@pytest.mark.parametrize(
    "name", ["trainer_state.json", "model.safetensors", "optimizer.pt", "scheduler.pt", "rng_state.pth"]
)
@pytest.mark.parametrize("damage", ["truncated", "missing"])
def test_an_unfinished_checkpoint_is_passed_over(
    finished: Path, tmp_path: Path, name: str, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    shutil.copytree(finished, tmp_path, dirs_exist_ok=True)
    assert last_checkpoint(tmp_path) == tmp_path / "checkpoint-8"
    file = tmp_path / "checkpoint-8" / name
    content = file.read_bytes()
    file.unlink() if damage == "missing" else file.write_bytes(content[: len(content) // 2])
    assert last_checkpoint(tmp_path) == tmp_path / "checkpoint-4"
    assert name in caplog.text
    assert last_checkpoint(tmp_path / "nothing") is None


def test_of_a_sharded_checkpoint_only_the_state_is_looked_at(tmp_path: Path) -> None:
    for step, whole in ((4, True), (8, False)):
        (tmp_path / f"checkpoint-{step}").mkdir()
        state = tmp_path / f"checkpoint-{step}" / "trainer_state.json"
        state.write_text(json.dumps({"global_step": step}) if whole else '{"global')
    assert last_checkpoint(tmp_path, sharded=True) == tmp_path / "checkpoint-4"
    assert last_checkpoint(tmp_path) is None
