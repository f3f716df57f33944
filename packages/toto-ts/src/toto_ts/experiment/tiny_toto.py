"""Toto at 130,000 parameters, trained on the flights and asked for deciles."""

from __future__ import annotations

import dataclasses

import numpy as np
import torch

from toto_ts.config import TotoConfig
from toto_ts.experiment.flights import HORIZON, Array, Flights
from toto_ts.experiment.scores import LEVELS
from toto_ts.finetune import FinetuneConfig, finetune
from toto_ts.forecaster import TotoForecaster
from toto_ts.model import Toto

CONTEXT, PATCH, SAMPLES = 336, 24, 48


@dataclasses.dataclass(frozen=True)
class Variant:
    """A row of the table: what differs from the paper's model.

    Args:
        scaler: class of the scaler.
        spacewise_every: blocks of which one is over variates; -1 for time only.
        lambda_nll: weight of the likelihood.
    """

    scaler: str = "CausalPatchStdMeanScaler"
    spacewise_every: int = 3
    lambda_nll: float = 0.575

    def model(self, seed: int) -> Toto:
        """The untrained model."""
        torch.manual_seed(seed)
        return Toto(
            TotoConfig(
                patch_size=PATCH,
                stride=PATCH,
                embed_dim=48,
                num_layers=3,
                num_heads=4,
                mlp_hidden_dim=96,
                spacewise_every_n_layers=self.spacewise_every,
                spacewise_first=False,
                scaler_cls=f"<class 'model.scaler.{self.scaler}'>",
                output_distribution_kwargs={"k_components": 8},
            )
        )

    def recipe(self, steps: int, seed: int) -> FinetuneConfig:
        """AdamW at 2e-3, 10 % warm-up, 50 % stable, 40 % decay; the last weights are taken."""
        warmup, stable = steps // 10, steps // 2
        return FinetuneConfig(
            seed=seed,
            learning_rate=2e-3,
            warmup_steps=warmup,
            stable_steps=stable,
            decay_steps=steps - warmup - stable,
            max_steps=steps,
            context_patches=CONTEXT // PATCH,
            test_fraction=0.0,
            train_batch_size=8,
            val_interval=steps,
            lambda_nll=self.lambda_nll,
            max_grad_norm=1.0,
            device="cpu",
            logging_steps=max(1, steps // 10),
        )


def train(flights: Flights, variant: Variant, steps: int, seed: int) -> Toto:
    """Train on all but the last 60 days."""
    return finetune(variant.model(seed), [flights.train], variant.recipe(steps, seed)).model


def deciles(flights: Flights, model: Toto, seed: int) -> Array:
    """`(windows, series, 48, 9)` from 48 samples a window."""
    contexts = flights.contexts(CONTEXT).astype(np.float32)
    forecast = TotoForecaster(model).forecast(contexts, HORIZON, num_samples=SAMPLES, seed=seed)
    quantiles = torch.stack([forecast.quantile(level) for level in LEVELS], -1)
    return np.asarray(quantiles.double().numpy())
