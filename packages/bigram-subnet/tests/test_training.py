"""Training: a known Markov chain is found, runs repeat and resume exactly, and accumulation is what it says."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.data import Dataset
from transformers import PreTrainedModel, TrainerCallback

from bigram_subnet import (
    BigramCounts,
    ContinuousSparsifier,
    NgramTarget,
    SelfTarget,
    SparsifyConfig,
    SubnetworkMask,
    TrainLog,
    ablation_report,
    apply_mask,
    distribution_cross_entropy,
    surprisal,
    surprisal_correlation,
    train_subnetwork,
)
from bigram_subnet.train import train
from bigram_subnet.training.arguments import TrainArguments
from bigram_subnet.training.subnetwork import newest_checkpoint, run_attempts
from bigram_subnet.training.trainer import MaskTrainer

MakeModel = Callable[..., PreTrainedModel]
V = 40
FEW = SparsifyConfig(batch_size=4, max_steps=6, learning_rate=0.05, temperature_factor=1.2)


@pytest.fixture
def data() -> Tensor:
    return torch.randint(0, V, (16, 10), generator=torch.Generator().manual_seed(0))


@pytest.fixture
def target(data: Tensor) -> NgramTarget:
    return NgramTarget(BigramCounts.from_sequences(data, V))


def markov_chain(sequences: int, length: int, seed: int) -> Tensor:
    """Sequences of a chain over eight states with two likely successors each."""
    generator = torch.Generator().manual_seed(seed)
    matrix = torch.full((8, 8), 0.02)
    for state in range(8):
        matrix[state, (3 * state + 1) % 8] += 0.6
        matrix[state, (5 * state + 2) % 8] += 0.24
    rows = [torch.randint(0, 8, (sequences,), generator=generator)]
    for _ in range(length - 1):
        rows.append(torch.multinomial(matrix[rows[-1]], 1, generator=generator).squeeze(1))
    return torch.stack(rows, 1)


def test_the_bigram_circuit_of_a_markov_chain_is_found_and_needed(make_model: MakeModel) -> None:
    """10.19: r >= 0.95, and without the circuit the loss rises more than without a random one of the same size."""
    model, chain = make_model("gpt_neox"), markov_chain(64, 24, 0)
    held_out = markov_chain(32, 24, 1)
    model.requires_grad_(True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    for step in range(120):
        batch = chain[step * 16 % 64 :][:16]
        logits = model(input_ids=batch).logits[:, :-1]
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    counts = BigramCounts.from_sequences(chain, V)
    config = SparsifyConfig(l0_lambda=0.5, learning_rate=0.03, temperature_factor=1.05, batch_size=16, max_steps=100)
    mask, log = train_subnetwork(model, NgramTarget(counts), chain, config)
    with torch.no_grad():
        bits = surprisal(apply_mask(model, mask)(input_ids=held_out).logits, held_out)
    assert surprisal_correlation(bits, counts.token_surprisal(held_out)[:, 1:]) >= 0.95
    report = ablation_report(model, mask, held_out, torch.Generator().manual_seed(0))
    assert report["ablated"] > report["random_ablated"]
    assert 0 < mask.kept < mask.total
    assert log.stable


def test_a_run_repeats_exactly_and_its_seed_is_the_order_of_the_data(
    make_model: MakeModel, data: Tensor, target: NgramTarget
) -> None:
    (a, log_a), (b, log_b), (_, other) = (
        train_subnetwork(make_model("gpt2"), target, data, SparsifyConfig(**{**vars(FEW), "seed": seed}))
        for seed in (0, 0, 1)
    )
    assert a == b
    assert log_a.xent_loss_per_step == log_b.xent_loss_per_step != other.xent_loss_per_step


def test_the_log_has_the_official_keys(
    make_model: MakeModel, data: Tensor, target: NgramTarget, tmp_path: Path
) -> None:
    mask, log = train_subnetwork(make_model("gpt2"), target, data, FEW)
    official = (
        "outpath model_dir checkpoint train_inputs train_steps max_steps grad_acc_steps learning_rate batch_size "
        "temp_increase l0_lambda mask_size target_layers xent_loss_per_step proportion_kept ngram_n ngram_correlation "
        "ngram_xent ngram_corr_dropinf distill_correlation distill_xent"
    )
    assert set(official.split()) <= vars(log).keys()
    assert (log.train_steps, log.max_steps, log.batch_size, log.l0_lambda) == (6, 6, 4, 10.0)
    assert (log.mask_size, log.proportion_kept) == (mask.kept, mask.kept / mask.total)
    assert log.target_layers == [name.removesuffix(".weight") for name in mask]
    assert log.temperature == pytest.approx(1.2**6)
    log.xent_loss_per_step[2] = math.inf
    log.save(tmp_path / "log.json")
    found = TrainLog.load(tmp_path / "log.json")
    assert math.isnan(found.xent_loss_per_step.pop(2))
    log.xent_loss_per_step.pop(2)
    assert found == log


def test_a_run_is_plain_adamw_on_the_scores(make_model: MakeModel, data: Tensor, target: NgramTarget) -> None:
    """The Trainer adds nothing: no clipping, no schedule, no other order."""
    config = SparsifyConfig(**{**vars(FEW), "max_steps": 5, "stop_fraction": 0})
    mask, log = train_subnetwork(make_model("gpt2"), target, data, config)
    sparsifier = ContinuousSparsifier(make_model("gpt2"))
    optimizer = torch.optim.AdamW(sparsifier.scores, lr=0.05, weight_decay=0.01)
    order = torch.randperm(16, generator=torch.Generator().manual_seed(0))
    losses = []
    for step in range(5):
        batch = data[order[torch.arange(4 * step, 4 * step + 4) % 16]]
        xent = distribution_cross_entropy(sparsifier(batch).logits, target(batch))
        optimizer.zero_grad()
        (xent + 10 * sparsifier.mean_mask()).backward()
        optimizer.step()
        sparsifier.temperature *= 1.2
        losses.append(xent.item())
    assert log.xent_loss_per_step == pytest.approx(losses, abs=1e-5)
    assert mask == sparsifier.hard_mask()


def test_accumulated_micro_batches_are_one_large_batch(
    make_model: MakeModel, data: Tensor, target: NgramTarget
) -> None:
    small = SparsifyConfig(**{**vars(FEW), "batch_size": 2, "max_steps": 8, "grad_accumulation": 2})
    large = SparsifyConfig(**{**vars(FEW), "batch_size": 4, "max_steps": 4})
    (a, log_a), (b, log_b) = (train_subnetwork(make_model("gpt2"), target, data, each) for each in (small, large))
    assert log_a.xent_loss_per_step == pytest.approx(log_b.xent_loss_per_step, abs=1e-5)
    assert len(log_a.xent_loss_per_step) == 4
    assert (log_a.train_steps, log_b.train_steps) == (8, 4)
    assert a == b


def test_a_resumed_run_gives_the_same_mask_and_losses(
    make_model: MakeModel, data: Tensor, target: NgramTarget, tmp_path: Path
) -> None:
    config = SparsifyConfig(**{**vars(FEW), "max_steps": 12, "grad_accumulation": 2})
    save: dict[str, Any] = {"save_strategy": "steps", "save_steps": 2}
    whole, whole_log = run_attempts(make_model("gpt2"), target, data, config, tmp_path / "whole", **save)

    class Stop(TrainerCallback):
        def on_step_end(self, args: object, state: object, control: object, **kwargs: object) -> None:
            if state.global_step == 3:  # type: ignore[attr-defined]
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_attempts(
            make_model("gpt2"), target, data, config, tmp_path / "cut",
            watch=lambda trainer: trainer.add_callback(Stop()), **save,
        )  # fmt: skip
    started: list[int] = []

    class Note(TrainerCallback):
        def on_step_begin(self, args: object, state: object, control: object, **kwargs: object) -> None:
            started.append(state.global_step)  # type: ignore[attr-defined]

    def watch(trainer: MaskTrainer) -> None:
        trainer.add_callback(Note())

    resumed, log = run_attempts(
        make_model("gpt2"), target, data, config, tmp_path / "cut", resume=True, watch=watch, **save
    )
    assert started == [2, 3, 4, 5]
    assert resumed == whole
    assert log.xent_loss_per_step == whole_log.xent_loss_per_step
    assert log.temperature == whole_log.temperature


def test_training_stops_once_the_mask_is_decided(make_model: MakeModel, data: Tensor, target: NgramTarget) -> None:
    config = SparsifyConfig(l0_lambda=0.0, batch_size=4, max_steps=400, learning_rate=0.05, temperature_factor=1.3)
    mask, log = train_subnetwork(make_model("gpt2"), target, data, config)
    assert log.stop_reason == "decided"
    assert log.train_steps < 100
    assert len(log.xent_loss_per_step) == log.train_steps
    assert log.temperature == pytest.approx(1.3 ** (log.train_steps - 1))  # not raised after the last step
    assert 0.1 < mask.kept / mask.total < 0.9  # lambda 0 keeps about half
    _, longer = train_subnetwork(
        make_model("gpt2"), target, data, SparsifyConfig(**{**vars(config), "stop_fraction": 0, "max_steps": 60})
    )
    assert (longer.stop_reason, longer.train_steps) == ("max_steps", 60)


def test_an_empty_subnetwork_ends_training_and_says_so(
    make_model: MakeModel, data: Tensor, target: NgramTarget, caplog: pytest.LogCaptureFixture
) -> None:
    config = SparsifyConfig(l0_lambda=1e6, batch_size=4, max_steps=200, learning_rate=0.5, temperature_factor=1.1)
    mask, log = train_subnetwork(make_model("gpt2"), target, data, config)
    assert log.stop_reason == "empty subnetwork"
    assert log.train_steps < 50
    assert mask.kept == 0
    assert "the subnetwork is empty: lambda 1e+06" in caplog.text


def test_an_unstable_run_is_tried_again_in_another_order(
    make_model: MakeModel, data: Tensor, caplog: pytest.LogCaptureFixture
) -> None:
    jumping = torch.tensor([0.2, 5.0])

    def target(input_ids: Tensor) -> Tensor:  # no distribution: its scale makes the loss jump at every step
        scale = jumping[0].clone()
        jumping.copy_(jumping.flip(0))
        return scale * torch.full((*input_ids.shape, V), 1 / V)

    _, log = train_subnetwork(make_model("gpt2"), target, data, FEW)
    assert (log.attempt, log.seed, log.stable) == (3, 2, False)
    assert caplog.text.count("unstable") == 3


def test_the_self_target_is_the_models_distribution_and_trains_an_optimal_mask(
    make_model: MakeModel, data: Tensor
) -> None:
    model = make_model("llama")
    target = SelfTarget(model)
    with torch.no_grad():
        torch.testing.assert_close(target(data), model(data).logits.softmax(-1))
    config = SparsifyConfig(l0_lambda=0.0, batch_size=8, max_steps=60, learning_rate=0.1, temperature_factor=1.03)
    mask, log = train_subnetwork(model, target, data, config)
    assert log.xent_loss_per_step[-1] < log.xent_loss_per_step[0]
    with torch.no_grad():
        empty, found = (
            distribution_cross_entropy(apply_mask(model, each)(data).logits, target(data))
            for each in (SubnetworkMask.empty(model), mask)
        )
    assert found < empty


def test_any_callable_and_any_data_set_of_rows_will_do(
    make_model: MakeModel, data: Tensor, target: NgramTarget
) -> None:
    class Rows(Dataset[dict[str, list[int]]]):
        def __len__(self) -> int:
            return len(data)

        def __getitem__(self, index: int) -> dict[str, list[int]]:
            return {"input_ids": data[index].tolist()}

    (a, _), (b, _) = (
        train_subnetwork(make_model("gpt2"), lambda ids: target(ids), rows, FEW) for rows in (data, Rows())
    )
    assert a == b


def test_a_bfloat16_model_trains_float32_scores(make_model: MakeModel, data: Tensor, target: NgramTarget) -> None:
    model = make_model("llama").to(torch.bfloat16)
    mask, log = train_subnetwork(model, target, data, FEW)
    assert all(math.isfinite(loss) for loss in log.xent_loss_per_step)
    assert {weight.dtype for weight in model.parameters()} == {torch.bfloat16}
    assert mask.total == sum(value.numel() for value in mask.values())


@pytest.fixture(autouse=True)
def _nothing_is_printed(capfd: pytest.CaptureFixture[str]) -> Iterator[None]:
    yield
    assert capfd.readouterr().out == ""


def test_data_that_cannot_be_trained_on_are_refused(make_model: MakeModel, data: Tensor, target: NgramTarget) -> None:
    model = make_model("gpt2")
    for bad, words in (
        (data[:3], "at least one micro-batch of 4 sequences, got 3"),
        (data.float(), "whole numbers"),
        (data[0], r"\(10,\)"),
        (data + V, "vocabulary, 0 to 39, got 40"),
        (iter(data), "a data set with a length"),
    ):
        with pytest.raises(ValueError, match=words):
            train_subnetwork(model, target, bad, FEW)


def test_counts_of_another_vocabulary_are_refused(make_model: MakeModel, data: Tensor) -> None:
    larger = NgramTarget(BigramCounts.from_sequences(data, V + 1))
    with pytest.raises(ValueError, match="vocabulary of 41, the model's head one of 40"):
        train_subnetwork(make_model("gpt2"), larger, data, FEW)


def test_a_checkpoint_of_another_model_is_refused(
    make_model: MakeModel, data: Tensor, target: NgramTarget, tmp_path: Path
) -> None:
    save: dict[str, Any] = {"save_strategy": "steps", "save_steps": 2}
    run_attempts(make_model("gpt2"), target, data, FEW, tmp_path, **save)
    with pytest.raises(ValueError, match=r"unknown: transformer\.h.*missing|missing.*unknown"):
        run_attempts(make_model("gpt_neox"), target, data, FEW, tmp_path, resume=True, **save)


@pytest.mark.parametrize("accumulation", [1, 2])
def test_a_run_towards_its_own_predictions_resumes_exactly_and_may_be_made_longer(
    accumulation: int, make_model: MakeModel, data: Tensor, tmp_path: Path
) -> None:
    settings = {**vars(FEW), "grad_accumulation": accumulation}
    short, long = (SparsifyConfig(**{**settings, "max_steps": steps * accumulation}) for steps in (3, 7))
    save: dict[str, Any] = {"save_strategy": "steps", "save_steps": 1}
    model = make_model("gpt_neox")
    whole, whole_log = run_attempts(model, SelfTarget(model), data, long, tmp_path / "whole")
    run_attempts(model, SelfTarget(model), data, short, tmp_path / "cut", **save)
    resumed, log = run_attempts(model, SelfTarget(model), data, long, tmp_path / "cut", resume=True, **save)
    assert resumed == whole
    assert (log.xent_loss_per_step, log.temperature) == (whole_log.xent_loss_per_step, whole_log.temperature)


def test_a_run_is_not_resumed_with_other_settings_data_target_or_dtype(
    make_model: MakeModel, data: Tensor, target: NgramTarget, tmp_path: Path
) -> None:
    """The optimiser would go on with its old rate, the schedule with the new factor."""
    save: dict[str, Any] = {"save_strategy": "steps", "save_steps": 2}
    run_attempts(make_model("gpt2"), target, data, FEW, tmp_path, **save)
    changes: dict[str, Any] = {
        "l0_lambda": 5.0, "learning_rate": 0.01, "temperature_factor": 1.1, "batch_size": 8, "weight_decay": 0.0,
        "seed": 3,
    }  # fmt: skip
    before = sorted(tmp_path.rglob("*"))
    for name, value in changes.items():
        config = SparsifyConfig(**{**vars(FEW), name: value})
        with pytest.raises(ValueError, match=f"{name} was {getattr(FEW, name)}, is {value}"):
            run_attempts(make_model("gpt2"), target, data, config, tmp_path, resume=True, **save)
    other = data.clone()
    other[3, 2] = (other[3, 2] + 1) % V
    with pytest.raises(ValueError, match="data was '16 rows, SHA-256"):
        run_attempts(make_model("gpt2"), target, other, FEW, tmp_path, resume=True, **save)
    model = make_model("gpt2")
    with pytest.raises(ValueError, match=r"target was 'NgramTarget\(.*', is 'SelfTarget\(\)'"):
        run_attempts(model, SelfTarget(model), data, FEW, tmp_path, resume=True, **save)
    with pytest.raises(ValueError, match=r"dtype was 'torch\.float32', is 'torch\.bfloat16'"):
        run_attempts(model.to(torch.bfloat16), target, data, FEW, tmp_path, resume=True, **save)
    assert sorted(tmp_path.rglob("*")) == before


def test_ids_that_the_counts_do_not_know_are_refused_before_the_first_step(make_model: MakeModel, data: Tensor) -> None:
    asked: list[Tensor] = []

    class Asked(NgramTarget):
        def __call__(self, input_ids: Tensor) -> Tensor:
            asked.append(input_ids)
            return super().__call__(input_ids)

    target = Asked(BigramCounts.from_sequences([[0, 1, 2]], 3))
    with pytest.raises(ValueError, match="outside of the counts' vocabulary, 0 to 2"):
        train_subnetwork(make_model("gpt2"), target, data, FEW)
    assert not asked


def test_a_log_with_a_correlation_that_is_no_number_can_be_written(
    make_model: MakeModel, data: Tensor, target: NgramTarget, tmp_path: Path
) -> None:
    _, log = train_subnetwork(make_model("gpt2"), target, data, FEW)
    log.ngram_corr_dropinf = math.nan
    log.save(tmp_path / "log.json")
    assert TrainLog.load(tmp_path / "log.json").ngram_corr_dropinf is None


def train_files(model_folder: Path, folder: Path, **more: Any) -> TrainArguments:
    """Arguments of a short run with evaluation; the files that it needs are written."""
    rows = torch.randint(0, 300, (9, 12), generator=torch.Generator().manual_seed(0)).tolist()
    (folder / "tokens.txt").write_text("".join(" ".join(map(str, row)) + "\n" for row in rows))
    BigramCounts.from_sequences(rows, 300).save(folder / "counts.safetensors")
    tokens = [str(folder / "tokens.txt")]
    settings: dict[str, Any] = {
        "tokens": tokens, "eval_tokens": tokens, "counts": str(folder / "counts.safetensors"), "device": "cpu",
        "batch_size": 3, "max_steps": 2, "learning_rate": 0.05, "attempts": 1,
    }  # fmt: skip
    return TrainArguments(model=str(model_folder), output=str(folder / "out"), **(settings | more))


def test_the_card_tells_the_target_also_where_counts_are_for_evaluation_only(
    model_folder: Path, tmp_path: Path
) -> None:
    train(train_files(model_folder, tmp_path, target="self"))
    assert "towards its own predictions" in " ".join((tmp_path / "out" / "README.md").read_text().split())


def test_a_finished_mask_is_not_taken_for_one_of_other_settings(model_folder: Path, tmp_path: Path) -> None:
    train(train_files(model_folder, tmp_path))
    assert train(train_files(model_folder, tmp_path, resume=True))["masks"][0]["train_steps"] == 2
    for change, words in (
        ({"learning_rate": 0.01}, r"learning_rate was 0\.05, is 0\.01"),
        ({"max_steps": 3}, "max_steps was 2, is 3"),
        ({"seed": 4}, "seed was 0, is 4"),
        ({"target": "self"}, "target was 'ngram', is 'self'"),
        ({"dtype": "bfloat16"}, "dtype was 'auto', is 'bfloat16'"),
        ({"weight_decay": 0.0, "eval_limit": 3}, r"eval_limit was None, is 3; weight_decay was 0\.01, is 0\.0"),
    ):
        with pytest.raises(ValueError, match=words):
            train(train_files(model_folder, tmp_path, resume=True, l0_lambda=[1.0, 10.0], **change))
    assert not (tmp_path / "out" / "lambda1").exists()


def test_an_interrupted_run_is_resumed_with_its_settings_only(
    model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*arguments: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(MaskTrainer, "run", interrupted)
    with pytest.raises(KeyboardInterrupt):
        train(train_files(model_folder, tmp_path))
    monkeypatch.undo()
    with pytest.raises(ValueError, match=r"learning_rate was 0\.05, is 0\.1; max_steps was 2, is 8$"):
        train(train_files(model_folder, tmp_path, resume=True, learning_rate=0.1, max_steps=8))
    resumed = train(train_files(model_folder, tmp_path, resume=True, save_steps=1, l0_lambda=[5.0, 10.0]))
    assert [row["l0_lambda"] for row in resumed["masks"]] == [5, 10]


def test_a_folder_without_a_run_is_not_resumed(model_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.txt").touch()
    with pytest.raises(ValueError, match=r"out is not empty, but holds no run to --resume: settings\.json is missing"):
        train(train_files(model_folder, tmp_path, resume=True))
    (tmp_path / "out" / "thesis.txt").unlink()
    assert train(train_files(model_folder, tmp_path, resume=True))["masks"]


def test_held_out_ids_that_cannot_be_evaluated_are_refused_before_training(model_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "held.txt").write_text("1 2 303\n")
    with pytest.raises(ValueError, match="token id 303 is outside of the counts'"):
        train(train_files(model_folder, tmp_path, eval_tokens=[str(tmp_path / "held.txt")]))
    assert not (tmp_path / "out").exists()


def test_a_mask_is_kept_when_its_evaluation_has_no_number(model_folder: Path, tmp_path: Path) -> None:
    """Two held-out tokens that the counts know from nowhere: no finite surprisal is left to compare."""
    (tmp_path / "held.txt").write_text("1 2 3\n")
    counts = [[each, 4] for each in range(300)]
    arguments = train_files(model_folder, tmp_path, eval_tokens=[str(tmp_path / "held.txt")])
    BigramCounts.from_sequences(counts, 300).save(tmp_path / "counts.safetensors")
    (tmp_path / "tokens.txt").write_text("5 4 5 4\n" * 3)
    with pytest.raises(ValueError, match="at least two tokens with a finite target surprisal"):
        train(arguments)
    assert SubnetworkMask.load(tmp_path / "out" / "lambda10").total > 0


@pytest.mark.parametrize("left", ["", '{"epoch": 0.5, "glo', None])
def test_a_checkpoint_whose_writer_was_killed_is_passed_over(
    left: str | None, make_model: MakeModel, data: Tensor, target: NgramTarget, tmp_path: Path
) -> None:
    save: dict[str, Any] = {"save_strategy": "steps", "save_steps": 2}
    whole, _ = run_attempts(make_model("gpt2"), target, data, FEW, tmp_path, **save)
    state = tmp_path / "attempt-0" / "checkpoint-6" / "trainer_state.json"
    state.unlink() if left is None else state.write_text(left)
    attempt, newest = newest_checkpoint(tmp_path)
    assert newest is not None
    assert (attempt, newest.name) == (0, "checkpoint-4")
    assert run_attempts(make_model("gpt2"), target, data, FEW, tmp_path, resume=True, **save)[0] == whole


def test_a_data_set_with_ids_that_the_counts_do_not_know_names_them(make_model: MakeModel) -> None:
    rows = [[1, 2, 0]] * 3 + [[1, 77, 0]]
    target = NgramTarget(BigramCounts.from_sequences([[0, 1, 2]], 3))
    with pytest.raises(ValueError, match="token id 77 is outside of the counts'"):
        train_subnetwork(make_model("gpt2"), target, rows, FEW)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"limit": 0}, "--limit must be at least 1, got 0"),
        ({"eval_limit": -1}, "--eval_limit must be at least 1, got -1"),
        ({"tolerance": -0.1}, r"--tolerance must be at least 0, got -0\.1"),
        ({"l0_lambda": [10.0, 10.0000001]}, "--l0_lambda must hold different numbers"),
    ],
)
def test_flags_out_of_range_are_named(more: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        TrainArguments(model="m", output="o", tokens=["t"], counts="c", **more)
