"""open_clip encoders against open_clip itself, on real photographs."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest
import torch
from torch.utils.data import default_collate

from dota_clip.data.images import load_image
from dota_clip.encoders.open_clip import OpenClipEncoder

open_clip = pytest.importorskip("open_clip")

TEXTS = ["a photo of a pagoda.", "a photo of a flower."]


@pytest.fixture(scope="module")
def encoder(open_clip_folder: Path) -> OpenClipEncoder:
    return OpenClipEncoder.from_pretrained(open_clip_folder, device="cpu")


@pytest.fixture(scope="module")
def photos(photo_folder: Path) -> list:
    return [load_image(path) for path in sorted(photo_folder.iterdir())]


def test_a_folder_gives_the_features_of_its_weights(
    encoder: OpenClipEncoder, open_clip_folder: Path, photos: list
) -> None:
    from open_clip.model import CLIP
    from safetensors.torch import load_file

    config = json.loads((open_clip_folder / "open_clip_config.json").read_text())
    reference = CLIP(**config["model_cfg"]).eval()
    reference.load_state_dict(load_file(open_clip_folder / "open_clip_model.safetensors"))
    pixels = torch.stack([encoder.preprocess(photo) for photo in photos])
    with torch.no_grad():
        images = reference.encode_image(pixels, normalize=True)
        texts = reference.encode_text(open_clip.SimpleTokenizer(context_length=24)(TEXTS), normalize=True)
    torch.testing.assert_close(encoder.encode_image(photos), images, atol=1e-6, rtol=0)
    torch.testing.assert_close(encoder.encode_text(TEXTS), texts, atol=1e-6, rtol=0)


@pytest.mark.skipif(not hasattr(open_clip.factory, "LOCAL_DIR_PREFIX"), reason="this open_clip has no local-dir: names")
def test_a_folder_gives_what_open_clips_own_folder_loader_gives(
    encoder: OpenClipEncoder, open_clip_folder: Path, photos: list
) -> None:
    model, _, preprocess = open_clip.create_model_and_transforms(f"local-dir:{open_clip_folder}")
    tokens = open_clip.get_tokenizer(f"local-dir:{open_clip_folder}")(TEXTS)
    with torch.no_grad():
        images = model.eval().encode_image(default_collate([preprocess(photo) for photo in photos]), normalize=True)
        texts = model.encode_text(tokens, normalize=True)
    torch.testing.assert_close(encoder.encode_image(photos), images, atol=1e-6, rtol=0)
    torch.testing.assert_close(encoder.encode_text(TEXTS), texts, atol=1e-6, rtol=0)


def test_what_the_encoder_says_of_itself(encoder: OpenClipEncoder) -> None:
    assert encoder.logit_scale == pytest.approx(100, rel=1e-6)
    assert encoder.embedding_dim == 32
    assert encoder.image_size == (32, 32)
    assert encoder.mean == (0.5, 0.45, 0.4)
    assert encoder.std == (0.25, 0.26, 0.27)
    assert encoder.device == torch.device("cpu")
    assert encoder.dtype == torch.float32
    assert not encoder.model.training
    assert not any(parameter.requires_grad for parameter in encoder.model.parameters())


def test_pixels_and_pictures_give_the_same_features(encoder: OpenClipEncoder, photos: list) -> None:
    pixels = torch.stack([encoder.preprocess(photo) for photo in photos])
    assert torch.equal(encoder.encode_image(pixels), encoder.encode_image(photos))


def test_features_are_ordinary_unit_vectors(encoder: OpenClipEncoder, photos: list) -> None:
    features = encoder.encode_image(photos)
    torch.testing.assert_close(features.norm(dim=-1), torch.ones(2))
    features *= 2  # an inference tensor would refuse this


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_precision_stays_near_and_returns_float32(
    encoder: OpenClipEncoder, open_clip_folder: Path, photos: list, dtype: str
) -> None:
    half = OpenClipEncoder.from_pretrained(open_clip_folder, device="cpu", dtype=dtype)
    assert half.dtype == getattr(torch, dtype)
    assert half.logit_scale == pytest.approx(100, rel=1e-6)
    features = half.encode_image(photos)
    assert features.dtype == torch.float32
    torch.testing.assert_close(features.norm(dim=-1), torch.ones(2))
    torch.testing.assert_close(features, encoder.encode_image(photos), atol=3e-2, rtol=0)
    torch.testing.assert_close(half.encode_text(TEXTS), encoder.encode_text(TEXTS), atol=3e-2, rtol=0)


@pytest.mark.parametrize(
    ("pixels", "message"),
    [
        (torch.zeros(3, 32, 32), r"\(n, 3, 32, 32\) with n > 0, got \(3, 32, 32\)"),
        (torch.zeros(2, 3, 16, 32), r"got \(2, 3, 16, 32\)"),
        (torch.zeros(0, 3, 32, 32), "n > 0"),
        (torch.zeros(1, 3, 32, 32, dtype=torch.uint8), "got torch.uint8; use `preprocess`"),
    ],
)
def test_pixels_of_another_form_are_refused(encoder: OpenClipEncoder, pixels: torch.Tensor, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        encoder.encode_image(pixels)


def test_nothing_to_encode_is_refused(encoder: OpenClipEncoder) -> None:
    with pytest.raises(ValueError, match="at least one PIL image"):
        encoder.encode_image([])
    with pytest.raises(ValueError, match="at least one text"):
        encoder.encode_text([])
    with pytest.raises(ValueError, match="got 'cat'"):
        encoder.encode_text("cat")


@pytest.mark.parametrize("suffix", [".pt", ".safetensors"])
def test_an_architecture_takes_a_checkpoint_file(
    encoder: OpenClipEncoder, open_clip_folder: Path, tmp_path: Path, suffix: str
) -> None:
    from safetensors.torch import save_file

    # Any architecture that open_clip knows, also one that the user has registered.
    config = json.loads((open_clip_folder / "open_clip_config.json").read_text())["model_cfg"]
    (tmp_path / "ViT-tiny-of-a-user.json").write_text(json.dumps(config))
    open_clip.add_model_config(tmp_path / "ViT-tiny-of-a-user.json")
    weights = tmp_path / f"weights{suffix}"
    state = {name: tensor.clone() for name, tensor in encoder.model.state_dict().items()}
    torch.save(state, weights) if suffix == ".pt" else save_file(state, weights)
    found = OpenClipEncoder.from_pretrained("ViT-tiny-of-a-user", pretrained=weights, device="cpu")
    pixels = torch.rand(2, 3, 32, 32)
    assert torch.equal(found.encode_image(pixels), encoder.encode_image(pixels))
    assert found.mean == pytest.approx(
        (0.48145466, 0.4578275, 0.40821073)
    )  # open_clip's default, the file says nothing


class _RunsCode:
    def __reduce__(self) -> tuple:
        return (print, ("this checkpoint ran code",))


def test_a_checkpoint_that_would_run_code_is_refused_unread(
    open_clip_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copy(open_clip_folder / "open_clip_config.json", tmp_path)
    torch.save({"state_dict": _RunsCode()}, tmp_path / "open_clip_pytorch_model.bin")
    with pytest.raises(ValueError, match=f"cannot load {tmp_path}: .*[Ww]eights.only") as caught:
        OpenClipEncoder.from_pretrained(tmp_path, device="cpu")
    assert "\n" not in str(caught.value)
    assert "ran code" not in capsys.readouterr().out


def test_weights_that_do_not_fit_are_one_line(open_clip_folder: Path, tmp_path: Path) -> None:
    config = json.loads((open_clip_folder / "open_clip_config.json").read_text())
    config["model_cfg"]["embed_dim"] = 16
    (tmp_path / "open_clip_config.json").write_text(json.dumps(config))
    shutil.copy(open_clip_folder / "open_clip_model.safetensors", tmp_path)
    with pytest.raises(ValueError, match=r"cannot load .*size mismatch") as caught:
        OpenClipEncoder.from_pretrained(tmp_path, device="cpu")
    assert "\n" not in str(caught.value)


def test_a_truncated_weight_file_is_one_line(open_clip_folder: Path, tmp_path: Path) -> None:
    shutil.copy(open_clip_folder / "open_clip_config.json", tmp_path)
    whole = (open_clip_folder / "open_clip_model.safetensors").read_bytes()
    (tmp_path / "open_clip_model.safetensors").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match=f"cannot load {tmp_path}"):
        OpenClipEncoder.from_pretrained(tmp_path, device="cpu")


def test_a_folder_without_weights_is_refused_and_not_filled_at_random(open_clip_folder: Path, tmp_path: Path) -> None:
    shutil.copy(open_clip_folder / "open_clip_config.json", tmp_path)
    with pytest.raises(FileNotFoundError, match=r"no open_clip_model\.safetensors; weight files found: none"):
        OpenClipEncoder.from_pretrained(tmp_path, device="cpu")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "not JSON"),
        ("[]", "model_cfg lacks"),
        ('{"model_cfg": {"embed_dim": 4}}', "model_cfg lacks text_cfg, vision_cfg"),
    ],
)
def test_a_damaged_configuration_names_the_file(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "open_clip_config.json").write_text(content)
    with pytest.raises(ValueError, match=rf"open_clip_config\.json: {message}"):
        OpenClipEncoder.from_pretrained(tmp_path, device="cpu")


def test_a_folder_uses_its_own_tokenizer_files(open_clip_folder: Path, hf_clip_folder: Path, tmp_path: Path) -> None:
    from packaging.version import Version

    if Version(open_clip.__version__) < Version("3"):
        pytest.skip("this open_clip calls a tokenizer method that transformers 5 no longer has")
    config = json.loads((open_clip_folder / "open_clip_config.json").read_text())
    config["model_cfg"]["text_cfg"]["hf_tokenizer_name"] = "some/where-else"
    (tmp_path / "open_clip_config.json").write_text(json.dumps(config))
    shutil.copy(open_clip_folder / "open_clip_model.safetensors", tmp_path)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(hf_clip_folder / name, tmp_path)
    encoder = OpenClipEncoder.from_pretrained(tmp_path, device="cpu")
    tokens = encoder.tokenizer(["a photo"])
    assert tokens.shape == (1, 24)
    assert int(tokens.max()) < 600  # the small vocabulary, not open_clip's own with 49,408 entries


@pytest.mark.parametrize(
    ("name", "pretrained", "message"),
    [
        ("ViT-B32", None, r"unknown model 'ViT-B32': did you mean ViT-B-32"),
        ("ViT-B-16", None, "say which weights: pretrained=<openai"),
        ("ViT-B", None, "unknown model 'ViT-B': did you mean ViT-B-16"),
        ("ViT-B-16", "opena", "has no weights 'opena': did you mean openai"),
        ("ViT-B/16", "laion2b", "has no weights 'laion2b': did you mean laion2b"),
    ],
)
def test_unknown_names_and_tags_name_near_ones(name: str, pretrained: str | None, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        OpenClipEncoder.from_pretrained(name, pretrained=pretrained, device="cpu")


@pytest.mark.parametrize(("name", "pretrained"), [("hf-hub:laion/CLIP-nowhere", None), ("ViT-B-16", "openai")])
def test_a_hub_model_without_a_network_says_so_in_one_line(name: str, pretrained: str | None, tmp_path: Path) -> None:
    with pytest.raises(OSError, match=r"hub cannot be reached.*run `hf download (laion|timm)/") as caught:
        OpenClipEncoder.from_pretrained(name, pretrained=pretrained, device="cpu")
    assert "\n" not in str(caught.value)


def test_weights_beside_a_folder_or_hub_name_are_refused(open_clip_folder: Path) -> None:
    for name in (open_clip_folder, "hf-hub:org/name"):
        with pytest.raises(ValueError, match="`pretrained` must not be given"):
            OpenClipEncoder.from_pretrained(name, pretrained="openai", device="cpu")


def test_models_and_transforms_of_another_kind_are_refused(encoder: OpenClipEncoder) -> None:
    with pytest.raises(ValueError, match="Linear is not an open_clip model: it has no encode_image"):
        OpenClipEncoder(torch.nn.Linear(2, 2), encoder.tokenizer, encoder.preprocess)
    with pytest.raises(ValueError, match="no Normalize step"):
        OpenClipEncoder(encoder.model, encoder.tokenizer, lambda image: torch.zeros(3, 32, 32))


def test_double_precision_is_refused(open_clip_folder: Path) -> None:
    with pytest.raises(ValueError, match="float32, bfloat16 or float16, got dtype float64"):
        OpenClipEncoder.from_pretrained(open_clip_folder, device="cpu", dtype="float64")


def test_without_open_clip_the_error_is_the_install_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "open_clip", None)  # what Python itself does for a module that cannot be imported
    with pytest.raises(ImportError, match=r'pip install "dota-clip\[open-clip\]"'):
        OpenClipEncoder.from_pretrained("ViT-B-32", pretrained="openai", device="cpu")


def test_a_model_of_the_users_own_keeps_its_modes_and_gradients(open_clip_folder: Path) -> None:
    loaded = OpenClipEncoder.from_pretrained(open_clip_folder, device="cpu")
    model = loaded.model.train().requires_grad_(True)
    model.visual.eval()
    encoder = OpenClipEncoder(model, loaded.tokenizer, loaded.preprocess)
    encoder.encode_text(["a cat"])
    assert model.training
    assert not model.visual.training
    assert all(parameter.requires_grad for parameter in model.parameters())
