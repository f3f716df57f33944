"""The containers of a batch of multivariate series, and padding to whole patches."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional


class MaskedTimeseries(NamedTuple):
    """Several variates over time, with or without a leading batch axis.

    Attributes:
        series: `(batch, variates, time)` values.
        padding_mask: bool of the same shape, True = valid.
        id_mask: `(batch, variates, time or 1)` integers; variates with equal ids form one group and see each other.
        timestamp_seconds: `(batch, variates, time)` integers; the released model does not use them.
        time_interval_seconds: `(batch, variates)` integers; not used by the released model.
        num_exogenous_variables: how many of the last variates are known in the future.
    """

    series: Tensor
    padding_mask: Tensor
    id_mask: Tensor
    timestamp_seconds: Tensor
    time_interval_seconds: Tensor
    num_exogenous_variables: int = 0

    def to(self, device: str | torch.device) -> MaskedTimeseries:
        """The same on another device."""
        return self._replace(**{name: getattr(self, name).to(device) for name in MaskedTimeseries._fields[:5]})


class CausalMaskedTimeseries(NamedTuple):
    """A training window that holds one patch more than the context, and where inputs and targets lie in it.

    Attributes:
        series: `(batch, variates, time)` values.
        padding_mask: bool of the same shape, True = valid.
        id_mask: `(batch, variates, time or 1)` integers; variates with equal ids form one group and see each other.
        timestamp_seconds: `(batch, variates, time)` integers; not used by the released model.
        time_interval_seconds: `(batch, variates)` integers; not used by the released model.
        num_exogenous_variables: how many of the last variates are known in the future.
        input_slice: steps that are the model's input.
        target_slice: steps to be predicted, one patch later.
    """

    series: Tensor
    padding_mask: Tensor
    id_mask: Tensor
    timestamp_seconds: Tensor
    time_interval_seconds: Tensor
    num_exogenous_variables: int = 0
    input_slice: slice = slice(None)
    target_slice: slice = slice(None)

    def to(self, device: str | torch.device) -> CausalMaskedTimeseries:
        """The same on another device."""
        return self._replace(**{name: getattr(self, name).to(device) for name in MaskedTimeseries._fields[:5]})


def _missing_steps(length: int, multiple: int) -> int:
    if multiple < 1:
        raise ValueError(f"multiple must be at least 1, got {multiple}")
    return -length % multiple


def left_pad(values: Tensor, multiple: int) -> Tensor:
    """Pad the last axis on the left with zeros (False for a mask) to a multiple of `multiple`."""
    return functional.pad(values, (_missing_steps(values.shape[-1], multiple), 0))


def left_pad_ids(id_mask: Tensor, multiple: int) -> Tensor:
    """Pad group ids on the left with their leftmost value to a multiple of `multiple`."""
    missing = _missing_steps(id_mask.shape[-1], multiple)
    return torch.cat([id_mask[..., :1].expand(*id_mask.shape[:-1], missing), id_mask], -1)
