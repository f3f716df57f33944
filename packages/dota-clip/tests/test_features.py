"""Feature files: what is read back, and what is refused."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch.nn.functional import normalize

from dota_clip.features import FeatureSet, read_features, write_features


def features(views: int = 0, dtype: torch.dtype = torch.float32) -> FeatureSet:
    generator = torch.Generator().manual_seed(0)
    shape = (6, views, 8) if views else (6, 8)
    return FeatureSet(
        normalize(torch.randn(shape, generator=generator), dim=-1).to(dtype),
        normalize(torch.randn(8, 3, generator=generator), dim=0),
        torch.tensor([0, 1, 2, 2, 1, 0]),
        55.5,
        ("cat", "dög", "emu"),
        tuple(f"{i}.png" for i in range(6)),
    )


@pytest.mark.parametrize("views", [0, 4])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_a_written_file_is_read_back(views: int, dtype: torch.dtype, tmp_path: Path) -> None:
    written = features(views, dtype)
    write_features(tmp_path / "f.safetensors", written)
    found = read_features(tmp_path / "f.safetensors", "error")
    assert found.features.shape == (6, views or 1, 8)
    assert torch.equal(found.features.reshape(written.features.shape), written.features)
    assert found.labels is not None
    assert found.labels.tolist() == [0, 1, 2, 2, 1, 0]
    assert (found.logit_scale, found.classnames, found.identifiers) == (55.5, written.classnames, written.identifiers)


def test_a_bare_file_of_two_tensors_is_enough(tmp_path: Path) -> None:
    some = features()
    save_file({"features": some.features, "class_weights": some.class_weights}, tmp_path / "f.safetensors")
    found = read_features(tmp_path / "f.safetensors")
    assert found.labels is None
    assert found.logit_scale is None
    assert found.names == ("0", "1", "2")


def test_vectors_without_unit_norm_are_normalised_with_a_warning_or_refused(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    some = features()
    tensors = {"features": 3 * some.features, "class_weights": some.class_weights}
    save_file(tensors, tmp_path / "f.safetensors")
    with caplog.at_level(logging.WARNING):
        found = read_features(tmp_path / "f.safetensors")
    assert "not of unit norm (from 3 to 3)" in caplog.text
    torch.testing.assert_close(found.features[:, 0], some.features)
    with pytest.raises(ValueError, match="not of unit norm"):
        read_features(tmp_path / "f.safetensors", "error")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"class_weights": torch.eye(7)[:, :3].contiguous()}, ("width 8", "width 7")),
        ({"labels": torch.tensor([0, 1, 2, 3, 0, -1])}, ("label 3 of image 3", "0..2", "2 such")),
        ({"labels": torch.tensor([0, 1])}, ("labels must be 6",)),
        ({"labels": torch.ones(6)}, ("whole numbers", "float32")),
        ({"features": torch.full((6, 8), float("nan"))}, ("features must be finite",)),
        ({"features": torch.zeros(6, 8)}, ("zero vector",)),
        ({"features": torch.ones(6)}, ("(N, D) or (N, V, D)",)),
        ({"features": torch.ones(6, 8, dtype=torch.int64)}, ("int64",)),
        ({"feature": torch.ones(6, 8)}, ("unknown: feature", "class_weights")),
    ],
)
def test_parts_that_do_not_fit_are_named(change: dict[str, Any], words: tuple[str, ...], tmp_path: Path) -> None:
    some = features()
    tensors = {"features": some.features, "class_weights": some.class_weights, "labels": some.labels} | change
    file = tmp_path / "f.safetensors"
    save_file(tensors, file)
    with pytest.raises(ValueError) as caught:
        read_features(file)
    for word in (*words, str(file)):
        assert word in str(caught.value)


def test_a_truncated_and_a_missing_file_are_named(tmp_path: Path) -> None:
    file = tmp_path / "f.safetensors"
    write_features(file, features())
    file.write_bytes(file.read_bytes()[:-7])
    with pytest.raises(ValueError, match="truncated"):
        read_features(file)
    with pytest.raises(FileNotFoundError, match="dota-clip extract"):
        read_features(tmp_path / "none.safetensors")
