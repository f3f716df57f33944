"""Agreement with the official implementation's outputs (golden/README.md says what they are and how closely)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor
from transformers import AutoModelForCausalLM, GPT2Config, GPTNeoXConfig, PreTrainedModel

from bigram_subnet import (
    BigramCounts,
    ContinuousSparsifier,
    SubnetworkMask,
    apply_mask,
    distribution_cross_entropy,
    loss_is_stable,
    mask_overlap,
    maskable_weights,
    ridge_map,
    rotation_angle,
    should_stop,
    surprisal_correlation,
)

GOLDEN = Path(__file__).parent / "golden"
FAMILIES = ("gpt2", "gptneox")
CONFIGS = {"gpt2": GPT2Config, "gptneox": GPTNeoXConfig}


def read_json(name: str) -> Any:
    return json.loads((GOLDEN / name).read_text("utf-8"))


def part(data: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {key.removeprefix(prefix): value for key, value in data.items() if key.startswith(prefix)}


def close(actual: Tensor, expected: Tensor, atol: float, rtol: float = 0.0) -> None:
    torch.testing.assert_close(actual, expected, atol=atol, rtol=rtol)


@pytest.fixture(params=FAMILIES)
def family(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def facts(family: str) -> dict[str, Any]:
    found: dict[str, Any] = read_json("masked_models.json")[family]
    return found


@pytest.fixture
def data(family: str) -> dict[str, Tensor]:
    found: dict[str, Tensor] = load_file(GOLDEN / f"masked_{family}.safetensors")
    return found


@pytest.fixture
def model(family: str, facts: dict[str, Any], data: dict[str, Tensor]) -> PreTrainedModel:
    made: PreTrainedModel = AutoModelForCausalLM.from_config(CONFIGS[family](**facts["config"]))
    head = "embed_out." if hasattr(made, "embed_out") else "lm_head."  # older transformers call it so
    weights = {name.replace("embed_out.", head): value for name, value in part(data, "w/").items()}
    missing, unexpected = made.load_state_dict(weights, strict=False)
    assert (missing, unexpected) == (["lm_head.weight"] if family == "gpt2" else [], [])
    return made.eval()


@pytest.fixture
def sparsifier(model: PreTrainedModel, data: dict[str, Tensor]) -> ContinuousSparsifier:
    made = ContinuousSparsifier(model)
    scores = part(data, "mask_init/")
    assert scores.keys() == made.mask_scores.keys()
    for name, score in made.mask_scores.items():
        if name == "transformer.h.0.mlp.c_fc.weight":  # three weights that are exactly 0
            assert torch.equal(score.detach() == -1e6, scores[name] == -1e6)
        score.data.copy_(scores[name])
    return made


def test_the_maskable_weights_are_the_official_ones(model: PreTrainedModel, facts: dict[str, Any]) -> None:
    weights = maskable_weights(model)
    assert sorted(weights) == sorted(f"{name}.weight" for name in facts["maskable_layers"])
    assert sum(weight.numel() for weight in weights.values()) == facts["n_maskable"]


@pytest.mark.parametrize("temperature", [1, 3])
def test_the_soft_forward_equals_the_official_one(
    temperature: int, sparsifier: ContinuousSparsifier, facts: dict[str, Any], data: dict[str, Tensor]
) -> None:
    expected = part(data, f"out/temp{temperature}/")
    sparsifier.temperature = float(temperature)
    logits = sparsifier(data["in/input_ids"]).logits
    xent = distribution_cross_entropy(logits, data["in/target_probs"])
    mean = sparsifier.mean_mask()
    close(logits[..., : facts["target_vocab"]], expected["logits"], 1e-5)
    close(xent, expected["xent"][0], 1e-5)
    close(mean * facts["n_maskable"], expected["l0"][0], 1e-5 * facts["n_maskable"])
    close(xent + facts["l0_lambda"] * mean, expected["loss"][0], 1e-5)


def test_the_gradients_of_the_scores_equal_the_official_ones(
    sparsifier: ContinuousSparsifier, facts: dict[str, Any], data: dict[str, Tensor]
) -> None:
    xent = distribution_cross_entropy(sparsifier(data["in/input_ids"]).logits, data["in/target_probs"])
    (xent + facts["l0_lambda"] * sparsifier.mean_mask()).backward()
    for name, score in sparsifier.mask_scores.items():
        assert score.grad is not None
        close(score.grad, data[f"grad/{name}"], atol=1e-6, rtol=1e-3)
    assert all(weight.grad is None for weight in sparsifier.model.parameters())


def test_four_steps_equal_the_official_trajectory(
    sparsifier: ContinuousSparsifier, facts: dict[str, Any], data: dict[str, Tensor]
) -> None:
    settings = facts["optimizer"]
    optimizer = torch.optim.AdamW(
        sparsifier.mask_scores.values(), lr=settings["lr"], weight_decay=settings["weight_decay"]
    )
    for step in facts["trajectory"]:
        assert sparsifier.temperature == pytest.approx(step["temperature_used"])
        optimizer.zero_grad()
        xent = distribution_cross_entropy(sparsifier(data["in/input_ids"]).logits, data["in/target_probs"])
        loss = xent + facts["l0_lambda"] * sparsifier.mean_mask()
        loss.backward()
        optimizer.step()
        counts = sparsifier.mask_counts()
        assert xent.item() == pytest.approx(step["xent"], abs=1e-5)
        assert loss.item() == pytest.approx(step["loss"], abs=1e-5)
        assert should_stop(counts) is step["stop"]
        assert counts == (step["n_below_0_1"], step["n_above_0_9"], step["n_undecided"])
        sparsifier.temperature *= facts["temperature_multiplier_per_step"]
    for name, score in sparsifier.mask_scores.items():
        close(score.detach(), data[f"mask_after4/{name}"], atol=1e-5, rtol=1e-5)


def test_hard_masks_and_their_logits_equal_the_official_ones(
    sparsifier: ContinuousSparsifier, facts: dict[str, Any], data: dict[str, Tensor]
) -> None:
    mask = sparsifier.hard_mask()
    for name, expected in part(data, "mask/").items():
        assert torch.equal(mask[name], expected.bool())
    assert mask.kept / mask.total == facts["proportion_kept"]
    for chosen, key in ((mask, "out/hard_logits"), (mask.complement(), "out/complement_logits")):
        with torch.no_grad():
            logits = apply_mask(sparsifier.model, chosen)(input_ids=data["in/input_ids"]).logits
        close(logits, data[key], 1e-5)


@pytest.mark.parametrize("numpy_version", [1, 2])
def test_published_pickles_of_both_numpy_versions_load(
    numpy_version: int, family: str, model: PreTrainedModel, data: dict[str, Tensor]
) -> None:
    mask = SubnetworkMask.load(GOLDEN / f"subnetwork_dict_{family}_numpy{numpy_version}.pickle", model)
    assert isinstance(mask.base_model, str)
    assert list(mask) == list(maskable_weights(model))
    for name, expected in part(data, "mask/").items():
        assert torch.equal(mask[name], expected.bool())


def _float(values: list[Any]) -> Tensor:
    rows = [[[float("nan")] * 12 if row is None else row for row in sequence] for sequence in values]
    return torch.tensor(rows, dtype=torch.float64)


@pytest.mark.parametrize("case", ["bigram", "trigram_pruned_every5_min2"])
def test_ngram_distributions_equal_the_official_ones(case: str, tmp_path: Path) -> None:
    facts = read_json("ngram.json")
    file = tmp_path / "tokens.txt"
    file.write_text("".join(" ".join(map(str, row)) + "\n" for row in facts["sequences"]))
    pruned: dict[str, Any] = {"order": 3, "min_count": 2, "prune_every": 5} if case != "bigram" else {}
    counts = BigramCounts.from_files([file], facts["vocab_size"], **pruned)
    query = torch.tensor(facts["query"])
    close(counts.next_token_probs(query), _float(facts[case]["next_probs"]), 1e-12)
    close(2 ** -counts.token_surprisal(query), torch.tensor(facts[case]["token_probs"], dtype=torch.float64), 1e-12)
    if case == "bigram":
        actual = counts.next_token_probs(query, backoff=False)
        torch.testing.assert_close(
            actual, _float(facts[case]["next_probs_no_backoff"]), atol=1e-12, rtol=0, equal_nan=True
        )


def test_stability_verdicts_equal_the_official_ones() -> None:
    curves = read_json("loss_stability.json")
    verdicts = [next(value for value in curve.values() if isinstance(value, bool)) for curve in curves]
    assert {True, False} == set(verdicts)
    assert [loss_is_stable(curve["losses"]) for curve in curves] == verdicts


def test_overlaps_equal_the_official_ones(family: str) -> None:
    facts, data = read_json("overlap.json")[family], load_file(GOLDEN / "overlap_masks.safetensors")
    a, b = (
        SubnetworkMask({name: mask.bool() for name, mask in part(data, f"{family}/{which}/").items()}) for which in "ab"
    )
    result = mask_overlap(a, b, null="rows", layout="blocks", draws=1000)
    assert result.overlap == pytest.approx(facts["overlap"], abs=1e-12)
    assert result.expected == pytest.approx(facts["expected_closed_form"], abs=1e-12)
    assert (a.kept, b.kept, a.total) == (facts["kept_a"], facts["kept_b"], facts["total"])
    error = facts["row_shuffle_std"] / 1000**0.5
    assert abs(result.null_mean - facts["expected_closed_form"]) < 4 * error
    assert result.null_std == pytest.approx(facts["row_shuffle_std"], rel=0.1)
    assert result.p_value == 1 / 1001


def test_ridge_map_and_rotation_equal_the_official_ones() -> None:
    facts, data = read_json("analysis.json"), load_file(GOLDEN / "analysis.safetensors")
    coefficient, intercept = ridge_map(data["X"], data["Y"])
    close(coefficient, data["ridge_coef"], 1e-5)
    close(intercept, data["ridge_intercept"], 1e-5)
    eigenvalues = torch.linalg.eigvals(coefficient.double())
    angles = torch.rad2deg(eigenvalues.angle().abs()).sort().values
    close(angles.float(), data["abs_angles_deg_sorted"], 1e-2)
    close(eigenvalues.abs().sort().values.float(), data["moduli_sorted"], 1e-5)
    assert rotation_angle(coefficient) == pytest.approx(facts["median_rotation_deg"], abs=1e-3)


def test_correlations_equal_the_official_ones() -> None:
    facts, data = read_json("analysis.json"), load_file(GOLDEN / "analysis.safetensors")
    series = data["model_surprisal"], data["target_surprisal"]
    assert surprisal_correlation(*series) == pytest.approx(facts["pearson_drop_inf_target"], abs=1e-12)
    assert surprisal_correlation(*series, infinite="clamp") == pytest.approx(facts["pearson_inf_clamped"], abs=1e-12)


def test_edits_of_a_gpt2_mask_equal_the_official_ones() -> None:
    facts, data = read_json("edit_masks_gpt2.json"), load_file(GOLDEN / "edit_masks_gpt2.safetensors")
    config = GPT2Config(n_embd=facts["hidden"], n_head=facts["heads"], n_layer=facts["n_layers"], vocab_size=9)
    mask = SubnetworkMask.empty(AutoModelForCausalLM.from_config(config))
    mask.set_attention_head(1, 1).set_mlp_units(0, [2, 5, 7])
    for name, expected in part(data, "after_head1_layer1_and_mlp_2_5_7_layer0/").items():
        assert torch.equal(mask[name], expected.bool())
    assert [mask.kept, mask.total] == facts["counts_after_edits"]
    mask.set_layer(0)
    assert [mask.kept, mask.total] == facts["counts_after_set_layer0"]
