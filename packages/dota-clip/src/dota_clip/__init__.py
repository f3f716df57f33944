"""DOTA: distributional test-time adaptation of CLIP-like classifiers (arXiv 2409.19375)."""

from importlib.metadata import version

from dota_clip.adapter import DotaAdapter, DotaOutput
from dota_clip.config import DotaConfig, TDAConfig
from dota_clip.encoders import load_encoder
from dota_clip.encoders.hf import HFClipEncoder
from dota_clip.encoders.open_clip import OpenClipEncoder
from dota_clip.feedback import HumanFeedback
from dota_clip.presets import PRESETS
from dota_clip.tda import TDAAdapter, TDAOutput
from dota_clip.views import ViewSelection, select_views
from dota_clip.zero_shot import zero_shot_weights

__all__ = [
    "PRESETS",
    "DotaAdapter",
    "DotaConfig",
    "DotaOutput",
    "HFClipEncoder",
    "HumanFeedback",
    "OpenClipEncoder",
    "TDAAdapter",
    "TDAConfig",
    "TDAOutput",
    "ViewSelection",
    "load_encoder",
    "select_views",
    "zero_shot_weights",
]

__version__ = version("dota-clip")
