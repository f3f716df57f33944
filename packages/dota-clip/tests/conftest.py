"""Real, tiny inputs for all tests: three encoders written to folders, and real pictures as files."""

from __future__ import annotations

import json
import math
import os
import shutil
import string
from pathlib import Path

import pytest
import torch

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # before huggingface_hub is imported: no test may download
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

DIGIT_NAMES = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")

OPEN_CLIP_CONFIG = {
    "model_cfg": {
        "embed_dim": 32,
        "vision_cfg": {"image_size": 32, "layers": 2, "width": 64, "head_width": 32, "patch_size": 8},
        "text_cfg": {"context_length": 24, "vocab_size": 49408, "width": 32, "heads": 2, "layers": 2},
    },
    "preprocess_cfg": {"mean": [0.5, 0.45, 0.4], "std": [0.25, 0.26, 0.27], "interpolation": "bicubic"},
}

_TOWER = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
_PIXELS = {"image_size": 32, "patch_size": 8}


@pytest.fixture(scope="session")
def open_clip_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An open_clip model folder: 32 pixels, D = 32, logit scale 100, the tokenizer that open_clip ships."""
    from open_clip.model import CLIP
    from safetensors.torch import save_file

    folder = tmp_path_factory.mktemp("open_clip_model")
    (folder / "open_clip_config.json").write_text(json.dumps(OPEN_CLIP_CONFIG))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = CLIP(**OPEN_CLIP_CONFIG["model_cfg"])
    with torch.no_grad():
        model.logit_scale.fill_(math.log(100))
    save_file(
        {name: tensor.contiguous() for name, tensor in model.state_dict().items()},
        folder / "open_clip_model.safetensors",
    )
    return folder


@pytest.fixture(scope="session")
def hf_clip_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A transformers CLIP folder: 32 pixels, D = 16, logit scale 100, byte-level BPE tokenizer."""
    from tokenizers.pre_tokenizers import ByteLevel
    from transformers import CLIPConfig, CLIPImageProcessor, CLIPModel, CLIPProcessor, CLIPTokenizer

    alphabet = sorted(ByteLevel.alphabet())
    merges = [("p", "h"), ("o", "t"), ("ph", "ot"), ("phot", "o</w>")]
    pieces = [*alphabet, *(char + "</w>" for char in alphabet), *("".join(pair) for pair in merges)]
    vocabulary = {piece: index for index, piece in enumerate([*pieces, "<|startoftext|>", "<|endoftext|>"])}
    start, end = vocabulary["<|startoftext|>"], vocabulary["<|endoftext|>"]
    text = {"vocab_size": len(vocabulary), "max_position_embeddings": 77, "bos_token_id": start}
    config = CLIPConfig(
        text_config={**_TOWER, **text, "eos_token_id": end, "pad_token_id": end},
        vision_config={**_TOWER, **_PIXELS},
        projection_dim=16,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = CLIPModel(config)
    torch.nn.init.constant_(model.logit_scale, math.log(100))
    folder = tmp_path_factory.mktemp("hf_clip_model")
    model.save_pretrained(folder)
    pixels = CLIPImageProcessor(size={"shortest_edge": 32}, crop_size={"height": 32, "width": 32})
    CLIPProcessor(pixels, CLIPTokenizer(vocab=vocabulary, merges=merges, model_max_length=77)).save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def hf_siglip_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A transformers SigLIP folder: 32 pixels, D = 32, logit scale 10 and bias -10, unigram tokenizer."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
    from transformers import (
        PreTrainedTokenizerFast,
        SiglipConfig,
        SiglipImageProcessor,
        SiglipModel,
        SiglipProcessor,
        SiglipTextConfig,
        SiglipVisionConfig,
    )

    characters = [(char, -5.0) for char in "\u2581" + string.ascii_lowercase + string.digits + "."]
    pieces = [("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), *characters, ("\u2581photo", -3.0)]
    backend = Tokenizer(models.Unigram(pieces, unk_id=2))
    backend.normalizer = normalizers.Lowercase()
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    backend.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend, pad_token="</s>", eos_token="</s>", unk_token="<unk>", model_max_length=64
    )
    text = {"vocab_size": len(pieces), "max_position_embeddings": 64, "projection_size": 32}
    config = SiglipConfig(
        text_config=SiglipTextConfig(**_TOWER, **text, bos_token_id=1, eos_token_id=1, pad_token_id=1).to_dict(),
        vision_config=SiglipVisionConfig(**_TOWER, **_PIXELS).to_dict(),
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = SiglipModel(config)
    torch.nn.init.constant_(model.logit_scale, math.log(10))
    torch.nn.init.constant_(model.logit_bias, -10.0)
    folder = tmp_path_factory.mktemp("hf_siglip_model")
    model.save_pretrained(folder)
    SiglipProcessor(SiglipImageProcessor(size={"height": 32, "width": 32}), tokenizer).save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def digit_image_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sixty handwritten digits of scikit-learn as PNG files, six in each of the class folders zero ... nine."""
    from PIL import Image
    from sklearn.datasets import load_digits

    folder = tmp_path_factory.mktemp("digits")
    digits = load_digits()
    for label, name in enumerate(DIGIT_NAMES):
        (folder / name).mkdir()
        for number, pixels in enumerate(digits.images[digits.target == label][:6]):
            Image.fromarray((pixels * (255 / 16)).astype("uint8")).save(folder / name / f"{number}.png")
    return folder


@pytest.fixture(scope="session")
def photo_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The two photographs that scikit-learn ships, china.jpg and flower.jpg, without labels."""
    from importlib.resources import as_file, files

    folder = tmp_path_factory.mktemp("photos")
    for name in ("china.jpg", "flower.jpg"):
        with as_file(files("sklearn.datasets.images") / name) as path:
            shutil.copyfile(path, folder / name)
    return folder
