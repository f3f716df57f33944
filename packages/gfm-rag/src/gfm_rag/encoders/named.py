"""Encoders by name: those that a command line gives, and those that a model folder keeps."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from gfm_rag.encoders.contract import Encoder
from gfm_rag.encoders.hashing import HashingEncoder
from gfm_rag.encoders.sentence import MINILM_HUB_ID, SentenceEncoder

DEFAULT = "hashing-768"
FORMS = f"Text encoder: folder, hub id, hashing-DIM, or minilm ({MINILM_HUB_ID})"


class EncoderRecord(NamedTuple):
    """The encoder that a model was trained with.

    Args:
        name: says which vectors it gives; encoders of one name are the same.
        source: opens it, see `open_encoder`.
    """

    name: str
    source: str

    @classmethod
    def of(cls, encoder: Encoder) -> EncoderRecord | None:
        """Of an encoder; None if it has no `name`."""
        name = getattr(encoder, "name", None)
        return None if name is None else cls(str(name), str(getattr(encoder, "source", name)))

    @classmethod
    def read(cls, entry: object, where: str) -> EncoderRecord | None:
        """From the entry of a configuration; ValueError unless it is nothing, or both names."""
        if entry is None:
            return None
        if not isinstance(entry, Mapping) or set(entry) != set(cls._fields) or not all(
            isinstance(value, str) for value in entry.values()
        ):  # fmt: skip
            raise ValueError(f"{where}: encoder must hold the texts name and source, got {entry!r:.80}")
        return cls(**entry)


def open_encoder(source: str, device: str = "cpu") -> Encoder:
    """The encoder that a command line names: hashing-DIM, minilm, a folder or a hub id.

    Raises:
        ValueError: a name of none of these forms.
        FileNotFoundError: a hub id that neither the hub nor its cache gave.
    """
    if source.startswith("hashing-") and source.removeprefix("hashing-").isdigit():
        return HashingEncoder(int(source.removeprefix("hashing-")))
    if source == "minilm":
        return SentenceEncoder.minilm(device=device)
    return SentenceEncoder(source, device=device)


def chosen_source(given: str | None, model: str | None, record: EncoderRecord | None) -> str:
    """The encoder to open: the one given, else that of the model, else the hashing one where there is no model.

    Raises:
        ValueError: none is given, and the model does not say its own.
        FileNotFoundError: the model says a folder that does not exist here.
    """
    if given is not None:
        return given
    if model is None:
        return DEFAULT
    if record is None:
        raise ValueError(f"--encoder is needed: the model {model} does not say with which encoder it was trained")
    if Path(record.source).is_absolute() and not Path(record.source).is_dir():
        raise FileNotFoundError(
            f"the model {model} was trained with the encoder in {record.source}, which does not exist here: "
            "name it with --encoder"
        )
    return record.source
