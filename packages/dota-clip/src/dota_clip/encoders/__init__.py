"""Image-text encoders: open_clip and transformers behind one contract."""

from dota_clip.encoders.contract import ClipEncoder
from dota_clip.encoders.hf import HFClipEncoder
from dota_clip.encoders.loading import load_encoder
from dota_clip.encoders.open_clip import OpenClipEncoder

__all__ = ["ClipEncoder", "HFClipEncoder", "OpenClipEncoder", "load_encoder"]
