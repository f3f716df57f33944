"""AuroRA: LoRA with an adaptive nonlinear layer (arXiv 2505.18738), as a peft method; importing this registers it."""

from importlib.metadata import version

from lora_anl.config import AuroraConfig
from lora_anl.convert import convert_third_party
from lora_anl.gap import measure_merge_gap
from lora_anl.layer import AuroraLayer, AuroraLinear, StaticMergeWarning
from lora_anl.merge import calibrated_delta_weight, merge_calibrated
from lora_anl.model import AuroraModel
from lora_anl.nonlinear import AdaptiveNonlinearLayer
from lora_anl.spline import BSplineBasis, bspline_basis

__all__ = [
    "AdaptiveNonlinearLayer",
    "AuroraConfig",
    "AuroraLayer",
    "AuroraLinear",
    "AuroraModel",
    "BSplineBasis",
    "StaticMergeWarning",
    "bspline_basis",
    "calibrated_delta_weight",
    "convert_third_party",
    "measure_merge_gap",
    "merge_calibrated",
]

__version__ = version("lora-anl")
