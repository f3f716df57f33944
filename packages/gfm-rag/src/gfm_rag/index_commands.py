"""The commands that make, change and describe an index."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Any, cast

import typer

from gfm_rag.cli_options import BaseUrl, ChatName, EncoderName, Index, LinkerName, NewIndex, Overwrite, make_linker
from gfm_rag.encoders.named import DEFAULT
from gfm_rag.extraction import Extractor
from gfm_rag.extractors import OpenAICompatibleExtractor, RuleExtractor, SpacyExtractor
from gfm_rag.extractors.ray import RayExtractor
from gfm_rag.index_folder import IndexSettings
from gfm_rag.kg_files import read_kg
from gfm_rag.kg_index import KGIndex
from gfm_rag.multihop import read_documents
from gfm_rag.official_trees import read_official_tree
from gfm_rag.output_folder import check_folder_name, check_output_folder, is_used
from nips_common.artifacts import read_json


def extractor_maker(
    name: str, pipeline: str, base_url: str | None, model: str | None, **of_endpoint: float
) -> Callable[[], Extractor]:
    """Makes the extractor; it can be sent to workers."""
    if name == "rule":
        return RuleExtractor
    if name == "spacy":
        return partial(SpacyExtractor, pipeline)
    if name == "openai":
        if not base_url or not model:
            raise ValueError("--extractor openai needs --base-url and --llm (the key comes from OPENAI_API_KEY)")
        options: dict[str, Any] = of_endpoint
        return partial(OpenAICompatibleExtractor, base_url, model, **options)
    raise ValueError(f"--extractor must be rule, spacy or openai, got {name!r}")


def _on_ray(make: Callable[[], Extractor], address: str, actors: int) -> Extractor:
    if address == "local":
        # below `uv run`, Ray would start its workers by that launcher's command line, and wait for them
        os.environ.setdefault("RAY_ENABLE_UV_RUN_RUNTIME_ENV", "0")
    return RayExtractor(make, actors, address=address)


def _cache(out: Path, extractor: str, model: str | None) -> Path:
    """Where an interrupted run's extractions wait; another extractor has another file."""
    name = extractor if model is None else f"{extractor}-{model}"
    return out.with_name(f"{out.name}.{re.sub(r'[^A-Za-z0-9_.-]+', '_', name)}.extractions.jsonl")


def _opened(folder: Path, **given: Any) -> KGIndex | None:
    """The index of a folder that has one, None for a new folder; `given` are settings, None where not given.

    Raises:
        ValueError: a folder for something else, or settings that are not those of the index.
    """
    check_folder_name(folder)
    if not (folder / "index.json").is_file():
        if is_used(folder):
            raise ValueError(f"{folder} holds other files and no index: name a new folder")
        return None
    index = KGIndex.load(folder)
    for name, value in given.items():
        stored = getattr(index.settings, name)
        if value is not None and value != stored:
            raise ValueError(
                f"{folder} was made with {name}={stored!r}, got --{name.replace('_', '-')} {value}: leave it out, or "
                "index into a new folder"
            )
    return index


def index_documents(
    documents: Annotated[
        Path,
        typer.Argument(exists=True, help="JSON {title: text}, JSONL with title and text, or a folder of .txt, .md."),
    ],
    out: Annotated[Path, typer.Argument(help="Index folder; documents are added to one that exists.")],
    extractor: Annotated[str, typer.Option(help="rule, spacy or openai (any OpenAI-compatible endpoint).")] = "rule",
    pipeline: Annotated[str, typer.Option(help="spaCy pipeline, by name or folder.")] = "en_core_web_sm",
    base_url: BaseUrl = None,
    llm: ChatName = None,
    concurrency: Annotated[int, typer.Option(min=1, help="Passages at a time at the endpoint, of each actor.")] = 4,
    timeout: Annotated[float, typer.Option(min=0.001, help="Seconds that a reply of the endpoint may take.")] = 120,
    max_tokens: Annotated[int, typer.Option(min=1, help="Longest reply of the endpoint.")] = 4096,
    ray: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="Extract on Ray: local, auto or HOST:PORT of a cluster.")
    ] = None,
    ray_actors: Annotated[int, typer.Option(min=1, help="Extractors at work on Ray.")] = 2,
    equivalents: Annotated[
        bool,
        typer.Option(help="Find entities of nearly the same name and join them; if not, those found before stay."),
    ] = True,
    linker: LinkerName = "ngram",
    encoder: EncoderName = None,
    similarity_threshold: Annotated[
        float | None, typer.Option(help="Smallest norm_score of an equivalent entity (0.8).")
    ] = None,
    normalizer: Annotated[
        str | None, typer.Option(help="unicode (default), or ascii as the released weights saw it.")
    ] = None,
    compat: Annotated[str | None, typer.Option(help="v1 builds the graph as the official release 1.0.0.")] = None,
    report: Annotated[bool, typer.Option("--report", help="Print what extraction gave for each document.")] = False,
) -> None:
    """Extract triples from documents into an index; an interrupted run resumes where it stopped.

    Exit code 1: the index is written, but extraction failed for some documents; the next run tries them again.
    """
    settings = {"similarity_threshold": similarity_threshold, "normalizer": normalizer, "compat": compat}
    chosen = {name: value for name, value in settings.items() if value is not None}
    IndexSettings(**cast("Any", chosen))  # refuses values out of range
    index = _opened(out, **settings)
    make = extractor_maker(
        extractor, pipeline, base_url, llm, concurrency=concurrency, timeout=timeout, max_tokens=max_tokens
    )
    made = make()  # with Ray, too: what cannot be made here is told before anything is started
    if ray is not None:
        made = _on_ray(make, ray, ray_actors)
    join = make_linker(linker, encoder or DEFAULT)
    found, cache = read_documents(documents), _cache(out, extractor, {"spacy": pipeline, "openai": llm}.get(extractor))
    if index is None:
        index = KGIndex.from_documents(found, made, join if equivalents else None, cache=cache, **cast("Any", chosen))
    else:
        index.add_documents(found, made, join if equivalents else None, cache=cache)
    index.save(out)
    cache.unlink(missing_ok=True)  # the index holds it all
    tell(index, report)
    if index.report()["failed_documents"]:
        raise typer.Exit(1)


def tell(index: KGIndex, whole: bool) -> None:
    """Prints the report of an index as JSON, if `whole` with a line for each document."""
    report = index.report()
    if not whole:
        report.pop("per_document")
    typer.echo(json.dumps(report, indent=2, ensure_ascii=False))


def import_triples(
    triples: Annotated[
        Path,
        typer.Argument(
            exists=True, help="kg.txt of the official code, .csv or .tsv with quoting, or an official data folder."
        ),
    ],
    out: NewIndex,
    document_entities: Annotated[
        Path | None,
        typer.Option(exists=True, dir_okay=False, help="JSON {title: [entities]}, as document2entities.json."),
    ] = None,
    documents: Annotated[
        Path | None, typer.Option(exists=True, help="Texts of the documents, in the forms that `index` reads.")
    ] = None,
    lenient: Annotated[bool, typer.Option("--lenient", help="Skip malformed lines and count them.")] = False,
    overwrite: Overwrite = False,
) -> None:
    """Make an index of a graph that exists already."""
    check_output_folder(out, ("index.json",), overwrite)
    if triples.is_dir():
        if document_entities is not None or documents is not None:
            raise ValueError(
                f"{triples} is a folder, which brings its documents: leave --document-entities and --documents out"
            )
        index = read_official_tree(triples, strict=not lenient)
    elif document_entities is None:
        raise ValueError("--document-entities is needed with a file of triples")
    else:
        texts = None if documents is None else read_documents(documents)
        index = KGIndex.from_triples(read_kg(triples, strict=not lenient), read_json(document_entities), texts)
    index.save(out)
    tell(index, whole=False)


def remove_documents(index: Index, titles: Annotated[list[str], typer.Argument(help="Titles of documents.")]) -> None:
    """Take documents out of an index, with what only they have in the graph."""
    found = KGIndex.load(index)
    found.remove_documents(titles)
    found.save(index)
    tell(found, whole=False)


def report_index(index: Index) -> None:
    """Print what an index holds, and what extraction gave for each document.

    `listed` counts the entities that the extractor listed; the graph's are those of the kept triples.
    """
    tell(KGIndex.load(index), whole=True)
