"""The closed-form companion: Y = X M W on real inputs, with M near a diagonal plus rank 2, which RidgeLoRA can hold."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from ridgelora.experiment.shift import LORA_2, LORA_3, RIDGE, WIDTH, splits
from ridgelora.experiment.training import fit, lora, prepared, ridge, trainable

OUT, RATE, EPOCHS = 32, 1e-2, 2000
CONFIGS = {LORA_2: lora(2, ["0"]), LORA_3: lora(3, ["0"]), RIDGE: ridge(2, ["0"])}


@dataclass(frozen=True)
class Fits:
    """Parameters of a method and its mean squared errors, one a seed."""

    parameters: int
    errors: tuple[float, ...]


def planted(seed: int) -> tuple[Tensor, Tensor, nn.Sequential]:
    """X ``(n, 64)``, Y ``(n, 32)`` and the frozen layer W; M = diag(1 + 0.3 n) + 0.3 U V / 8, normal and of rank 2."""
    generator = torch.Generator().manual_seed(seed)
    normal = lambda *shape: torch.randn(shape, generator=generator)
    weight = normal(WIDTH, OUT) / WIDTH**0.5
    M = torch.diag(1 + 0.3 * normal(WIDTH)) + 0.3 * normal(WIDTH, 2) @ normal(2, WIDTH) / WIDTH**0.5
    base = nn.Sequential(nn.Linear(WIDTH, OUT, bias=False)).requires_grad_(False)
    base[0].weight.data = weight.T.contiguous()
    images = splits()[0].images
    return images, images @ M @ weight, base


def run_closed_form(seeds: int, epochs: int = EPOCHS) -> dict[str, Fits]:
    """Fits every method by full-batch Adam on seeds 0 .. seeds - 1."""
    results = {}
    for name, config in CONFIGS.items():
        errors = []
        for seed in range(seeds):
            x, y, base = planted(seed)
            model = prepared(base, config, ["0"], seed)
            fit(model, functional.mse_loss, x, y, RATE, epochs, len(x), seed)
            with torch.no_grad():
                errors.append(float(functional.mse_loss(model(x), y)))
        results[name] = Fits(trainable(model), tuple(errors))
    return results
