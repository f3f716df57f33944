"""Published masks, which are pickles: a dict of numpy bool arrays by parameter name, and the base model's name."""

from __future__ import annotations

import pickle  # noqa: TID251 - the published format; it is read by `restricted_pickle` alone
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bigram_subnet.restricted_pickle import read_arrays
from nips_common.artifacts import atomic_file

BASE_KEY = "orig_model_name"
_PROTOCOL = 5


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
    data = read_arrays(path)
    if not isinstance(data, dict):
        raise ValueError(f"{path}: expected a dict of masks by parameter name, got {type(data).__name__}")
    base = data.pop(BASE_KEY, None)
    held, declared = (
        Path(path).stat().st_size,
        sum(each.nbytes for each in data.values() if isinstance(each, np.ndarray)),
    )
    if declared > held:
        raise ValueError(f"{path}: its arrays share their data: they take {declared} bytes, the file {held}")
    problems, masks = [], {}
    for name, array in data.items():
        problem = _problem(array) if isinstance(name, str) else "a key that is no text"
        if not problem and _stripped(name) in masks:
            problem = f"a second mask of {_stripped(name)}"
        if problem:
            problems.append(f"{name!r}: {problem}")
        else:
            # A copy: arrays may be read-only, or hold the same data twice, and masks are edited in place.
            masks[_stripped(name)] = torch.from_numpy(np.array(array, dtype=bool, order="C"))
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
