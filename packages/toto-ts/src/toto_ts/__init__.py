"""Toto: zero-shot forecasts of many related metrics, with uncertainty (arXiv 2505.14766)."""

from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from toto_ts.config import TotoConfig
from toto_ts.decoding import replace_extreme_values
from toto_ts.exogenous import shift_exogenous
from toto_ts.finetune import FinetuneConfig, FinetuneResult, finetune
from toto_ts.forecast import Forecast
from toto_ts.forecaster import TotoForecaster
from toto_ts.losses import CompositeLoss, general_robust_loss, next_patch_loss, nll
from toto_ts.model import Toto, TotoOutput
from toto_ts.rotary import apply_xpos, xpos_tables
from toto_ts.scalers import CausalPatchStdMeanScaler, CausalStdMeanScaler, StdMeanScaler
from toto_ts.schedule import WarmupStableDecay
from toto_ts.timeseries import CausalMaskedTimeseries, MaskedTimeseries, left_pad, left_pad_ids

if TYPE_CHECKING:
    from toto_ts.gluonts_predictor import TotoPredictor

__all__ = [
    "CausalMaskedTimeseries",
    "CausalPatchStdMeanScaler",
    "CausalStdMeanScaler",
    "CompositeLoss",
    "FinetuneConfig",
    "FinetuneResult",
    "Forecast",
    "MaskedTimeseries",
    "StdMeanScaler",
    "Toto",
    "TotoConfig",
    "TotoForecaster",
    "TotoOutput",
    "TotoPredictor",
    "WarmupStableDecay",
    "apply_xpos",
    "finetune",
    "general_robust_loss",
    "left_pad",
    "left_pad_ids",
    "next_patch_loss",
    "nll",
    "replace_extreme_values",
    "shift_exogenous",
    "xpos_tables",
]

__version__ = version("toto-ts")


def __getattr__(name: str) -> Any:
    """`TotoPredictor` is looked up when it is used, since gluonts and pandas take their time to import."""
    if name == "TotoPredictor":
        from toto_ts.gluonts_predictor import TotoPredictor

        return TotoPredictor
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """The public names too, before they are looked up."""
    return sorted({*globals(), *__all__})
