"""Masks over the weights of a model: which entries are kept (paper 3.2), how many, and operations on sets of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bigram_subnet import editing
from bigram_subnet.choices import Layout
from bigram_subnet.layout import place_of
from bigram_subnet.mismatch import mismatch
from bigram_subnet.selection import maskable_weights

if TYPE_CHECKING:
    from transformers import PreTrainedModel


class SubnetworkMask(Mapping[str, Tensor]):
    """A subnetwork: for every maskable weight a bool tensor of its shape, True where the weight is kept.

    It reads as a mapping from parameter names to masks, in model order. Biases, norms, embeddings and the head are not
    in it: they are always kept.

    Args:
        masks: bool tensors or numpy arrays by parameter name, each in the parameter's own shape; tensors are
            kept as they are, not copied.
        base_model: hub id or folder of the model that the mask is for.
        config: the model's transformers config, which knows the number of heads.

    Raises:
        ValueError: no mask, a value that is no bool tensor or array, or a name that is no weight of a block.

    Example:
        >>> import torch
        >>> from bigram_subnet import SubnetworkMask
        >>> mask = SubnetworkMask({"transformer.h.0.mlp.c_fc.weight": torch.eye(3, dtype=torch.bool)})
        >>> mask.kept, mask.total, mask.complement().kept
        (3, 9, 6)
    """

    def __init__(
        self, masks: Mapping[str, Tensor | NDArray[np.bool_]], base_model: str | None = None, config: Any = None
    ) -> None:
        if not masks:
            raise ValueError("a mask must cover at least one weight, got none")
        checked: dict[str, Tensor] = {}
        for name, given in masks.items():
            place_of(name)
            mask = torch.tensor(given) if isinstance(given, np.ndarray) and given.dtype == bool else given
            if not isinstance(mask, Tensor) or mask.dtype != torch.bool:
                what = getattr(mask, "dtype", type(mask).__name__)
                raise ValueError(f"{name}: a mask must be a bool tensor or array, got {what}")
            checked[name] = mask
        self._masks = checked
        self.base_model = base_model
        self.config = config

    # Making one

    @classmethod
    def full(cls, model: PreTrainedModel) -> SubnetworkMask:
        """The mask that keeps everything."""
        return cls._filled(model, keep=True)

    @classmethod
    def empty(cls, model: PreTrainedModel) -> SubnetworkMask:
        """The mask that keeps nothing: embeddings, biases, norms and head alone."""
        return cls._filled(model, keep=False)

    @classmethod
    def _filled(cls, model: PreTrainedModel, keep: bool) -> SubnetworkMask:
        weights = maskable_weights(model)
        masks = {name: torch.full(weight.shape, keep, dtype=torch.bool) for name, weight in weights.items()}
        return cls(masks, model.name_or_path or None, model.config)

    # Reading it

    def __getitem__(self, name: str) -> Tensor:
        return self._masks[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._masks)

    def __len__(self) -> int:
        return len(self._masks)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, SubnetworkMask):
            return NotImplemented
        return self.keys() == other.keys() and all(torch.equal(mask, other[name]) for name, mask in self.items())

    __hash__ = None  # type: ignore[assignment]  # it can be edited in place

    def __repr__(self) -> str:
        of = f" of {self.base_model}" if self.base_model else ""
        return f"SubnetworkMask({self.kept:,} of {self.total:,} weights kept ({self.proportion_kept:.3%}){of})"

    @property
    def kept(self) -> int:
        """How many entries are kept."""
        return sum(count(mask) for mask in self.values())

    @property
    def total(self) -> int:
        """How many entries there are."""
        return sum(mask.numel() for mask in self.values())

    @property
    def proportion_kept(self) -> float:
        """``kept / total``; 0 for weights without entries."""
        return self.kept / max(self.total, 1)

    def summary(self) -> dict[str, Any]:
        """Counts of the whole mask and of every weight, ready for JSON.

        Returns:
            ``base_model``, ``kept``, ``total``, ``proportion_kept`` and ``weights``: name -> kept, total, shape.
        """
        weights = {
            name: {"kept": count(mask), "total": mask.numel(), "shape": list(mask.shape)} for name, mask in self.items()
        }
        counts = {"kept": self.kept, "total": self.total, "proportion_kept": self.proportion_kept}
        return {"base_model": self.base_model, **counts, "weights": weights}

    # New masks

    def _with(self, masks: Mapping[str, Tensor]) -> SubnetworkMask:
        return type(self)(masks, self.base_model, self.config)

    def copy(self) -> SubnetworkMask:
        """A copy whose edits leave this one as it is."""
        return self._with({name: mask.clone() for name, mask in self.items()})

    def __invert__(self) -> SubnetworkMask:
        return self.complement()

    def complement(self) -> SubnetworkMask:
        """The mask that keeps what this one drops."""
        return self._with({name: ~mask for name, mask in self.items()})

    def randomize_within_blocks(self, generator: torch.Generator | None = None) -> SubnetworkMask:
        """A random mask with the same count in every weight matrix, by shuffling its entries [code].

        Args:
            generator: of the shuffles, on the CPU; default: torch's.
        """
        masks = {}
        for name, mask in self.items():
            chosen = torch.randperm(mask.numel(), generator=generator)[: count(mask)]
            random = torch.zeros(mask.numel(), dtype=torch.bool)
            random[chosen] = True
            masks[name] = random.view(mask.shape).to(mask.device)
        return self._with(masks)

    def _paired(self, other: SubnetworkMask) -> Iterator[tuple[str, Tensor, Tensor]]:
        if not isinstance(other, SubnetworkMask):
            raise TypeError(f"a mask is joined with another SubnetworkMask, got {type(other).__name__}")
        check_same_weights(self, other)
        for name, mask in self.items():
            yield name, mask, other[name].to(mask.device)

    def __or__(self, other: SubnetworkMask) -> SubnetworkMask:
        return self._with({name: a | b for name, a, b in self._paired(other)})

    def __and__(self, other: SubnetworkMask) -> SubnetworkMask:
        return self._with({name: a & b for name, a, b in self._paired(other)})

    def __sub__(self, other: SubnetworkMask) -> SubnetworkMask:
        return self._with({name: a & ~b for name, a, b in self._paired(other)})

    # Edits, in place

    def set_layer(self, layer: int, keep: bool = True) -> SubnetworkMask:
        """Keeps (or drops) all weights of block ``layer``, in place, and returns the mask.

        Raises:
            ValueError: no such block.
        """
        editing.set_layer(self, layer, keep)
        return self

    def set_mlp_units(self, layer: int, units: int | Iterable[int], keep: bool = True) -> SubnetworkMask:
        """Keeps (or drops) MLP units of block ``layer``, in place, and returns the mask.

        A unit is a row of the MLP's input weights (of the gate too, where there is one) and a column of its output.

        Raises:
            ValueError: no such block or unit, or a family whose layout is not known.
        """
        editing.set_mlp_units(self, layer, units, keep)
        return self

    def set_attention_head(
        self, layer: int, head: int, keep: bool = True, config: Any = None, layout: Layout = "per_head"
    ) -> SubnetworkMask:
        """Keeps (or drops) one attention head of block ``layer``, in place, and returns the mask.

        A head is its rows of q, k and v and its columns of the output. With grouped queries, k and v are dropped with
        the last head of their group.

        Args:
            layer: index of the block.
            head: index of the (query) head.
            keep: True keeps, False drops.
            config: the model's transformers config; needed only if the mask was not made from a model.
            layout: how GPT-NeoX's fused weight is read; "blocks" is the official code's reading, which edits rows of
                all heads.

        Raises:
            ValueError: no such block or head, no config, or a family whose layout is not known.
        """
        editing.set_attention_head(self, layer, head, keep, config if config is not None else self.config, layout)
        return self

    # Files

    def save(self, path: str | Path, **metadata: Any) -> None:
        """Writes the mask: bit-packed ``.safetensors``, or ``.pickle`` in the published form; see `mask_files.save`."""
        from bigram_subnet import mask_files  # the files know the mask, so that the arrow of the modules points here

        mask_files.save(self, path, **metadata)

    @classmethod
    def load(cls, path: str | Path, model: PreTrainedModel | None = None) -> SubnetworkMask:
        """Reads a mask by the ending of its name, or a published one by its hub id; see `mask_files.load`."""
        from bigram_subnet import mask_files

        return mask_files.load(path, model)


def count(mask: Tensor) -> int:
    """How many entries of a bool tensor are True; numpy counts several times faster than torch on the CPU."""
    return int(np.count_nonzero(mask.numpy())) if mask.device.type == "cpu" else int(torch.count_nonzero(mask))


def check_same_weights(a: Mapping[str, Tensor], b: Mapping[str, Tensor]) -> None:
    """One ValueError that names all weights which two masks do not share, or have in another shape."""
    if differences := mismatch(a, b, ("only in the first", "only in the second", " and ")):
        raise ValueError(f"the masks are of different models: {differences}")
