"""Which library a name is loaded with."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch

from dota_clip.data.images import load_image
from dota_clip.encoders import load_encoder
from dota_clip.encoders.hf import HFClipEncoder
from dota_clip.encoders.open_clip import OpenClipEncoder
from dota_clip.zero_shot import zero_shot_weights


def test_a_folder_is_loaded_by_the_configuration_it_holds(
    open_clip_folder: Path, hf_clip_folder: Path, hf_siglip_folder: Path
) -> None:
    assert isinstance(load_encoder(open_clip_folder, device="cpu"), OpenClipEncoder)
    assert isinstance(load_encoder(hf_clip_folder, device="cpu"), HFClipEncoder)
    assert isinstance(load_encoder(str(hf_siglip_folder), device="cpu"), HFClipEncoder)


def test_a_prefix_decides_where_a_folder_holds_both(
    open_clip_folder: Path, hf_clip_folder: Path, tmp_path: Path
) -> None:
    shutil.copytree(hf_clip_folder, tmp_path, dirs_exist_ok=True)
    shutil.copytree(open_clip_folder, tmp_path, dirs_exist_ok=True)
    assert load_encoder(tmp_path, device="cpu").embedding_dim == 32
    assert load_encoder(f"open_clip:{tmp_path}", device="cpu").embedding_dim == 32
    assert load_encoder(f"hf:{tmp_path}", device="cpu").embedding_dim == 16


def test_a_folder_without_a_model_says_what_it_lacks(tmp_path: Path) -> None:
    with pytest.raises(
        ValueError, match=r"neither open_clip_config\.json \(open_clip\) nor config\.json \(transformers\)"
    ):
        load_encoder(tmp_path)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("ViT-B/32", "say which weights"),
        ("ViT-X-99", "unknown model 'ViT-X-99'"),
        ("./no/such/folder", "unknown model './no/such/folder'"),
    ],
)
def test_names_without_a_hub_form_are_open_clip_architectures(name: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        load_encoder(name, device="cpu")


def test_a_hub_form_is_transformers_and_hf_hub_is_open_clip() -> None:
    with pytest.raises(OSError, match=r"^org/no-such-model: "):
        load_encoder("org/no-such-model", device="cpu")
    with pytest.raises(OSError, match=r"^hf-hub:org/no-such-model: "):
        load_encoder("hf-hub:org/no-such-model", device="cpu")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("fixture", ["open_clip_folder", "hf_clip_folder", "hf_siglip_folder"])
def test_on_cuda_the_features_are_those_of_the_cpu(
    request: pytest.FixtureRequest, photo_folder: Path, fixture: str
) -> None:
    folder: Path = request.getfixturevalue(fixture)
    photos = [load_image(path) for path in sorted(photo_folder.iterdir())]
    cpu = load_encoder(folder, device="cpu")
    for dtype, tolerance in (("float32", 2e-3), ("float16", 2e-2), ("auto", 6e-2)):
        cuda = load_encoder(folder, device="cuda", dtype=dtype)
        assert cuda.device.type == "cuda"
        features = cuda.encode_image(photos)
        assert (features.device.type, features.dtype) == ("cuda", torch.float32)
        torch.testing.assert_close(features.cpu(), cpu.encode_image(photos), atol=tolerance, rtol=0)
        weights = zero_shot_weights(cuda, ["pagoda", "flower"], ["a photo of a {}."])
        expected = zero_shot_weights(cpu, ["pagoda", "flower"], ["a photo of a {}."])
        torch.testing.assert_close(weights.cpu(), expected, atol=tolerance, rtol=0)


def test_an_unknown_device_or_dtype_is_refused_before_anything_is_loaded(open_clip_folder: Path) -> None:
    with pytest.raises(ValueError, match="device"):
        load_encoder(open_clip_folder, device="tpu")
    with pytest.raises(ValueError, match="dtype"):
        load_encoder(open_clip_folder, device="cpu", dtype="int8")
