"""Options that several commands share, and what they name."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gfm_rag.encoders import Encoder, open_encoder
from gfm_rag.encoders.named import DEFAULT, FORMS
from gfm_rag.linkers import EmbeddingLinker, Linker, NgramLinker

Index = Annotated[Path, typer.Argument(help="Index folder.")]
NewIndex = Annotated[Path, typer.Argument(help="Index folder to write.")]
Model = Annotated[
    str | None, typer.Option(help="Model: our folder, the official one (config.json and model.pth), or a hub id.")
]
EncoderName = Annotated[
    str | None, typer.Option("--encoder", help=f"{FORMS}; default: the model's, or {DEFAULT} without one.")
]
LinkerName = Annotated[str, typer.Option("--linker", help="Of names to entities: ngram, or embedding (the encoder).")]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:N or mps.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace what is there.")]
BaseUrl = Annotated[str | None, typer.Option(help="Of the endpoint, such as http://localhost:8000/v1.")]
ChatName = Annotated[str | None, typer.Option(help="The endpoint's name of the model.")]


def check_linker(name: str) -> None:
    """ValueError for an unknown name, before any work."""
    if name not in ("ngram", "embedding"):
        raise ValueError(f"--linker must be ngram or embedding, got {name!r}")


def make_linker(name: str, encoder: Encoder | str) -> Linker:
    """The linker of a name; the encoder is opened if it is needed."""
    check_linker(name)
    if name == "ngram":
        return NgramLinker()
    return EmbeddingLinker(open_encoder(encoder) if isinstance(encoder, str) else encoder)
