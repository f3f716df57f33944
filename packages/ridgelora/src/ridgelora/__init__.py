"""RidgeLoRA: low-rank adapters with a trainable ridge (OpenReview 0RF80tUWuv), a peft method registered on import."""

from importlib.metadata import version

from ridgelora.config import RidgeLoraConfig
from ridgelora.convert import convert_third_party
from ridgelora.initialisation import ridge_init, ridge_init_B, ridge_offset
from ridgelora.layer import RidgeLoraLayer, RidgeLoraLinear
from ridgelora.model import RidgeLoraModel
from ridgelora.nuclear_norm import RidgeNorm, ridge_nuclear_norm
from ridgelora.param_groups import ridge_param_groups
from ridgelora.squashing import ridge_squashing_loss, ridge_squashing_terms
from ridgelora.trainer import RidgeSquashingMixin, RidgeSquashingTrainer
from ridgelora.transform import ridge_merge, ridge_transform

__all__ = [
    "RidgeLoraConfig",
    "RidgeLoraLayer",
    "RidgeLoraLinear",
    "RidgeLoraModel",
    "RidgeNorm",
    "RidgeSquashingMixin",
    "RidgeSquashingTrainer",
    "convert_third_party",
    "ridge_init",
    "ridge_init_B",
    "ridge_merge",
    "ridge_nuclear_norm",
    "ridge_offset",
    "ridge_param_groups",
    "ridge_squashing_loss",
    "ridge_squashing_terms",
    "ridge_transform",
]

__version__ = version("ridgelora")
