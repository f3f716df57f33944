"""Published masks, which are pickles: read with an unpickler that knows arrays of booleans and refuses all else.

A pickle may call anything when it is read. Here only the constructors that numpy's own arrays need are found; any other
global ends the reading before it runs. numpy 1 wrote them under other module names than numpy 2, both are understood.
"""

from __future__ import annotations

import pickle  # noqa: TID251 - the published format; no global is found but numpy's array constructors
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nips_common.artifacts import atomic_file

BASE_KEY = "orig_model_name"
_PROTOCOL = 5
_CORE: Any = vars(np)["_core"]  # where numpy 2 keeps what its pickles name
_ALLOWED: dict[tuple[str, str], Any] = {
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
    ("numpy.dtypes", "BoolDType"): np.dtypes.BoolDType,
    ("builtins", "bytearray"): bytearray,
}
for _module in ("numpy.core", "numpy._core"):
    _ALLOWED[_module + ".numeric", "_frombuffer"] = _CORE.numeric._frombuffer
    _ALLOWED[_module + ".multiarray", "_reconstruct"] = _CORE.multiarray._reconstruct
    _ALLOWED[_module + ".multiarray", "scalar"] = _CORE.multiarray.scalar


class RefusedPickleError(pickle.UnpicklingError, ValueError):
    """A pickle that is damaged, or asks for more than arrays; a ValueError too, as other bad files raise."""


def _encode(text: object, encoding: object = "latin1") -> bytes:
    """What old protocols call to write bytes; the real `codecs.encode` would find any registered codec."""
    if not isinstance(text, str) or encoding not in ("latin1", "latin-1"):
        raise RefusedPickleError(f"_codecs.encode of {type(text).__name__} to {encoding!r} is not allowed")
    return text.encode("latin1")


_ALLOWED["_codecs", "encode"] = _encode


class MaskUnpickler(pickle.Unpickler):
    """An unpickler that finds numpy's array constructors and nothing else."""

    def find_class(self, module: str, name: str) -> Any:
        """The allowed object of that name.

        Raises:
            RefusedPickleError: any other name; nothing has been run.
        """
        try:
            return _ALLOWED[module, name]
        except KeyError:
            raise RefusedPickleError(
                f"the file asks for {module}.{name}, which a mask of numpy bool arrays never needs; "
                "it may run code and is refused"
            ) from None


def read_pickle(path: str | Path) -> tuple[dict[str, Tensor], str | None]:
    """Reads a published mask.

    Args:
        path: a pickle of a dict: parameter name -> numpy bool array (or 0/1 numbers), and `orig_model_name`.

    Returns:
        Bool tensors by parameter name (of wrapped models too, whose prefixes are stripped), and the base model.

    Raises:
        RefusedPickleError: (a pickle.UnpicklingError) the file asks for anything but numpy arrays, or is no pickle.
        FileNotFoundError: there is no such file.
        ValueError: no mask in it, or entries that are not masks; all are named.
    """
    with Path(path).open("rb") as file:
        try:
            data = MaskUnpickler(file).load()
        except pickle.UnpicklingError as error:
            raise RefusedPickleError(f"{path}: {error}") from None
        except (EOFError, ValueError, TypeError, IndexError, KeyError, AttributeError, OverflowError) as error:
            raise RefusedPickleError(f"{path}: damaged, or no pickle ({error})") from None
    if not isinstance(data, dict):
        raise ValueError(f"{path}: expected a dict of masks by parameter name, got {type(data).__name__}")
    base = data.pop(BASE_KEY, None)
    problems, masks = [], {}
    for name, array in data.items():
        problem = _problem(array) if isinstance(name, str) else "a key that is no text"
        if problem:
            problems.append(f"{name!r}: {problem}")
        else:
            masks[_stripped(name)] = torch.from_numpy(np.asarray(array).astype(bool, copy=False))
    if base is not None and not isinstance(base, str):
        problems.append(f"{BASE_KEY!r}: expected text, got {type(base).__name__}")
    if problems:
        raise ValueError(f"{path}: expected bool arrays: {'; '.join(problems)}")
    if not masks:
        raise ValueError(f"{path}: holds no mask")
    return masks, base


def _problem(array: object) -> str:
    """What keeps an entry from being a mask; empty if nothing does."""
    if not isinstance(array, np.ndarray):
        return f"expected an array, got {type(array).__name__}"
    if array.dtype.kind not in "biuf":
        return f"has dtype {array.dtype}"
    # A bool array of a hostile or damaged file may hold bytes other than 0 and 1.
    values = array.view(np.uint8) if array.dtype == bool else array
    if array.size and not (values.max() <= 1 if array.dtype == bool else np.isin(values, (0, 1)).all()):
        return "holds values other than 0 and 1"
    return ""


def _stripped(name: str) -> str:
    """The model's own parameter name of a mask that was saved under the official trainer's wrapper."""
    bare = name.removeprefix("wrapped_model.")
    return bare.removesuffix("_mask_params").removesuffix(".weight") + ".weight" if "_mask_params" in bare else bare


def write_pickle(path: str | Path, masks: dict[str, Tensor], base_model: str | None) -> None:
    """Writes the published form: names sorted, numpy bool arrays, `orig_model_name`; atomically."""
    data: dict[str, Any] = {name: masks[name].cpu().contiguous().numpy() for name in sorted(masks)}
    if base_model is not None:
        data[BASE_KEY] = base_model
    with atomic_file(path) as temporary, temporary.open("wb") as file:
        pickle.dump(data, file, protocol=_PROTOCOL)
