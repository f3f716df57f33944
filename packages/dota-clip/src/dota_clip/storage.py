"""What the two adapters share as modules: a state kept in full precision, saved as a folder and read strictly."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping
from functools import wraps
from pathlib import Path
from typing import Any, ClassVar, ParamSpec, Self, TypeVar

import torch
from torch import Tensor, nn

from nips_common.artifacts import check_keys, check_tensors, load_folder, save_folder
from nips_common.runtime import resolve_device

P = ParamSpec("P")
T = TypeVar("T")


def on_state(method: Callable[P, T]) -> Callable[P, T]:
    """Runs a method without gradients, outside inference mode and autocast.

    A state made in inference mode could not be updated later, and autocast would compute its sums in half precision.
    """

    @wraps(method)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        weights = args[0].__dict__.get("_buffers", {}).get("class_weights")  # not there yet while it is made
        device = "cpu" if weights is None else weights.device.type
        with torch.inference_mode(False), torch.no_grad(), torch.autocast(device, enabled=False):
            return method(*args, **kwargs)

    return call


class AdapterState(nn.Module):
    """A module whose buffers are the state of a stream. Subclasses set `kind` and `config_class`.

    The folder of a state is ``config.json`` (the fields of the config and logit_scale) and ``model.safetensors``.
    """

    kind: ClassVar[str]
    config_class: ClassVar[type]
    config: Any
    logit_scale: float
    class_weights: Tensor

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Moves between devices as any module, but keeps at least float32: a half state could not hold its sums."""
        module: Self = super()._apply(_keep_precision(fn), recurse)
        return module

    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:
        # Updates are in place, so a state handed out must not share memory with the one that goes on.
        super()._save_to_state_dict(destination, prefix, keep_vars)
        for key, value in destination.items():
            if key.startswith(prefix) and isinstance(value, Tensor):
                destination[key] = value.clone()

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False) -> Any:
        """As in torch, but a state that does not fit is refused as a whole, with all keys named in one ValueError."""
        if strict:
            self._check(state_dict, "state_dict")
        return super().load_state_dict(state_dict, strict, assign)

    def save_pretrained(self, folder: str | os.PathLike[str]) -> None:
        """Writes the state, atomically and without copying it first.

        Args:
            folder: new or existing folder; an existing state is replaced only once the new one is complete.
        """
        config = {**dataclasses.asdict(self.config), "logit_scale": self.logit_scale}
        save_folder(Path(folder), self.kind, config, dict(self.named_buffers()))

    @classmethod
    def from_pretrained(cls, folder: str | os.PathLike[str], device: str | torch.device = "cpu") -> Self:
        """Reads what `save_pretrained` wrote; the rest of a stream is then bit-equal to one that never stopped.

        Args:
            folder: the folder.
            device: where the state goes, also "auto".

        Raises:
            ValueError: a device that is not there; unknown, missing or wrongly shaped entries (all named together); a
                truncated or foreign file.
        """
        folder, place = Path(folder), resolve_device(device)
        file = folder / "model.safetensors"
        config, tensors = load_folder(folder, cls.kind)
        fields = [*(field.name for field in dataclasses.fields(cls.config_class)), "logit_scale"]
        check_keys(config, fields, fields, str(folder / "config.json"))
        if "class_weights" not in tensors:
            raise ValueError(f"{file}: missing class_weights, found {', '.join(sorted(tensors)) or 'nothing'}")
        scale = config.pop("logit_scale")
        adapter = cls(tensors["class_weights"], cls.config_class(**config), scale)
        adapter._check(tensors, str(file))
        adapter.load_state_dict(tensors)
        return adapter.to(place)

    def extra_repr(self) -> str:
        """Size and settings, for `repr`."""
        dimension, classes = self.class_weights.shape
        return f"dimension={dimension}, classes={classes}, logit_scale={self.logit_scale:g}, {self.config}"

    def _check(self, tensors: Mapping[str, Tensor], where: str) -> None:
        check_tensors(tensors, {name: tuple(buffer.shape) for name, buffer in self.named_buffers()}, where)


def _keep_precision(fn: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """Wraps a module's conversion: floating tensors change device, or to float32 or float64, but never to less."""

    def convert(tensor: Tensor) -> Tensor:
        probe = fn(torch.empty(0, dtype=tensor.dtype, device=tensor.device))
        if tensor.is_floating_point() and probe.dtype in (torch.float16, torch.bfloat16):
            return tensor.to(probe.device)
        return fn(tensor)

    return convert
