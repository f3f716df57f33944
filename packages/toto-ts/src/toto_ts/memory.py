"""How much memory a forecast takes beyond the weights, so that one that cannot fit is refused before it starts."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import torch

from toto_ts.config import TotoConfig

# Tokens (patches of one variate) computed at once: enough for matrix products at full rate, few enough to stay flat.
PREFILL_TOKENS = {"cpu": 4096, "cuda": 65536}
DECODE_ROWS = {"cpu": 256, "cuda": 8192}


@dataclasses.dataclass(frozen=True)
class Plan:
    """How a forecast is cut into pieces.

    Args:
        entries: series of the batch computed together.
        samples: samples computed together; 1 in point mode.
    """

    entries: int
    samples: int


def make_plan(
    batch: int, variates: int, patches: int, num_samples: int | None, samples_per_batch: int | None, device: str
) -> Plan:
    """Pieces that keep memory flat; `samples_per_batch` is taken as given."""
    tokens = PREFILL_TOKENS.get(device, PREFILL_TOKENS["cpu"])
    entries = min(batch, max(1, tokens // (variates * patches)))
    if num_samples is None:
        return Plan(entries, 1)
    if samples_per_batch is not None:
        return Plan(entries, samples_per_batch)
    rows = DECODE_ROWS.get(device, DECODE_ROWS["cpu"])
    pieces = -(-num_samples // max(1, rows // (entries * variates)))
    return Plan(entries, -(-num_samples // pieces))


def forecast_bytes(
    config: TotoConfig, batch: int, variates: int, patches: int, steps: int, num_samples: int | None, plan: Plan
) -> int:
    """Bytes that grow with the inputs: results, keys and values, and the widest activations."""
    wide = 8 * batch * variates * steps * config.patch_size * (num_samples or 1)
    blocks = config.attention_axes.count("time")
    token = 2 * blocks * config.embed_dim * 4
    rows = plan.samples * plan.entries * variates
    cache = token * (plan.entries * variates * patches + rows * max(steps - 1, 0))
    widest = 4 * (2 * config.mlp_hidden_dim + 4 * config.embed_dim) * max(plan.entries * variates * patches, rows)
    return 2 * wide + cache + widest  # samples, and their sorted copy


def available_bytes(device: torch.device) -> int | None:
    """Free memory of a device, or None where it cannot be told."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    meminfo = Path("/proc/meminfo")
    if device.type != "cpu" or not meminfo.is_file():
        return None
    for line in meminfo.read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return 1024 * int(line.split()[1])
    return None


def check_memory(
    config: TotoConfig,
    shape: tuple[int, int, int],
    horizon: int,
    num_samples: int | None,
    plan: Plan,
    device: torch.device,
) -> None:
    """Refuse a horizon that memory does not allow, and say which would fit.

    Args:
        config: of the model.
        shape: (batch, variates, patches) of the context.
        horizon: steps.
        num_samples: of each series; None in point mode.
        plan: pieces.
        device: of the model.

    Raises:
        ValueError: more is needed than is free.
    """
    free = available_bytes(device)
    steps = -(-horizon // config.patch_size)

    def needed(patches_ahead: int) -> int:
        return forecast_bytes(config, *shape, patches_ahead, num_samples, plan)

    if free is None or needed(steps) <= free:
        return
    slope = needed(3) - needed(2)
    fitting = max(0, (free - needed(2)) // slope + 2) * config.patch_size
    advice = f"a horizon of up to {fitting} would fit" if fitting else "no horizon would fit: fewer samples or series"
    raise ValueError(
        f"horizon={horizon} needs about {needed(steps) / 2**30:.1f} GiB for {shape[0]} series of {shape[1]} variates "
        f"and {num_samples or 'no'} samples, {free / 2**30:.1f} GiB are free on {device}; {advice}"
    )
