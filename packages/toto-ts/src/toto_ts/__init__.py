"""Toto: zero-shot forecasts of many related metrics, with uncertainty (arXiv 2505.14766)."""

from importlib.metadata import version

from toto_ts.config import TotoConfig
from toto_ts.exogenous import shift_exogenous
from toto_ts.losses import CompositeLoss, general_robust_loss, next_patch_loss, nll
from toto_ts.model import Toto, TotoOutput
from toto_ts.rotary import apply_xpos, xpos_tables
from toto_ts.scalers import CausalPatchStdMeanScaler, CausalStdMeanScaler, StdMeanScaler
from toto_ts.schedule import WarmupStableDecay
from toto_ts.timeseries import CausalMaskedTimeseries, MaskedTimeseries, left_pad, left_pad_ids

__all__ = [
    "CausalMaskedTimeseries",
    "CausalPatchStdMeanScaler",
    "CausalStdMeanScaler",
    "CompositeLoss",
    "MaskedTimeseries",
    "StdMeanScaler",
    "Toto",
    "TotoConfig",
    "TotoOutput",
    "WarmupStableDecay",
    "apply_xpos",
    "general_robust_loss",
    "left_pad",
    "left_pad_ids",
    "next_patch_loss",
    "nll",
    "shift_exogenous",
    "xpos_tables",
]

__version__ = version("toto-ts")
