"""open_clip models as encoders: an architecture name with weights, a hub name, or a folder."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import torch
from torch import Tensor, nn

from dota_clip.encoders.contract import ClipEncoder, ImageTransform, pair
from dota_clip.load_errors import load_failure, near_matches, one_line
from nips_common.runtime import require, resolve_device, resolve_dtype

CONFIG_FILE = "open_clip_config.json"
HUB_PREFIX = "hf-hub:"
# In order of preference. Other names are accepted when the folder has exactly one of them.
_WEIGHT_FILES = ("open_clip_model.safetensors", "open_clip_pytorch_model.safetensors", "open_clip_pytorch_model.bin")
_TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "tokenizer.model", "spiece.model", "vocab.json")
# Half precision as open_clip does it by default: matrices in half, norms and logit scale in float32.
_PRECISION = {torch.float32: "fp32", torch.bfloat16: "bf16", torch.float16: "fp16"}


class OpenClipEncoder(ClipEncoder):
    """An open_clip model, its tokenizer and its evaluation transform, as `ClipEncoder` describes them.

    Args:
        model: what `open_clip.create_model_and_transforms` returns first.
        tokenizer: what `open_clip.get_tokenizer` returns.
        preprocess: what `open_clip.create_model_and_transforms` returns third.

    Raises:
        ValueError: `model` is not an open_clip model, or `preprocess` does not normalise.
    """

    def __init__(self, model: nn.Module, tokenizer: Callable[[list[str]], Tensor], preprocess: ImageTransform) -> None:
        missing = [
            name for name in ("encode_image", "encode_text", "logit_scale", "visual") if not hasattr(model, name)
        ]
        if missing:
            raise ValueError(f"{type(model).__name__} is not an open_clip model: it has no {', '.join(missing)}")
        super().__init__(model)
        self.tokenizer = tokenizer
        self.preprocess = preprocess
        visual: Any = model.visual
        self.image_size = pair(visual.image_size)
        self.mean, self.std = _normalisation(preprocess)
        self.embedding_dim = int(self.encode_text(["a"]).shape[-1])

    @classmethod
    def from_pretrained(
        cls, name: str | Path, *, pretrained: str | Path | None = None, device: str = "auto", dtype: str = "auto"
    ) -> OpenClipEncoder:
        """Load an open_clip model.

        Args:
            name: a folder with open_clip_config.json and weights; `hf-hub:org/name`; or an architecture of
                `open_clip.list_models()`, which needs `pretrained`.
            pretrained: a tag of `open_clip.list_pretrained()`, or a checkpoint file (safetensors, or a torch file that
                holds tensors only).
            device: "auto", "cpu", "cuda", "cuda:n" or "mps".
            dtype: "auto" (bfloat16 on CUDA, else float32), "float32", "bfloat16" or "float16".

        Raises:
            ImportError: open_clip is not installed.
            ValueError: unknown name or tag (near matches are named), weights that do not fit, a checkpoint that would
                run code, an unknown device or dtype.
            OSError: no such file, or the hub cannot be reached.
        """
        require("open_clip", "dota-clip[open-clip]")
        import open_clip

        torch_device = resolve_device(device)
        torch_dtype = resolve_dtype(dtype, torch_device)
        if torch_dtype not in _PRECISION:
            raise ValueError(f"open_clip models run in float32, bfloat16 or float16, got dtype {dtype}")
        options = {"precision": _PRECISION[torch_dtype], "device": torch_device}
        name = str(name)
        if Path(name, CONFIG_FILE).is_file():
            if pretrained is not None:
                raise ValueError(f"{name}: a folder brings its own weights, so `pretrained` must not be given")
            return cls._from_folder(open_clip, Path(name), options)
        if name.startswith(HUB_PREFIX):
            if pretrained is not None:
                raise ValueError(f"{name}: a hub name brings its own weights, so `pretrained` must not be given")
            return cls._created(open_clip, name, options, hub_id=name.removeprefix(HUB_PREFIX))
        return cls._from_architecture(open_clip, name, pretrained, options)

    @classmethod
    def _from_architecture(
        cls, open_clip: Any, name: str, pretrained: str | Path | None, options: dict[str, Any]
    ) -> OpenClipEncoder:
        architecture = name.replace("/", "-")  # ViT-B/32 is the older spelling of ViT-B-32
        known = open_clip.list_models()
        if architecture not in known:
            raise ValueError(
                f"unknown model {name!r}: {near_matches(architecture, known)}accepted: a folder with {CONFIG_FILE}, "
                f"{HUB_PREFIX}org/name, or an architecture of open_clip.list_models()"
            )
        tags = open_clip.list_pretrained_tags_by_model(architecture)
        if pretrained is None:
            raise ValueError(f"{name}: say which weights: pretrained=<{'|'.join(tags) or 'checkpoint file'}> or a file")
        if Path(pretrained).is_file():
            return cls._created(open_clip, architecture, {**options, "pretrained": str(pretrained)}, hub_id=None)
        entry = open_clip.get_pretrained_cfg(architecture, str(pretrained))
        if not entry:
            hint = near_matches(str(pretrained), tags)
            raise ValueError(
                f"{name} has no weights {str(pretrained)!r}: {hint}tags: {', '.join(tags) or 'none'}; or a file"
            )
        # Weights trained with QuickGELU give wrong features without it, and open_clip would only warn.
        options = {**options, "pretrained": str(pretrained), "force_quick_gelu": bool(entry.get("quick_gelu"))}
        return cls._created(open_clip, architecture, options, hub_id=_repository(entry))

    @classmethod
    def _from_folder(cls, open_clip: Any, folder: Path, options: dict[str, Any]) -> OpenClipEncoder:
        """Load a folder through open_clip's registry of architectures, which every supported version has."""
        config = _read_config(folder)
        text = config["model_cfg"].setdefault("text_cfg", {})
        if text.get("hf_tokenizer_name") and any((folder / file).is_file() for file in _TOKENIZER_FILES):
            text["hf_tokenizer_name"] = str(folder.resolve())
        # The size comes from the model itself, as in open_clip's own folder loader.
        preprocess = {key: value for key, value in config.get("preprocess_cfg", {}).items() if key != "size"}
        options = {**options, "pretrained": str(_weights_in(folder)), "force_preprocess_cfg": preprocess}
        architecture = f"folder-{uuid4().hex}"  # a registry entry of its own: two folders never meet
        with tempfile.TemporaryDirectory() as scratch:
            entry = Path(scratch, f"{architecture}.json")
            entry.write_text(json.dumps(config["model_cfg"]), encoding="utf-8")
            open_clip.add_model_config(entry)
        return cls._created(open_clip, architecture, options, hub_id=None, what=str(folder))

    @classmethod
    def _created(
        cls, open_clip: Any, name: str, options: dict[str, Any], *, hub_id: str | None, what: str | None = None
    ) -> OpenClipEncoder:
        from open_clip import transform

        try:
            model = open_clip.create_model(name, require_pretrained=True, **options)
            tokenizer = open_clip.get_tokenizer(name)
            preprocess = transform.image_transform_v2(
                transform.PreprocessCfg(**model.visual.preprocess_cfg), is_train=False
            )
            return cls(model.eval().requires_grad_(False), tokenizer, preprocess)
        except ImportError as error:  # a tokenizer may need one more library
            raise ImportError(f"{what or name}: {one_line(error)}") from error
        except Exception as error:  # open_clip, torch, safetensors and the hub each have their own kinds
            raise load_failure(what or name, hub_id, error) from error

    def _text_features(self, texts: list[str]) -> Tensor:
        model: Any = self.model
        features: Tensor = model.encode_text(self.tokenizer(texts).to(self.device))
        return features

    def _image_features(self, pixels: Tensor) -> Tensor:
        model: Any = self.model
        features: Tensor = model.encode_image(pixels)
        return features


def _repository(entry: dict[str, Any]) -> str | None:
    """`org/name` of the hub for an entry of open_clip's table of weights, or None for weights at a plain address."""
    return "/".join(str(entry.get("hf_hub") or "").split("/")[:2]) or None


def _read_config(folder: Path) -> dict[str, Any]:
    path = folder / CONFIG_FILE
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path}: not JSON ({error})") from error
    model = config.get("model_cfg") if isinstance(config, dict) else None
    missing = {"embed_dim", "vision_cfg", "text_cfg"} - set(model if isinstance(model, dict) else ())
    if missing:
        raise ValueError(f"{path}: model_cfg lacks {', '.join(sorted(missing))}")
    return dict(config)


def _weights_in(folder: Path) -> Path:
    for name in _WEIGHT_FILES:
        if (folder / name).is_file():
            return folder / name
    others = sorted(path for suffix in ("*.safetensors", "*.bin", "*.pt", "*.pth") for path in folder.glob(suffix))
    if len(others) != 1:
        found = ", ".join(path.name for path in others) or "none"
        raise FileNotFoundError(f"{folder}: no {_WEIGHT_FILES[0]}; weight files found: {found}")
    return others[0]


def _normalisation(preprocess: ImageTransform) -> tuple[tuple[float, ...], tuple[float, ...]]:
    for step in getattr(preprocess, "transforms", ()):
        if hasattr(step, "mean") and hasattr(step, "std"):
            return tuple(map(float, step.mean)), tuple(map(float, step.std))
    raise ValueError(
        "preprocess has no Normalize step; use the evaluation transform of open_clip.create_model_and_transforms"
    )
