"""Properties of the adapter (section 10 of the method sheet), on small synthetic streams."""

from __future__ import annotations

import json
import runpy
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional

from dota_clip import DotaAdapter, DotaConfig, TDAAdapter, TDAConfig

DIMENSION, CLASSES = 12, 5


@pytest.fixture
def plain_dota() -> Any:
    return runpy.run_path(str(Path(__file__).parent / "plain_dota.py"))["PlainDota"]


def unit(*shape: int, seed: int, dtype: torch.dtype = torch.float64) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return functional.normalize(torch.randn(*shape, generator=generator, dtype=dtype), dim=-1)


def weights(classes: int = CLASSES, dtype: torch.dtype = torch.float64) -> Tensor:
    return unit(classes, DIMENSION, seed=1, dtype=dtype).T.contiguous()


def stream(length: int = 30, views: int = 1, seed: int = 2, dtype: torch.dtype = torch.float64) -> Tensor:
    """(length, views, D): noisy copies of the class directions, so that probabilities are neither flat nor one-hot."""
    picks = torch.randint(CLASSES, (length,), generator=torch.Generator().manual_seed(seed))
    noise = 0.9 * unit(length, views, DIMENSION, seed=seed + 1)
    return functional.normalize(weights().T[picks][:, None] + noise, dim=-1).to(dtype)


def run(adapter: DotaAdapter, features: Tensor) -> Tensor:
    return torch.stack([adapter.step(views).logits for views in features])


def test_with_equal_means_the_first_prediction_is_the_zero_shot_one_whatever_eta() -> None:
    for eta in (0.0, 0.3, 3.0, 100.0):
        adapter = DotaAdapter(weights(), DotaConfig(eta=eta, rho=100.0))
        output = adapter.step(stream()[0])
        torch.testing.assert_close(output.dota_logits, output.dota_logits[:1].expand(CLASSES))
        assert output.logits.argmax() == output.zero_shot_logits.argmax()


@pytest.mark.parametrize("sizes", [[1] * 24, [24], [5, 1, 18]])
@pytest.mark.parametrize("initial_count", [0.0, 1.0, 2.5])
def test_the_mean_is_the_weighted_mean_whatever_the_batching(sizes: list[int], initial_count: float) -> None:
    features = stream(24)[:, 0]
    probs = (10 * features @ weights()).softmax(1)
    adapter = DotaAdapter(weights(), DotaConfig(mean_init="text", initial_count=initial_count))
    for block, p in zip(features.split(sizes), probs.split(sizes), strict=True):
        adapter.update(block, p)
    mass = initial_count + probs.sum(0)
    expected = (initial_count * weights().T + probs.T @ features) / mass[:, None]
    torch.testing.assert_close(adapter.mean, expected, atol=1e-6, rtol=0)
    torch.testing.assert_close(adapter.count, mass)


def test_the_covariance_depends_on_the_batching() -> None:
    features = stream(24)[:, 0]
    probs = (10 * features @ weights()).softmax(1)
    one, many = DotaAdapter(weights()), DotaAdapter(weights())
    one.update(features, probs)
    for x, p in zip(features, probs, strict=True):
        many.update(x, p)
    assert (one.covariance - many.covariance).abs().max() > 1e-3


@pytest.mark.parametrize("views", [1, 4])
def test_counts_add_up_and_the_fusion_weight_grows_to_eta(views: int) -> None:
    adapter = DotaAdapter(weights(), DotaConfig(eta=0.1, rho=0.02))
    last_weight, last_count = 0.0, adapter.count.clone()
    for i, image in enumerate(stream(40, views), 1):
        weight = float(adapter.step(image).fusion_weight)
        assert last_weight <= weight <= 0.1
        assert (adapter.count >= last_count).all()
        torch.testing.assert_close(adapter.count.sum(), torch.tensor(CLASSES + i * views, dtype=torch.float64))
        last_weight, last_count = weight, adapter.count.clone()
    assert last_weight == pytest.approx(0.1)


def test_the_fusion_weight_can_count_images_instead() -> None:
    adapter = DotaAdapter(weights(), DotaConfig(count="samples", rho=0.01, eta=0.5))
    images = stream(6, views=3)
    assert [round(float(adapter.step(image).fusion_weight), 12) for image in images[:4]] == [0.0, 0.01, 0.02, 0.03]
    adapter.update(images[4], torch.full((3, CLASSES), 1 / CLASSES, dtype=torch.float64))
    assert float(adapter.step(images[5]).fusion_weight) == pytest.approx(0.07)  # four steps and three fitted items


@pytest.mark.parametrize("covariance", ["full", "pooled", "diagonal", "fixed"])
@pytest.mark.parametrize("views", [1, 4])
def test_matrices_stay_symmetric_positive_and_bounded(covariance: Any, views: int) -> None:
    config = DotaConfig(covariance=covariance, epsilon=1e-2)
    adapter = DotaAdapter(weights(dtype=torch.float32), config)
    run(adapter, stream(40, views, dtype=torch.float32))
    for matrix in [adapter.mean_covariance, adapter.precision, *(adapter.covariance if covariance == "full" else [])]:
        torch.testing.assert_close(matrix, matrix.mT, atol=1e-5 * float(matrix.abs().max()), rtol=0)
        assert torch.linalg.eigvalsh(matrix.double()).min() >= -1e-6
    assert torch.linalg.eigvalsh(adapter.precision.double()).max() <= 1 / 1e-2 * (1 + 1e-5)


@pytest.mark.parametrize("views", [1, 4])
@pytest.mark.parametrize("small", [0, 128 * 128], ids=["class by class", "all classes at once"])
def test_the_fused_update_equals_the_dense_formulas(
    views: int, small: int, plain_dota: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dota_clip.distribution._SMALL_MATRIX", small)
    adapter = DotaAdapter(weights(), DotaConfig(), logit_scale=20.0)
    plain = plain_dota(weights(), epsilon=1e-4, sigma2=0.002, eta=0.3, rho=0.02, logit_scale=20.0)
    for image in stream(50, views):
        torch.testing.assert_close(adapter.step(image).logits, plain.step(image), atol=1e-9, rtol=1e-9)
    torch.testing.assert_close(adapter.covariance, plain.covariance, atol=1e-12, rtol=1e-9)
    torch.testing.assert_close(adapter.precision, plain.precision, atol=1e-7, rtol=1e-7)


@pytest.mark.parametrize("covariance", ["full", "pooled"])
def test_a_small_probability_threshold_changes_logits_little(covariance: Any) -> None:
    exact = DotaAdapter(weights(), DotaConfig(covariance=covariance))
    sparse = DotaAdapter(weights(), DotaConfig(covariance=covariance, prob_threshold=1e-4))
    features = stream(60)
    torch.testing.assert_close(run(sparse, features), run(exact, features), atol=1e-3, rtol=1e-4)
    assert not torch.equal(sparse.covariance, exact.covariance)
    torch.testing.assert_close(sparse.mean, exact.mean, atol=0, rtol=0)
    torch.testing.assert_close(sparse.count, exact.count, atol=0, rtol=0)


def test_the_threshold_leaves_the_covariances_of_improbable_classes_alone_and_updates_the_others_exactly() -> None:
    exact, sparse = DotaAdapter(weights()), DotaAdapter(weights(), DotaConfig(prob_threshold=0.1))
    features = stream(1, views=2)[0]
    probs = torch.tensor([[0.5, 0.05, 0.02, 0.2, 0.23], [0.8, 0.05, 0.02, 0.08, 0.05]], dtype=torch.float64)
    for adapter in (exact, sparse):
        adapter.update(features, probs)
    torch.testing.assert_close(sparse.covariance[[0, 3, 4]], exact.covariance[[0, 3, 4]])
    torch.testing.assert_close(sparse.covariance[[1, 2]], DotaAdapter(weights()).covariance[[1, 2]], atol=0, rtol=0)


def test_with_a_threshold_the_mean_covariance_follows_the_dense_one_more_closely_than_the_touched_classes_alone() -> (
    None
):
    exact, sparse = DotaAdapter(weights()), DotaAdapter(weights(), DotaConfig(prob_threshold=1e-2))
    for image in stream(100):
        for adapter in (exact, sparse):
            adapter.update(image, (10 * image @ weights()).softmax(1))
    estimated = (sparse.mean_covariance - exact.mean_covariance).norm()
    touched_only = (sparse.covariance.mean(0) - exact.mean_covariance).norm()
    assert estimated < touched_only / 3


def test_with_a_threshold_the_running_mean_of_the_touched_covariances_does_not_drift(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    adapter = DotaAdapter(weights(dtype=torch.float32), DotaConfig(prob_threshold=1e-3))
    run(adapter, stream(200, dtype=torch.float32))
    torch.testing.assert_close(adapter.class_mean_covariance, adapter.covariance.mean(0), atol=1e-6, rtol=1e-5)
    monkeypatch.setattr("dota_clip.adapter.AVERAGE_EVERY", 1)  # summed anew after every fit
    adapter.step(stream(1, seed=77, dtype=torch.float32)[0])
    torch.testing.assert_close(adapter.class_mean_covariance, adapter.covariance.mean(0), atol=1e-8, rtol=1e-6)


def test_the_pooled_covariance_is_the_count_weighted_mean_of_the_full_one() -> None:
    full, pooled = (DotaAdapter(weights(), DotaConfig(covariance=kind)) for kind in ("full", "pooled"))
    for image in stream(30, views=2):
        full.step(image)
        pooled.step(image)
        expected = (full.count[:, None, None] * full.covariance).sum(0) / full.count.sum()
        torch.testing.assert_close(pooled.covariance, expected, atol=1e-12, rtol=1e-9)


def test_the_diagonal_covariance_is_the_diagonal_of_the_full_one() -> None:
    full, diagonal = (DotaAdapter(weights(), DotaConfig(covariance=kind)) for kind in ("full", "diagonal"))
    for image in stream(30, views=2):
        full.step(image)
        diagonal.step(image)
    torch.testing.assert_close(diagonal.covariance, full.covariance.diagonal(dim1=1, dim2=2), atol=1e-12, rtol=1e-9)


def test_a_fixed_covariance_stays_and_is_shrunk_after_the_first_fit() -> None:
    adapter = DotaAdapter(weights(), DotaConfig(covariance="fixed"))
    before = adapter.covariance.clone()
    identity = torch.eye(DIMENSION, dtype=torch.float64)
    torch.testing.assert_close(adapter.precision, identity / 0.002)
    run(adapter, stream(5))
    assert torch.equal(adapter.covariance, before)
    torch.testing.assert_close(adapter.precision, identity / ((1 - 1e-4) * 0.002 + 1e-4))


def test_the_triangular_solve_equals_the_explicit_inverse() -> None:
    adapter = DotaAdapter(weights(dtype=torch.float32))
    features = stream(40, dtype=torch.float32)
    run(adapter, features)
    query, mean = features[:, 0], adapter.mean
    precision = torch.linalg.inv((1 - 1e-4) * adapter.mean_covariance + 1e-4 * torch.eye(DIMENSION))
    expected = query @ precision @ mean.T - 0.5 * torch.einsum("kd,de,ke->k", mean, precision, mean)
    torch.testing.assert_close(adapter.predict(query), expected, atol=1e-5 * float(expected.abs().max()), rtol=0)


def test_the_update_over_counts_against_welford() -> None:
    adapter = DotaAdapter(weights())
    mean, count, scatter = adapter.mean.clone(), adapter.count.clone(), adapter.covariance.clone()
    for image in stream(30):
        p = adapter._zero_shot(image).softmax(1)[0]
        difference = image[0] - mean
        scatter += (p * count / (count + p))[:, None, None] * difference[:, :, None] * difference[:, None, :]
        mean += (p / (count + p))[:, None] * difference
        count += p
        adapter.step(image)
    torch.testing.assert_close(adapter.mean, mean)
    excess = adapter.covariance - scatter / count[:, None, None]
    assert torch.linalg.eigvalsh(excess).min() >= -1e-9
    assert excess.abs().max() > 1e-3


@given(st.permutations(range(CLASSES)), st.sampled_from(["full", "pooled", "diagonal", "fixed"]))
@settings(max_examples=20, deadline=None)
def test_permuting_the_classes_permutes_the_outputs(order: list[int], covariance: Any) -> None:
    plain = DotaAdapter(weights(), DotaConfig(covariance=covariance, mean_init="text"))
    permuted = DotaAdapter(weights()[:, order], DotaConfig(covariance=covariance, mean_init="text"))
    torch.testing.assert_close(run(permuted, stream(8)), run(plain, stream(8))[:, order], atol=1e-7, rtol=1e-7)


def test_eta_zero_returns_the_zero_shot_logits_exactly() -> None:
    adapter = DotaAdapter(weights(dtype=torch.float32), DotaConfig(eta=0.0))
    for image in stream(20, views=3, dtype=torch.float32):
        output = adapter.step(image)
        assert torch.equal(output.logits, output.zero_shot_logits)


def test_update_first_scores_with_the_new_state() -> None:
    first = DotaAdapter(weights(), DotaConfig(update_first=True))
    later = DotaAdapter(weights(), DotaConfig())
    image = stream(1)[0]
    later.step(image)
    output = first.step(image)
    torch.testing.assert_close(output.dota_logits, later.predict(image)[0])
    torch.testing.assert_close(output.fusion_weight, 0.02 * later.count.mean())


def test_an_initial_count_of_zero_forgets_the_initial_state() -> None:
    adapter = DotaAdapter(weights(), DotaConfig(initial_count=0.0))
    image = stream(1)[0]
    adapter.step(image)
    torch.testing.assert_close(adapter.mean, image.expand(CLASSES, -1))


def test_a_class_without_mass_keeps_its_initial_state_when_the_count_starts_at_zero() -> None:
    adapter = DotaAdapter(weights(), DotaConfig(initial_count=0.0))
    before = adapter.mean[1:].clone()
    adapter.update(stream(1)[0], functional.one_hot(torch.tensor([0]), CLASSES).double())
    assert torch.equal(adapter.mean[1:], before)
    assert adapter.mean.isfinite().all()
    assert adapter.covariance.isfinite().all()


def test_one_class_works() -> None:
    for adapter in (DotaAdapter(weights(1)), TDAAdapter(weights(1))):
        for image in stream(3):
            assert adapter.step(image).logits.shape == (1,)
        assert torch.isfinite(adapter.step(stream(1)[0]).logits).all()


@pytest.mark.parametrize("covariance", ["full", "pooled", "diagonal", "fixed"])
@pytest.mark.parametrize("threshold", [0.0, 1e-4])
def test_a_saved_stream_goes_on_bit_for_bit(covariance: Any, threshold: float, tmp_path: Path) -> None:
    config = DotaConfig(covariance=covariance, prob_threshold=threshold, count="samples")
    features = stream(40, views=2, dtype=torch.float32)
    whole = DotaAdapter(weights(dtype=torch.float32), config, logit_scale=33.0)
    expected = run(whole, features)
    stopped = DotaAdapter(weights(dtype=torch.float32), config, logit_scale=33.0)
    run(stopped, features[:17])
    state = stopped.state_dict()
    stopped.save_pretrained(tmp_path / "state")
    run(stopped, features[17:20])  # goes on; what was handed out must not move
    resumed = DotaAdapter(weights(dtype=torch.float32), config, logit_scale=33.0)
    resumed.load_state_dict(state)
    assert torch.equal(run(resumed, features[17:]), expected[17:])
    from_folder = DotaAdapter.from_pretrained(tmp_path / "state")
    assert from_folder.config == config
    assert torch.equal(run(from_folder, features[17:]), expected[17:])
    written = json.loads((tmp_path / "state" / "config.json").read_text())
    assert written["logit_scale"] == 33.0
    assert written["sigma2"] == 0.002


def test_reset_starts_anew() -> None:
    adapter = DotaAdapter(weights())
    first = run(adapter, stream(10))
    adapter.reset()
    assert torch.equal(run(adapter, stream(10)), first)


def test_a_tda_stream_saved_in_the_middle_goes_on_bit_for_bit(tmp_path: Path) -> None:
    features = stream(60, dtype=torch.float32)
    adapter = TDAAdapter(weights(dtype=torch.float32), TDAConfig(negative_entropy=(0.01, 0.9)), logit_scale=10.0)
    for image in features[:30]:
        adapter.step(image)
    assert adapter.negative_mask.any()
    adapter.save_pretrained(tmp_path / "tda")
    resumed = TDAAdapter.from_pretrained(tmp_path / "tda")
    assert resumed.config == adapter.config
    for image in features[30:]:
        assert torch.equal(resumed.step(image).logits, adapter.step(image).logits)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_features_and_weights_are_raised_to_float32(dtype: torch.dtype) -> None:
    adapter = DotaAdapter(weights().to(dtype))
    output = adapter.step(stream(1)[0].to(dtype))
    assert output.logits.dtype == adapter.mean.dtype == adapter.covariance.dtype == torch.float32


def test_converting_an_enclosing_module_to_half_keeps_the_state_in_float32() -> None:
    adapter = DotaAdapter(weights(dtype=torch.float32))
    run(adapter, stream(5, dtype=torch.float32))
    before = adapter.covariance.clone()
    torch.nn.ModuleList([adapter, TDAAdapter(weights())]).to(torch.bfloat16).half()
    assert adapter.covariance.dtype == torch.float32
    assert torch.equal(adapter.covariance, before)
    assert adapter.double().covariance.dtype == torch.float64


def test_no_temporary_of_the_size_of_all_covariances_is_allocated() -> None:
    from torch.utils._python_dispatch import TorchDispatchMode

    class Largest(TorchDispatchMode):
        elements = 0

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            before = {a.untyped_storage().data_ptr() for a in args if isinstance(a, Tensor)}
            out = func(*args, **(kwargs or {}))
            for tensor in out if isinstance(out, (tuple, list)) else (out,):
                if isinstance(tensor, Tensor) and tensor.untyped_storage().data_ptr() not in before:
                    self.elements = max(self.elements, tensor.untyped_storage().nbytes() // tensor.element_size())
            return out

    classes, dimension = 400, 32
    adapter = DotaAdapter(unit(classes, dimension, seed=4, dtype=torch.float32).T)
    for image in unit(3, 1, dimension, seed=5, dtype=torch.float32):
        with Largest() as largest:
            adapter.step(image)
    assert largest.elements <= max(classes * dimension, 3 * dimension * dimension)


def test_a_state_made_in_inference_mode_can_be_used_outside_it_and_the_other_way_round() -> None:
    for kind in (DotaAdapter, TDAAdapter):
        with torch.inference_mode():
            adapter = kind(weights())
            adapter.step(stream(1)[0])
        adapter.step(stream(1)[0])
        with torch.inference_mode():
            adapter.step(stream(1)[0])
        output = adapter.step(stream(1)[0])
        assert not output.logits.is_inference()


def test_autocast_does_not_reach_the_arithmetic_of_the_state() -> None:
    plain, cast = DotaAdapter(weights(dtype=torch.float32)), DotaAdapter(weights(dtype=torch.float32))
    for image in stream(10, dtype=torch.float32):
        expected = plain.step(image).logits
        with torch.autocast("cpu", dtype=torch.bfloat16):
            logits = cast.step(image).logits
        assert torch.equal(logits, expected)


def test_calling_the_adapter_says_what_step_would_say_and_learns_nothing() -> None:
    adapter = DotaAdapter(weights())
    run(adapter, stream(10))
    before = adapter.state_dict()
    image = stream(1, views=3, seed=8)[0]
    said = adapter(image)
    assert all(torch.equal(value, before[key]) for key, value in adapter.state_dict().items())
    for ours, theirs in zip(said, adapter.step(image), strict=True):
        assert torch.equal(ours, theirs)


def test_vectors_without_unit_norm_are_warned_of_once() -> None:
    adapter = DotaAdapter(weights())
    with pytest.warns(UserWarning, match="features are not of unit norm"):
        adapter.step(2 * stream(1)[0])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        adapter.step(2 * stream(1)[0])
    with pytest.warns(UserWarning, match="class_weights are not of unit norm"):
        DotaAdapter(3 * weights()).step(stream(1)[0])


def test_labels_of_any_integer_type_are_taken() -> None:
    import numpy as np

    for label in (2, np.int64(2), torch.tensor(2)):
        adapter = DotaAdapter(weights())
        adapter.step(stream(1)[0], label=label)
        assert adapter.count.tolist() == [1, 1, 2, 1, 1]


def test_saved_files_can_be_read_by_whom_the_umask_lets(tmp_path: Path) -> None:
    DotaAdapter(weights()).save_pretrained(tmp_path / "state")
    (tmp_path / "ordinary").touch()
    modes = {path.name: path.stat().st_mode for path in (tmp_path / "state").iterdir()}
    assert set(modes.values()) == {(tmp_path / "ordinary").stat().st_mode}
