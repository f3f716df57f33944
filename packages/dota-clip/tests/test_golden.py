"""The reference numbers of the official implementation (see golden/README.md for what each file holds)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors import safe_open

from dota_clip import DotaAdapter, DotaConfig, TDAAdapter, TDAConfig, select_views

GOLDEN = Path(__file__).parent / "golden"


def read(name: str) -> tuple[dict[str, str], dict[str, torch.Tensor]]:
    with safe_open(GOLDEN / f"{name}.safetensors", "pt") as file:
        return file.metadata(), {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118


def close(actual: torch.Tensor, expected: torch.Tensor, atol: float = 1e-9, rtol: float = 1e-8) -> None:
    torch.testing.assert_close(actual, expected, atol=atol, rtol=rtol)


def close_to_magnitude(actual: torch.Tensor, expected: torch.Tensor, share: float = 1e-7) -> None:
    # the reference rounded epsilon to single precision inside its inverse
    assert (actual - expected).abs().max() <= share * expected.abs().max()


def config_of(metadata: dict[str, str], **options: object) -> DotaConfig:
    official = json.loads(metadata["config"])
    names = {"epsilon": "epsilon", "sigma": "sigma2", "eta": "eta", "rho": "rho"}
    return DotaConfig(**{names[key]: value for key, value in official.items()}, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["stream_constant_fp64", "stream_text_init_fp64", "stream_views_fp64"])
def test_a_float64_stream_equals_the_reference_at_every_image(name: str) -> None:
    metadata, data = read(name)
    adapter = DotaAdapter(
        data["classifier"], config_of(metadata, mean_init=json.loads(metadata["init"])), float(metadata["logit_scale"])
    )
    for i, views in enumerate(data["features"]):
        output = adapter.step(views)
        close(output.zero_shot_logits, data["clip_logits"][i])
        close(output.fusion_weight, data["fusion_weight"][i])
        close_to_magnitude(output.dota_logits, data["dota_logits"][i])
        close_to_magnitude(output.logits, data["fused_logits"][i])
        close(adapter.count, data["counts_after"][i])
        at = f"step{i}" if f"mu_step{i}" in data else "final" if i == len(data["features"]) - 1 else None
        if at is not None:
            close(adapter.mean, data[f"mu_{at}"])
            close(adapter.covariance, data[f"cov_{at}"])
            close(adapter.mean_covariance, data[f"mean_cov_{at}"])
            close_to_magnitude(adapter.precision, data[f"precision_{at}"])


def test_the_unmodified_half_precision_stream_agrees_to_two_percent() -> None:
    metadata, data = read("stream_release_fp16")
    adapter = DotaAdapter(data["classifier"].float(), config_of(metadata), float(metadata["logit_scale"]))
    outputs = [adapter.step(views.float()) for views in data["features"]]
    for ours, theirs in (
        ("zero_shot_logits", "clip_logits"),
        ("dota_logits", "dota_logits"),
        ("logits", "fused_logits"),
    ):
        actual = torch.stack([getattr(output, ours) for output in outputs])
        expected = data[theirs].float()
        assert (actual - expected).abs().max() <= 2e-2 * expected.abs().max()


def test_fits_of_several_sizes_equal_the_reference() -> None:
    metadata, data = read("batch_fit_fp64")
    weights = torch.zeros(int(metadata["D"]), int(metadata["K"]), dtype=torch.float64)
    adapter = DotaAdapter(weights, config_of(metadata))
    start = 0
    for i, size in enumerate(json.loads(metadata["sizes"])):
        adapter.update(data["features"][start : start + size], data["probs"][start : start + size])
        start += size
        close(adapter.mean, data[f"mu_after{i}"])
        close(adapter.covariance, data[f"cov_after{i}"])
        close(adapter.count, data[f"counts_after{i}"])
    close_to_magnitude(adapter.precision, data["precision"])
    close_to_magnitude(adapter.predict(data["query"]), data["query_logits"])


def test_view_selection_equals_the_reference() -> None:
    metadata, data = read("view_selection_fp64")
    for i, views in enumerate(data["view_features"]):
        selection = select_views(
            2.5 * views, data["classifier"], float(metadata["fraction"]), float(metadata["logit_scale"])
        )
        assert len(selection.indices) == int(metadata["selected"])
        close(selection.features, data["selected_features"][i])
        close(selection.probs, data["probs"][i])
        close(selection.logits, data["clip_logits"][i])
        close(selection.entropy, data["avg_entropy"][i])
        close(selection.mean_feature, data["query_feature"][i])


def test_the_tda_stream_equals_the_reference() -> None:
    metadata, data = read("tda_stream_fp64")
    settings = json.loads(metadata["cfg"])
    positive, negative = settings["pos"], settings["neg"]
    config = TDAConfig(
        positive_shot_capacity=positive["shot_capacity"],
        positive_alpha=positive["alpha"],
        positive_beta=positive["beta"],
        negative_shot_capacity=negative["shot_capacity"],
        negative_alpha=negative["alpha"],
        negative_beta=negative["beta"],
        negative_entropy=tuple(negative["entropy"]),
        negative_mask=tuple(negative["mask"]),
    )
    adapter = TDAAdapter(data["classifier"], config, settings["logit_scale"])
    for i, feature in enumerate(data["features"]):
        output = adapter.step(feature)
        close(output.zero_shot_logits, data["clip_logits"][i])
        close(output.logits, data["final_logits"][i])
