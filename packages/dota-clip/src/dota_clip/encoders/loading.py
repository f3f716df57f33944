"""The one door to an encoder: a name or folder in, an `OpenClipEncoder` or `HFClipEncoder` out."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from dota_clip.encoders.contract import ClipEncoder
from dota_clip.encoders.hf import HFClipEncoder
from dota_clip.encoders.open_clip import CONFIG_FILE, HUB_PREFIX, OpenClipEncoder

_FORCED: dict[str, type[OpenClipEncoder] | type[HFClipEncoder]] = {"open_clip:": OpenClipEncoder, "hf:": HFClipEncoder}


def load_encoder(
    name: str | Path, *, pretrained: str | Path | None = None, device: str = "auto", dtype: str = "auto"
) -> ClipEncoder:
    """Load an encoder from wherever `name` points.

    ==============================  ======================================================
    `name`                          loaded as
    ==============================  ======================================================
    folder, open_clip_config.json   open_clip
    folder, config.json             transformers
    hf-hub:org/name                 open_clip, from the hub
    architecture + `pretrained`     open_clip, for example ViT-B-16 with "openai"
    org/name                        transformers, from the hub
    open_clip:... or hf:...         the library named, whatever the rest looks like
    ==============================  ======================================================

    Args:
        name: see the table.
        pretrained: an open_clip tag or a checkpoint file; only with an open_clip architecture.
        device: "auto", "cpu", "cuda", "cuda:n" or "mps".
        dtype: "auto" (bfloat16 on CUDA, else float32), "float32", "bfloat16" or "float16".

    Raises:
        ImportError: the library that the name needs is not installed; the message is the install command.
        ValueError: a folder without a model, an unknown name (near matches are named), weights that do not fit.
        OSError: the hub cannot be reached.
    """
    text = str(name)
    for prefix, encoder in _FORCED.items():
        if text.startswith(prefix):
            return encoder.from_pretrained(text.removeprefix(prefix), pretrained=pretrained, device=device, dtype=dtype)
    return _encoder_class(text, pretrained).from_pretrained(text, pretrained=pretrained, device=device, dtype=dtype)


def _encoder_class(name: str, pretrained: str | Path | None) -> type[OpenClipEncoder] | type[HFClipEncoder]:
    folder = Path(name)
    if folder.is_dir():
        if (folder / CONFIG_FILE).is_file():
            return OpenClipEncoder
        if (folder / "config.json").is_file():
            return HFClipEncoder
        raise ValueError(f"{name}: the folder has neither {CONFIG_FILE} (open_clip) nor config.json (transformers)")
    if name.startswith(HUB_PREFIX) or pretrained is not None:
        return OpenClipEncoder
    looks_like_hub = name.count("/") == 1 and all(name.split("/"))
    return HFClipEncoder if looks_like_hub and not _is_architecture(name) else OpenClipEncoder


def _is_architecture(name: str) -> bool:
    """Whether `name` is an open_clip architecture in its older spelling with a slash, such as ViT-B/32."""
    if find_spec("open_clip") is None:
        return False
    import open_clip

    return name.replace("/", "-") in open_clip.list_models()
