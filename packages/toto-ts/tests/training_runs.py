"""A short run that several tests share; torchrun starts `training_runs.py OUT BATCH_SIZE`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch

from toto_ts import FinetuneConfig, FinetuneResult, Toto, TotoConfig, finetune

STEPS = 12
RECIPE = {
    "max_steps": STEPS,
    "learning_rate": 5e-3,
    "min_lr": 1e-4,
    "warmup_steps": 2,
    "stable_steps": 6,
    "decay_steps": 4,
    "context_patches": 3,
    "train_batch_size": 8,
    "val_interval": 4,
    "windows_per_series": 20,
    "device": "cpu",
    "seed": 1,
    "logging_steps": 1,
}


def series(exogenous: bool = False) -> list[Any]:
    """Three series of two daily waves with noise."""
    generator, time = np.random.default_rng(0), np.arange(240)
    waves = [
        20
        + 5 * np.sin(2 * np.pi * (time[None] / 24 + phase + np.array([[0.0], [0.25]])))
        + generator.normal(size=(2, 240))
        for phase in (0.0, 0.3, 0.6)
    ]
    return [{"target": wave, "exogenous": np.roll(wave[:1], 3)} for wave in waves] if exogenous else waves


def model(dropout: float = 0.1) -> Toto:
    torch.manual_seed(0)
    sizes: dict[str, Any] = {"patch_size": 8, "stride": 8, "embed_dim": 16, "num_layers": 2, "num_heads": 2}
    return Toto(
        TotoConfig(
            **sizes,
            mlp_hidden_dim=24,
            dropout=dropout,
            spacewise_every_n_layers=2,
            output_distribution_kwargs={"k_components": 3},
        )
    )


def run(output_dir: str | Path | None, data: Any = None, started: Toto | None = None, **changes: Any) -> FinetuneResult:
    recipe = FinetuneConfig(output_dir=None if output_dir is None else str(output_dir), **{**RECIPE, **changes})
    return finetune(model() if started is None else started, series() if data is None else data, recipe)


if __name__ == "__main__":
    folder, size = Path(sys.argv[1]), int(sys.argv[2])
    run(folder, started=model(dropout=0.0), train_batch_size=size)
