"""Where queries, keys, values, outputs and MLP units lie inside the weights of a block, for each family.

A weight is named by its module (``self_attn.q_proj``), which says its role and its orientation. Two families fuse
query, key and value into one weight, in different orders:

- GPT-2 ``attn.c_attn``, stored (in, out): [all q | all k | all v] along the outputs;
- GPT-NeoX ``attention.query_key_value``, stored (out, in): head by head, rows ``h*3*hs .. (h+1)*3*hs`` hold q, k, v of
  head h. The official code reads it as three blocks, so that its head edits touch every head; ``layout="blocks"`` does
  the same, to reproduce published overlap figures.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from bigram_subnet.choices import Layout

Role = Literal["q", "k", "v", "o", "qkv_blocks", "qkv_heads", "mlp_in", "mlp_gate", "mlp_out"]

# module -> (role, stored as (in, out))
MODULES: dict[str, tuple[Role, bool]] = {
    "attn.c_attn": ("qkv_blocks", True),  # GPT-2
    "attn.c_proj": ("o", True),
    "mlp.c_fc": ("mlp_in", True),
    "mlp.c_proj": ("mlp_out", True),
    "attention.query_key_value": ("qkv_heads", False),  # GPT-NeoX
    "attention.dense": ("o", False),
    "mlp.dense_h_to_4h": ("mlp_in", False),
    "mlp.dense_4h_to_h": ("mlp_out", False),
    "self_attn.q_proj": ("q", False),  # Llama, Qwen, Mistral, OLMo, Gemma
    "self_attn.k_proj": ("k", False),
    "self_attn.v_proj": ("v", False),
    "self_attn.o_proj": ("o", False),
    "mlp.gate_proj": ("mlp_gate", False),
    "mlp.up_proj": ("mlp_in", False),
    "mlp.down_proj": ("mlp_out", False),
}
_BLOCK = re.compile(r"^(?:.*?\.)??(\d+)\.(.+)\.weight$")  # the first whole number in a name is the block's


@dataclass(frozen=True)
class WeightPlace:
    """Where a weight belongs: its name, the index of its block, its module inside the block."""

    name: str
    layer: int
    module: str

    @property
    def role(self) -> Role:
        """What the weight does.

        Raises:
            ValueError: a module of no known family.
        """
        return self._known()[0]

    @property
    def transposed(self) -> bool:
        """Whether it is stored (in, out), as Conv1D does, and not (out, in)."""
        return self._known()[1]

    def _known(self) -> tuple[Role, bool]:
        if self.module not in MODULES:
            raise ValueError(
                f"{self.name}: no known layout for module {self.module!r}; known are those of GPT-2, GPT-NeoX, Llama, "
                f"Qwen, Mistral, OLMo and Gemma: {', '.join(MODULES)}"
            )
        return MODULES[self.module]

    def oriented(self, weight: Tensor) -> Tensor:
        """A view of a weight, or of its mask, as (out, in)."""
        return weight.T if self.transposed else weight


def place_of(name: str) -> WeightPlace:
    """Reads the block and the module from a parameter's name.

    Raises:
        ValueError: a name without a block index.
    """
    found = _BLOCK.match(name)
    if found is None:
        raise ValueError(f"{name}: not the name of a weight inside a block, such as transformer.h.0.mlp.c_fc.weight")
    return WeightPlace(name, int(found[1]), found[2])


def known_places(masks: Mapping[str, Tensor]) -> list[WeightPlace]:
    """The places of all weights, in families whose layout is known.

    StarCoder 2 and GPTBigCode name their modules as GPT-2 does, but store them (out, in), the latter with shared keys
    and values: read as GPT-2's, their masks would be edited across units.

    Raises:
        ValueError: a module of no known family, or GPT-2's names over weights that are not stored as GPT-2's.
    """
    places = [place_of(name) for name in masks]
    separate = {place.layer for place in places if not place.transposed}
    for place in places:
        shape = tuple(masks[place.name].shape)
        if place.transposed and place.layer in separate:
            raise ValueError(f"{place.name}: no known layout where this module of GPT-2 stands beside others' modules")
        if place.role == "qkv_blocks" and (len(shape) != 2 or shape[1] != 3 * shape[0]):
            raise ValueError(f"{place.name}: GPT-2's layout is (d, 3 d), got {shape}, which has no known layout")
    return places


def places_of_layer(masks: Mapping[str, Tensor], layer: int) -> dict[Role, WeightPlace]:
    """The weights of block ``layer`` by role.

    Raises:
        ValueError: no such block (the known ones are said), or as :func:`known_places`.
    """
    places = known_places(masks)
    layers = sorted({place.layer for place in places})
    if layer not in layers or isinstance(layer, bool):
        raise ValueError(f"layer must be one of the mask's blocks {layers[:1]} to {layers[-1:]}, got {layer!r}")
    return {place.role: place for place in places if place.layer == layer}


def head_count(config: Any, fused: str) -> int:
    """The number of attention heads of a transformers config.

    Args:
        config: a config, or None.
        fused: what needs it, for the message.

    Raises:
        ValueError: there is no config.
    """
    if config is None:
        raise ValueError(f"{fused} needs the number of heads: pass config, the model's transformers config")
    return int(_text_config(config).num_attention_heads)


def key_value_head_count(config: Any) -> int | None:
    """The number of key and value heads, where a transformers config tells one."""
    count = getattr(_text_config(config), "num_key_value_heads", None)
    return count if isinstance(count, int) else None


def _text_config(config: Any) -> Any:
    return config.get_text_config(decoder=True) if hasattr(config, "get_text_config") else config


def check_layout(layout: str) -> None:
    """ValueError unless ``layout`` is one of those of :data:`Layout`."""
    if layout not in get_args(Layout):
        raise ValueError(f"layout must be one of {', '.join(get_args(Layout))}, got {layout!r}")


def split_fused(weight: Tensor, heads: int | None) -> tuple[Tensor, Tensor, Tensor]:
    """Splits a fused (out, in) weight into q, k and v as views (heads, head_size, in).

    Args:
        weight: (3 * heads * head_size, in).
        heads: their number if the rows are ordered head by head; None: three blocks, which come back as one head.

    Raises:
        ValueError: rows that do not divide.
    """
    if weight.shape[0] % (3 * (heads or 1)):
        raise ValueError(
            f"{weight.shape[0]} rows of a fused projection do not divide into q, k, v of {heads or 1} heads"
        )
    if heads is None:
        q, k, v = weight.unflatten(0, (3, -1)).unbind(0)
        return q.unsqueeze(0), k.unsqueeze(0), v.unsqueeze(0)
    q, k, v = weight.unflatten(0, (heads, 3, -1)).unbind(1)
    return q, k, v


def split_layers(masks: Mapping[str, Tensor], layout: Layout, config: Any = None) -> dict[str, Tensor]:
    """Splits every block into q, k, v, o and the MLP's matrices, oriented (out, in) [code: overlap].

    Args:
        masks: tensors by parameter name.
        layout: how to read GPT-NeoX's fused weight; without effect elsewhere.
        config: the model's config, for "per_head" on that weight.

    Returns:
        Tensors by ``"<layer>.<part>"``, with parts q, k, v, o, mlp_in, mlp_gate, mlp_out.

    Raises:
        ValueError: an unknown layout, a missing config, or as :func:`known_places`.
    """
    check_layout(layout)
    parts: dict[str, Tensor] = {}
    for place in known_places(masks):
        name = place.name
        role, oriented = place.role, place.oriented(masks[name])
        if role in ("qkv_blocks", "qkv_heads"):
            by_head = role == "qkv_heads" and layout == "per_head"
            heads = head_count(config, f"the fused weight {name} (layout per_head)") if by_head else None
            for part, piece in zip("qkv", split_fused(oriented, heads), strict=True):
                parts[f"{place.layer}.{part}"] = piece.flatten(0, 1)
        else:
            parts[f"{place.layer}.{role}"] = oriented
    return parts


def head_rows(weight: Tensor, head: int, heads: int) -> Tensor:
    """A view of the rows of one head in a (heads * head_size, in) tensor.

    Raises:
        ValueError: rows that do not divide into heads, or a head that does not exist.
    """
    if weight.shape[0] % heads:
        raise ValueError(f"{weight.shape[0]} rows do not divide into {heads} heads")
    check_head(head, heads)
    rows: Tensor = weight.unflatten(0, (heads, -1))[head]
    return rows


def is_whole(value: object) -> bool:
    """Whether a value is a whole number, of Python or numpy, and not a truth value."""
    return hasattr(value, "__index__") and not isinstance(value, (bool, Tensor))


def check_head(head: int, heads: int) -> None:
    """ValueError unless the head exists."""
    if not is_whole(head) or not 0 <= head < heads:
        raise ValueError(f"head must be between 0 and {heads - 1}, got {head!r}")


def unit_index(units: int | Iterable[int], size: int) -> Tensor:
    """Checked indices of MLP units.

    Raises:
        ValueError: an index outside of the MLP, or not a whole number.
    """
    given: Any = units.tolist() if isinstance(units, Tensor) else units
    chosen = list(given) if isinstance(given, Iterable) else [given]
    wrong = [unit for unit in chosen if not is_whole(unit) or not 0 <= int(unit) < size]
    if wrong:
        raise ValueError(f"units must be between 0 and {size - 1}, got {wrong[0]!r}")
    return torch.tensor([int(unit) for unit in chosen], dtype=torch.long)
