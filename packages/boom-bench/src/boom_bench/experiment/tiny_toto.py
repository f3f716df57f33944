"""A tiny Toto, trained from scratch on the histories with this project's toto-ts, where that is installed."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from boom_bench.forecasters.toto import TotoForecaster, toto_ts

PATCH, CONTEXT, BATCH, LEARNING_RATE = 24, 336, 8, 2e-3
STEPS = 350
SAMPLES = 48
MODEL = {
    "patch_size": PATCH, "stride": PATCH, "embed_dim": 48, "num_layers": 3, "num_heads": 4, "mlp_hidden_dim": 96,
    "dropout": 0.1, "spacewise_every_n_layers": 3, "spacewise_first": False,
    "output_distribution_kwargs": {"k_components": 8},
}  # fmt: skip


def train_toto(histories: Sequence[NDArray[Any]], seed: int, steps: int = STEPS) -> TotoForecaster:
    """Trains the model and wraps it.

    Args:
        histories: arrays (V, T) with equal V; only what lies before the test windows.
        seed: of the weights, the windows and the samples.
        steps: of the optimiser; 10 % warm-up, 50 % level, 40 % decay.

    Returns:
        A forecaster that draws 48 samples.

    Raises:
        ImportError: toto_ts is not installed.
    """
    torch, package = importlib.import_module("torch"), importlib.import_module("toto_ts")
    draw = np.random.default_rng(seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = package.Toto(package.TotoConfig(**MODEL)).train()
        optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, eps=1e-7)
        warmup, stable = steps // 10, steps // 2
        schedule = package.WarmupStableDecay(optimizer, warmup, stable, steps - warmup - stable)
        for _ in range(steps):
            windows = []
            for _ in range(BATCH):
                series = histories[int(draw.integers(len(histories)))]
                at = int(draw.integers(series.shape[1] - CONTEXT - PATCH + 1))
                windows.append(series[:, at : at + CONTEXT + PATCH])
            batch = torch.from_numpy(np.stack(windows)).float()
            # one patch later: what each patch of the input is to predict
            loss = package.next_patch_loss(model(batch[..., :-PATCH]), batch[..., PATCH:])
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
    return toto_ts(model.eval(), num_samples=SAMPLES, seed=seed)
