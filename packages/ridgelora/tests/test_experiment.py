"""The parts of the small experiment, in short runs."""

from __future__ import annotations

import pytest
import torch

from ridgelora.experiment import closed_form, report, shift
from ridgelora.experiment.closed_form import Fits
from ridgelora.experiment.shift import DRIFT, FULL, GAUSSIAN, LORA_2, LORA_3, RIDGE, ROTATION, Adapted


def test_the_digits_are_split_by_class_and_scaled() -> None:
    training, test = shift.splits()
    assert (training.images.shape, test.images.shape) == ((1078, 64), (719, 64))
    assert 0 <= float(training.images.min()) < float(training.images.max()) == 1
    shares = [torch.bincount(part.labels, minlength=10) / len(part.labels) for part in (training, test)]
    assert (shares[0] - shares[1]).abs().max() < 0.005


def test_a_drift_is_a_gain_a_pixel_and_a_rotation_turns_and_inverts() -> None:
    images = torch.rand(5, 64)
    drifted = DRIFT.changed(images)
    assert torch.allclose(drifted / images, (drifted / images)[:1].expand(5, 64))
    assert float((drifted / images)[0].log().std()) == pytest.approx(1, abs=0.25)
    turned = images.clone()
    for _ in range(4):
        turned = ROTATION.changed(turned)
    assert torch.allclose(turned, images)
    assert not torch.allclose(ROTATION.changed(images), images, atol=0.1)


def test_all_methods_adapt_and_their_parameters_are_counted() -> None:
    training, test = shift.splits()
    base = shift.pretrained(training, 0, epochs=8)
    assert shift.accuracy(base, test) > 85
    rates = dict.fromkeys(DRIFT.configs(), (0.01,))
    unadapted, results = shift.run_shift(DRIFT, [base], rates, epochs=5)
    assert {name: result.parameters for name, result in results.items()} == {
        RIDGE: 321,
        GAUSSIAN: 321,
        shift.CALIBRATED: 321,
        LORA_2: 256,
        LORA_3: 384,
        FULL: 4096,
    }
    assert all(result.accuracy[0] > unadapted + 5 for result in results.values())
    assert all(change <= report.EXACT for result in results.values() for change in result.merge_change)
    assert len(results[RIDGE].merge_change) == 1
    assert not results[FULL].merge_change


def test_the_rate_is_the_best_on_validation_images() -> None:
    base = shift.pretrained(shift.splits()[0], 0, epochs=8)
    _, results = shift.run_shift(DRIFT, [base], {RIDGE: (1e-7, 1e-2)}, epochs=5)
    assert results[RIDGE].rate == 1e-2


def test_a_diagonal_plus_rank_two_is_fitted() -> None:
    fits = closed_form.run_closed_form(1, epochs=300)
    assert {name: fit.parameters for name, fit in fits.items()} == {LORA_2: 192, LORA_3: 288, RIDGE: 321}
    assert fits[RIDGE].errors[0] < 0.05 * fits[LORA_3].errors[0]
    assert report.closed_form_table(fits).rows[2][0] == RIDGE


def results(**accuracies: tuple[float, ...]) -> dict[str, Adapted]:
    names = {"ridge": RIDGE, "gaussian": GAUSSIAN, "lora": LORA_3, "full": FULL}
    return {names[key]: Adapted(0.01, 1, value, (1e-7,)) for key, value in accuracies.items()}


def test_claims_hold_or_fail_by_their_margins() -> None:
    good = results(ridge=(94.0, 95.0), gaussian=(92.0, 92.0), lora=(94.0, 94.0), full=(95.0, 95.0))
    assert [claim.verdict for claim in report.drift_claims(good)] == ["holds"] * 4
    bad = results(ridge=(94.0, 94.8), gaussian=(95.0, 95.0), lora=(94.0, 94.0), full=(95.5, 95.5))
    bad[LORA_3] = Adapted(0.01, 1, (94.0, 94.0), (1.0, 1.0, 1.0, 1.0))
    assert [claim.verdict for claim in report.drift_claims(bad)] == ["fails"] * 4
    assert report.rotation_claim(good).verdict == "holds"
    assert report.rotation_claim(results(ridge=(90.0, 91.0), lora=(91.0, 91.0))).verdict == "fails"
    for error, verdict in ((1e-3, "holds"), (2e-3, "fails")):
        fits = {RIDGE: Fits(321, (error,)), LORA_3: Fits(288, (0.1,))}
        assert report.closed_form_claim(fits).verdict == verdict


def test_the_table_names_the_spread_over_seeds() -> None:
    table = report.shift_table("Drift", 62.5, results(ridge=(94.0, 96.0), full=(95.0,)))
    assert "62.50 without adaptation" in table.title
    assert table.rows[0][3:5] == (95.0, 1.41)
    assert table.rows[1][4] == "-"
