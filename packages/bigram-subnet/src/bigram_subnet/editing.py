"""Editing masks by block, attention head and MLP unit (paper: circuits on top of the bigram mask), in place.

An edit never touches another head. With grouped queries several heads share one key and value: a head that is kept
keeps them, and a head that is dropped drops them only when no other head of its group is read. OLMo 2 and 3 normalise
queries and keys over all heads together, so that a head dropped there gives up its values and outputs only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from torch import Tensor

from bigram_subnet.choices import Layout
from bigram_subnet.layout import (
    check_head,
    check_layout,
    head_count,
    head_rows,
    key_value_head_count,
    place_of,
    places_of_layer,
    split_fused,
    unit_index,
)

_NORMED_OVER_HEADS = ("olmo2", "olmo3")  # model types whose q_norm and k_norm see all heads at once


def set_layer(masks: Mapping[str, Tensor], layer: int, keep: bool) -> None:
    """Keeps or drops every weight of block ``layer``; the index is matched exactly."""
    layers = {name: place_of(name).layer for name in masks}
    if layer not in layers.values() or isinstance(layer, bool):
        raise ValueError(f"layer must be between {min(layers.values())} and {max(layers.values())}, got {layer!r}")
    for name, at in layers.items():
        if at == layer:
            masks[name].fill_(keep)


def set_mlp_units(masks: Mapping[str, Tensor], layer: int, units: int | Iterable[int], keep: bool) -> None:
    """Keeps or drops MLP units: rows of the MLP's inputs (gate included) and columns of its output."""
    places = places_of_layer(masks, layer)
    absent = {"mlp_in", "mlp_out"} - places.keys()
    if absent:
        raise ValueError(f"block {layer} of the mask has no {', '.join(sorted(absent))}")
    output = places["mlp_out"].oriented(masks[places["mlp_out"].name])
    index = unit_index(units, output.shape[1])
    for role in ("mlp_in", "mlp_gate"):
        if role in places:
            places[role].oriented(masks[places[role].name])[index] = keep
    output[:, index] = keep


def set_attention_head(
    masks: Mapping[str, Tensor], layer: int, head: int, keep: bool, config: Any, layout: Layout
) -> None:
    """Keeps or drops one attention head: its rows of q, k, v and its columns of the output."""
    check_layout(layout)
    heads = head_count(config, f"editing head {head}")
    check_head(head, heads)
    places = places_of_layer(masks, layer)
    weights = {role: place.oriented(masks[place.name]) for role, place in places.items()}
    if "qkv_heads" in weights or "qkv_blocks" in weights:
        by_head = "qkv_heads" in weights and layout == "per_head"
        fused = weights.get("qkv_heads", weights.get("qkv_blocks"))
        assert fused is not None
        for part in split_fused(fused, heads if by_head else None):
            rows = part[head] if by_head else head_rows(part[0], head, heads)
            rows.fill_(keep)
        head_rows(weights["o"].T, head, heads).fill_(keep)
    else:
        shared_norm = getattr(config, "model_type", None) in _NORMED_OVER_HEADS
        _check_groups(weights, heads, key_value_head_count(config), layer)
        _set_separate(weights, head, heads, keep, shared_norm)


def _check_groups(weights: Mapping[Any, Tensor], heads: int, key_value_heads: int | None, layer: int) -> None:
    """ValueError unless queries and keys are heads of one size, and the key heads those that the config tells."""
    absent = [role for role in ("q", "k", "v", "o") if role not in weights]
    if absent:
        raise ValueError(f"block {layer} of the mask has no {', '.join(absent)}")
    queries, keys = weights["q"].shape[0], weights["k"].shape[0]
    groups = keys * heads // queries if queries else 0
    uneven = queries % heads or groups < 1 or groups * queries != keys * heads or heads % groups
    if uneven or key_value_heads not in (None, groups):
        told = "" if key_value_heads is None else f", of which the config tells {key_value_heads}"
        raise ValueError(
            f"block {layer}: {heads} query heads ({queries} rows) do not share the key heads ({keys} rows{told}) evenly"
        )


def _set_separate(weights: Mapping[Any, Tensor], head: int, heads: int, keep: bool, shared_norm: bool) -> None:
    outputs, size = weights["o"].T, weights["q"].shape[0] // heads
    groups = weights["k"].shape[0] // size
    touched = {"q", "k", "v"} if keep or not shared_norm else {"v"}
    if "q" in touched:
        head_rows(weights["q"], head, heads).fill_(keep)
    head_rows(outputs, head, heads).fill_(keep)
    members = heads // groups
    group = head // members
    others = range(group * members, (group + 1) * members)
    if keep or not any(bool(head_rows(outputs, other, heads).any()) for other in others):
        for part in touched & {"k", "v"}:
            head_rows(weights[part], group, groups).fill_(keep)
