"""Where a subnetwork lies: its share in the attention and the MLP of every layer (paper 3.6)."""

from __future__ import annotations

from typing import Any

from bigram_subnet.choices import Layout
from bigram_subnet.layout import split_layers
from bigram_subnet.mask import SubnetworkMask, count

PARTS = {"attention q+k": ("q", "k"), "attention v+o": ("v", "o"), "mlp": ("mlp_in", "mlp_gate", "mlp_out")}


def block_shares(mask: SubnetworkMask, layout: Layout = "per_head", config: Any = None) -> list[dict[str, Any]]:
    """Kept entries of every layer by part.

    Args:
        mask: the subnetwork.
        layout: how GPT-NeoX's fused projection is split into q, k and v.
        config: the model's transformers config, for "per_head" on that projection if the mask does not know it.

    Returns:
        One row a layer and part: ``layer``, ``part`` ("attention q+k", "attention v+o", "mlp"), ``kept``, ``total``,
        ``density`` (kept / total) and ``share`` (of all kept entries; 0 if there are none).

    Raises:
        ValueError: a module of no known family, or a missing config.
    """
    pieces = split_layers(mask, layout, config if config is not None else mask.config)
    counts: dict[tuple[int, str], list[int]] = {}
    for name, piece in pieces.items():
        layer, _, role = name.partition(".")
        part = next(part for part, roles in PARTS.items() if role in roles)
        row = counts.setdefault((int(layer), part), [0, 0])
        row[0] += count(piece)
        row[1] += piece.numel()
    kept = sum(row[0] for row in counts.values())
    return [
        {
            "layer": layer,
            "part": part,
            "kept": row[0],
            "total": row[1],
            "density": row[0] / max(row[1], 1),
            "share": row[0] / kept if kept else 0.0,
        }
        for (layer, part), row in sorted(counts.items())
    ]
