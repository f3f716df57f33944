"""Mask files: bit-packed `.safetensors` (ours), `.pickle` (the published form), folders and hub repositories."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors import SafetensorError, safe_open
from torch import Tensor
from transformers import AutoConfig

from bigram_subnet.mask import SubnetworkMask
from bigram_subnet.masking import fitting_weights
from bigram_subnet.official_pickle import read_pickle, write_pickle
from bigram_subnet.packing import count_packed, pack, unpack
from bigram_subnet.tensor_files import write_tensors

if TYPE_CHECKING:
    from transformers import PreTrainedModel

FORMAT = "bigram-subnet/mask"
VERSION = 1
MASK_FILE = "mask.safetensors"
# What a published repository holds, the sparsest first.
PUBLISHED = tuple(f"subnetwork_dict_lambda{value}.pickle" for value in ("1e2", "1e1", "1"))
ENDINGS = (".safetensors", ".pickle", ".pkl")


def save(mask: SubnetworkMask, path: str | Path, **metadata: Any) -> None:
    """Writes a mask, atomically.

    Args:
        mask: the mask.
        path: ends in `.safetensors` (eight entries a byte, with counts, shapes and the model's config) or `.pickle`
            (the published form, which the official code reads).
        metadata: what else to put into the safetensors file, such as ``l0_lambda=10.0``; must be JSON.

    Raises:
        ValueError: another ending, or metadata that is no JSON or takes a name of the format.
    """
    check_ending(path)
    if Path(path).suffix != ".safetensors":
        write_pickle(path, dict(mask), mask.base_model)
        return
    config = None
    if mask.config is not None:
        config = {**mask.config.to_diff_dict(), "model_type": mask.config.model_type}
    header = {
        "format": FORMAT,
        "format_version": VERSION,
        "base_model": mask.base_model,
        "kept": mask.kept,
        "total": mask.total,
        "shapes": {name: list(value.shape) for name, value in mask.items()},
        "config": config,
    }
    if taken := header.keys() & metadata.keys():
        raise ValueError(f"{path}: metadata must not use the names {sorted(taken)}")
    try:
        text = json.dumps(header | metadata, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path}: metadata cannot be written as JSON: {error}") from error
    write_tensors(path, {name: pack(value) for name, value in mask.items()}, {"mask": text})


def load(path: str | Path, model: PreTrainedModel | None = None) -> SubnetworkMask:
    """Reads a mask.

    Args:
        path: a `.safetensors` or `.pickle` file, a folder that holds one, or the hub id of published masks
            (``tylerachang/bigram-subnetworks-gpt2-small``), whose sparsest is taken.
        model: the model it is for: checks names and shapes, gives their order and the config.

    Raises:
        FileNotFoundError: there is no such file.
        pickle.UnpicklingError: a pickle that asks for more than numpy arrays; nothing of it is run.
        ValueError: a damaged file, another kind of file, or a mask that does not fit the model (all unknown, missing
            and mis-shaped names in one message).
    """
    file = find(path)
    if file.suffix == ".safetensors":
        masks, base_model, config = _read_packed(file)
    else:
        masks, base_model = read_pickle(file)
        config = None
    try:
        mask = SubnetworkMask(masks, base_model, config)
        if model is None:
            return mask
        names = fitting_weights(model, mask)
    except ValueError as error:
        raise ValueError(f"{file}: {error}") from None
    return SubnetworkMask({name: mask[name] for name in names}, base_model or model.name_or_path or None, model.config)


def metadata(path: str | Path) -> dict[str, Any]:
    """The metadata of a `.safetensors` mask, among them what :func:`save` was given.

    Raises:
        ValueError: a damaged file, or another kind of file.
    """
    with _Opened(Path(path)) as (_, header):
        return header


def check_ending(path: str | Path) -> None:
    """ValueError unless a mask file can have this name."""
    if Path(path).suffix not in ENDINGS:
        raise ValueError(f"{path}: a mask file must end in one of {', '.join(ENDINGS)}")


def find(path: str | Path) -> Path:
    """The file that ``path``, a file, a folder or a hub id, stands for."""
    given = Path(path)
    if given.is_file():
        check_ending(given)
        return given
    if given.is_dir():
        for name in (MASK_FILE, *PUBLISHED):
            if (given / name).is_file():
                return given / name
        raise FileNotFoundError(f"{path}: the folder holds neither {MASK_FILE} nor {' nor '.join(PUBLISHED)}")
    if given.suffix in ENDINGS or given.is_absolute() or len(given.parts) != 2 or given.parts[0] in (".", ".."):
        raise FileNotFoundError(f"{path}: no such mask file")
    return _from_hub(str(path))


def _from_hub(repository: str) -> Path:
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import (
        EntryNotFoundError,
        HFValidationError,
        LocalEntryNotFoundError,
        RepositoryNotFoundError,
    )

    for name in PUBLISHED:
        try:
            return Path(hf_hub_download(repository, name))
        except LocalEntryNotFoundError:
            continue  # offline: perhaps another file of it is in the cache
        except (RepositoryNotFoundError, HFValidationError):
            break
        except EntryNotFoundError:
            continue
    raise FileNotFoundError(
        f"{repository}: no such mask file or folder, and no masks of that id on the hub or in its cache "
        f"({', '.join(PUBLISHED)})"
    )


class _Opened:
    """Opens a packed file and checks whose it is."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> tuple[Any, dict[str, Any]]:
        try:
            self._file = safe_open(self._path, "pt")
            file = self._file.__enter__()
            header = json.loads((file.metadata() or {}).get("mask", "null"))
        except (SafetensorError, ValueError) as error:
            raise ValueError(f"{self._path}: truncated or damaged ({error})") from None
        if not isinstance(header, dict) or header.get("format") != FORMAT:
            raise ValueError(f"{self._path}: not a mask of bigram-subnet (no metadata with format {FORMAT!r})")
        if header.get("format_version") != VERSION:
            raise ValueError(
                f"{self._path}: format_version is {header.get('format_version')!r}, this release reads {VERSION}"
            )
        return file, header

    def __exit__(self, *error: Any) -> None:
        self._file.__exit__(*error)


def _read_packed(path: Path) -> tuple[dict[str, Tensor], str | None, Any]:
    with _Opened(path) as (file, header):
        shapes = header.get("shapes")
        if not isinstance(shapes, dict) or shapes.keys() != set(file.keys()):
            raise ValueError(f"{path}: damaged: the shapes in its metadata are not those of its tensors")
        try:
            masks, kept = _unpacked(file, shapes)
        except ValueError as error:
            raise ValueError(f"{path}: damaged: {error}") from None
        total = sum(mask.numel() for mask in masks.values())
        if (kept, total) != (header.get("kept"), header.get("total")):
            said = f"its metadata says {header.get('kept')} of {header.get('total')}"
            raise ValueError(f"{path}: damaged: {kept} of {total} kept, {said}")
        return masks, header.get("base_model"), _config(header.get("config"))


def _unpacked(file: Any, shapes: dict[str, list[int]]) -> tuple[dict[str, Tensor], int]:
    """The masks, and how many entries they keep, counted in the packed bytes, which are an eighth."""
    masks, kept = {}, 0
    for name, shape in shapes.items():
        packed = file.get_tensor(name)
        try:
            if not isinstance(shape, list) or not all(type(size) is int and 0 <= size < 2**31 for size in shape):
                raise ValueError(f"{shape!r} is no shape")
            masks[name] = unpack(packed, tuple(shape))
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from None
        kept += count_packed(packed)
    return masks, kept


def _config(data: Any) -> Any:
    """The model's config; None for a family that the installed transformers does not know."""
    if not isinstance(data, dict) or "model_type" not in data:
        return None
    values = dict(data)
    try:
        return AutoConfig.for_model(values.pop("model_type"), **values)
    except (ValueError, TypeError):
        return None
