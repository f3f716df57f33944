"""Bigram subnetworks: minimal circuits of causal language models, and tests with them (arXiv 2504.15471)."""

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from bigram_subnet.config import SparsifyConfig
from bigram_subnet.surprisal import select_subnetwork, surprisal, surprisal_correlation
from bigram_subnet.training.log import TrainLog

if TYPE_CHECKING:
    from bigram_subnet.ablation import ablation_report
    from bigram_subnet.evaluation import evaluate_subnetwork
    from bigram_subnet.lens import LensResult, layer_lens
    from bigram_subnet.loss import distribution_cross_entropy
    from bigram_subnet.mask import SubnetworkMask
    from bigram_subnet.masking import apply_mask, masked
    from bigram_subnet.ngrams import BigramCounts
    from bigram_subnet.overlap import OverlapResult, mask_overlap
    from bigram_subnet.residual import (
        Rotation,
        covariance_similarity,
        layer_rotations,
        residual_states,
        ridge_map,
        rotation_angle,
    )
    from bigram_subnet.selection import maskable_weights
    from bigram_subnet.shares import block_shares
    from bigram_subnet.sparsifier import ContinuousSparsifier, MaskCounts
    from bigram_subnet.stopping import loss_is_stable, should_stop
    from bigram_subnet.targets import NgramTarget, SelfTarget
    from bigram_subnet.training.subnetwork import train_subnetwork

__all__ = [
    "BigramCounts",
    "ContinuousSparsifier",
    "LensResult",
    "MaskCounts",
    "NgramTarget",
    "OverlapResult",
    "Rotation",
    "SelfTarget",
    "SparsifyConfig",
    "SubnetworkMask",
    "TrainLog",
    "ablation_report",
    "apply_mask",
    "block_shares",
    "covariance_similarity",
    "distribution_cross_entropy",
    "evaluate_subnetwork",
    "layer_lens",
    "layer_rotations",
    "loss_is_stable",
    "mask_overlap",
    "maskable_weights",
    "masked",
    "residual_states",
    "ridge_map",
    "rotation_angle",
    "select_subnetwork",
    "should_stop",
    "surprisal",
    "surprisal_correlation",
    "train_subnetwork",
]

__version__ = version("bigram-subnet")

# Looked up when they are used, since torch and transformers take their time to import.
_MODULES = {
    "BigramCounts": "ngrams",
    "ContinuousSparsifier": "sparsifier",
    "LensResult": "lens",
    "MaskCounts": "sparsifier",
    "NgramTarget": "targets",
    "OverlapResult": "overlap",
    "Rotation": "residual",
    "SelfTarget": "targets",
    "SubnetworkMask": "mask",
    "ablation_report": "ablation",
    "apply_mask": "masking",
    "block_shares": "shares",
    "covariance_similarity": "residual",
    "distribution_cross_entropy": "loss",
    "evaluate_subnetwork": "evaluation",
    "layer_lens": "lens",
    "layer_rotations": "residual",
    "loss_is_stable": "stopping",
    "mask_overlap": "overlap",
    "maskable_weights": "selection",
    "masked": "masking",
    "residual_states": "residual",
    "ridge_map": "residual",
    "rotation_angle": "residual",
    "should_stop": "stopping",
    "train_subnetwork": "training.subnetwork",
}


def __getattr__(name: str) -> Any:
    """A public name, from the module that defines it."""
    if name in _MODULES:
        return getattr(import_module(f"bigram_subnet.{_MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """The public names too, before they are looked up."""
    return sorted({*globals(), *__all__})
