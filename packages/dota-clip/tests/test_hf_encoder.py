"""transformers encoders against the logits that transformers itself computes, on real photographs."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from dota_clip.data.images import load_image
from dota_clip.encoders.hf import HFClipEncoder
from dota_clip.zero_shot import zero_shot_weights

transformers = pytest.importorskip("transformers")

CLASSES = ["pagoda", "sunflower", "zebra crossing"]
TEMPLATE = "a photo of a {}."


@pytest.fixture(scope="module", params=["hf_clip_folder", "hf_siglip_folder"])
def folder(request: pytest.FixtureRequest) -> Path:
    path: Path = request.getfixturevalue(request.param)
    return path


@pytest.fixture(scope="module")
def encoder(folder: Path) -> HFClipEncoder:
    return HFClipEncoder.from_pretrained(folder, device="cpu")


@pytest.fixture(scope="module")
def photos(photo_folder: Path) -> list:
    return [load_image(path) for path in sorted(photo_folder.iterdir())]


def own_logits(folder: Path, photos: list, texts: list[str]) -> tuple[torch.Tensor, Any]:
    """What transformers' own forward pass says for every image and text."""
    model = transformers.AutoModel.from_pretrained(folder).eval()
    processor = transformers.AutoProcessor.from_pretrained(folder)
    siglip = model.config.model_type == "siglip"
    inputs = processor(text=texts, images=photos, padding="max_length" if siglip else True, return_tensors="pt")
    if siglip:
        inputs = {name: inputs[name] for name in ("input_ids", "pixel_values")}
    with torch.no_grad():
        return model(**inputs).logits_per_image, model


def test_scaled_logits_equal_transformers_own_up_to_siglips_bias(
    encoder: HFClipEncoder, folder: Path, photos: list
) -> None:
    expected, model = own_logits(folder, photos, [TEMPLATE.format(name) for name in CLASSES])
    weights = zero_shot_weights(encoder, CLASSES, [TEMPLATE])
    logits = encoder.logit_scale * encoder.encode_image(photos) @ weights
    bias = getattr(model, "logit_bias", torch.zeros(1)).detach()
    torch.testing.assert_close(logits + bias, expected, atol=2e-5, rtol=1e-5)
    torch.testing.assert_close(logits.softmax(-1), expected.softmax(-1), atol=1e-5, rtol=0)


def test_the_logit_scale_is_exponentiated(encoder: HFClipEncoder) -> None:
    expected = {"clip": 100, "siglip": 10}[encoder.model.config.model_type]
    assert encoder.logit_scale == pytest.approx(expected, rel=1e-6)


def test_a_text_gives_the_same_feature_alone_and_in_a_batch(encoder: HFClipEncoder) -> None:
    texts = ["a photo", "a much longer text about a photograph of nothing in particular."]
    torch.testing.assert_close(encoder.encode_text(texts)[:1], encoder.encode_text(texts[:1]), atol=1e-6, rtol=0)


def test_a_text_beyond_the_context_is_cut(encoder: HFClipEncoder) -> None:
    assert encoder.encode_text(["photo " * 200]).shape == (1, encoder.embedding_dim)


def test_what_the_encoder_says_of_itself(encoder: HFClipEncoder) -> None:
    siglip = encoder.model.config.model_type == "siglip"
    assert encoder.embedding_dim == (32 if siglip else 16)
    assert encoder.image_size == (32, 32)
    assert encoder.mean == pytest.approx((0.5,) * 3 if siglip else (0.48145466, 0.4578275, 0.40821073))
    assert encoder.std == pytest.approx((0.5,) * 3 if siglip else (0.26862954, 0.26130258, 0.27577711))
    assert encoder.dtype == torch.float32
    assert not encoder.model.training


def test_pixels_and_pictures_give_the_same_unit_features(encoder: HFClipEncoder, photos: list) -> None:
    features = encoder.encode_image(photos)
    pixels = torch.stack([encoder.preprocess(photo) for photo in photos])
    assert pixels.shape == (2, 3, 32, 32)
    assert torch.equal(encoder.encode_image(pixels), features)
    torch.testing.assert_close(features.norm(dim=-1), torch.ones(2))


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_precision_stays_near_and_keeps_the_exact_logit_scale(
    encoder: HFClipEncoder, folder: Path, photos: list, dtype: str
) -> None:
    half = HFClipEncoder.from_pretrained(folder, device="cpu", dtype=dtype)
    assert half.dtype == getattr(torch, dtype)
    assert half.logit_scale == pytest.approx(encoder.logit_scale, rel=1e-9)
    features = half.encode_image(photos)
    assert features.dtype == torch.float32
    torch.testing.assert_close(features, encoder.encode_image(photos), atol=3e-2, rtol=0)
    torch.testing.assert_close(half.encode_text(CLASSES), encoder.encode_text(CLASSES), atol=3e-2, rtol=0)


def test_double_precision_gives_double_features(folder: Path, photos: list) -> None:
    double = HFClipEncoder.from_pretrained(folder, device="cpu", dtype="float64")
    assert double.encode_image(photos).dtype == torch.float64
    assert double.encode_text(CLASSES).dtype == torch.float64


def test_a_model_of_another_kind_is_refused(tmp_path: Path) -> None:
    config = transformers.BertConfig(
        vocab_size=10, hidden_size=8, num_hidden_layers=1, num_attention_heads=1, intermediate_size=8
    )
    with pytest.raises(ValueError, match="BertModel is not an image-text encoder: it has no get_image_features"):
        HFClipEncoder(transformers.BertModel(config), processor=None)


def test_siglip_2_with_varying_resolution_is_refused() -> None:
    tower = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1}
    config = transformers.Siglip2Config(
        text_config={**tower, "vocab_size": 10, "bos_token_id": 1, "eos_token_id": 2}, vision_config=tower
    )
    with pytest.raises(ValueError, match="use a fixed-resolution checkpoint"):
        HFClipEncoder(transformers.Siglip2Model(config), processor=None)


def test_a_hub_model_without_a_network_says_so_in_one_line() -> None:
    with pytest.raises(
        OSError, match=r"org/no-such-model: .*hub cannot be reached.*run `hf download org/no-such-model`"
    ) as caught:
        HFClipEncoder.from_pretrained("org/no-such-model", device="cpu")
    assert "\n" not in str(caught.value)


def test_a_folder_without_tokenizer_is_one_line(hf_clip_folder: Path, tmp_path: Path) -> None:
    for name in ("config.json", "model.safetensors"):
        shutil.copy(hf_clip_folder / name, tmp_path)
    with pytest.raises(ValueError, match=f"cannot load {tmp_path}") as caught:
        HFClipEncoder.from_pretrained(tmp_path, device="cpu")
    assert "\n" not in str(caught.value)


def test_missing_weights_are_named_and_not_filled_at_random(hf_clip_folder: Path, tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    shutil.copytree(hf_clip_folder, tmp_path, dirs_exist_ok=True)
    weights = load_file(hf_clip_folder / "model.safetensors")
    del weights["visual_projection.weight"]
    save_file(weights, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ValueError, match=r"weights missing or of another shape for visual_projection\.weight"):
        HFClipEncoder.from_pretrained(tmp_path, device="cpu")


def test_a_tag_for_open_clip_is_refused(hf_clip_folder: Path) -> None:
    with pytest.raises(ValueError, match="`pretrained` belongs to open_clip"):
        HFClipEncoder.from_pretrained(hf_clip_folder, pretrained="openai", device="cpu")


def test_without_transformers_the_error_is_the_install_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)  # what Python does for a module that cannot be imported
    with pytest.raises(ImportError, match=r'pip install "dota-clip\[transformers\]"'):
        HFClipEncoder.from_pretrained("org/name", device="cpu")


def test_a_siglip_folder_as_the_hub_has_it_uses_its_sentencepiece_model(hf_siglip_folder: Path, tmp_path: Path) -> None:
    import sentencepiece

    shutil.copytree(hf_siglip_folder, tmp_path, dirs_exist_ok=True)
    (tmp_path / "tokenizer.json").unlink()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(["a photo of a pagoda", "a photo of a sunflower", "a zebra crossing the road"] * 20),
        model_prefix=str(tmp_path / "spiece"),
        vocab_size=26,
        hard_vocab_limit=False,
        model_type="unigram",
        pad_id=0,
        eos_id=1,
        unk_id=2,
        bos_id=-1,
        minloglevel=2,
    )
    (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "SiglipTokenizer", "model_max_length": 64}')
    encoder = HFClipEncoder.from_pretrained(tmp_path, device="cpu")
    assert type(encoder.processor.tokenizer).__name__ == "SiglipTokenizer"
    same, other = encoder.encode_text(["a photo of a pagoda", "A PHOTO of a pagoda!"]), encoder.encode_text(["a road"])
    torch.testing.assert_close(same[0], same[1], atol=1e-6, rtol=0)  # SigLIP reads lower case without punctuation
    assert float((same[0] - other[0]).abs().max()) > 1e-4
