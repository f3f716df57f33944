"""The command `gfm-rag`: index, import-triples, remove, report, pretrain, finetune, evaluate, ask, explain, convert."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Any, NoReturn, cast

import typer

from gfm_rag import train
from gfm_rag.baselines import BM25Retriever, DenseRetriever, PageRankRetriever
from gfm_rag.entity_matcher import EntityMatcher
from gfm_rag.evaluation import retrieval_recall
from gfm_rag.extraction import Extractor
from gfm_rag.extractors import OpenAICompatibleExtractor, RuleExtractor, SpacyExtractor
from gfm_rag.extractors.ray import RayExtractor
from gfm_rag.gnn_retriever import GNNRetriever
from gfm_rag.kg_files import read_kg
from gfm_rag.kg_index import KGIndex
from gfm_rag.linkers import EmbeddingLinker, Linker, NgramLinker
from gfm_rag.multihop import read_documents, read_records
from gfm_rag.official_trees import read_official_tree
from gfm_rag.path_figure import draw_paths, path_text
from gfm_rag.query_gnn import QueryGNN, retriever_from
from gfm_rag.ranking import Ranker
from gfm_rag.retrieved import Retriever
from gfm_rag.retriever import GFMRetriever
from nips_common import cli
from nips_common.artifacts import read_json
from nips_common.runtime import resolve_device

app = cli.make_app(
    "gfm-rag", "gfm-rag", "A knowledge-graph index over documents and one graph network that retrieves from it."
)

Index = Annotated[Path, typer.Argument(help="Index folder.")]
Model = Annotated[Path | None, typer.Option(help="Model folder: ours, or the official config.json and model.pth.")]
EncoderName = Annotated[str, typer.Option("--encoder", help="Folder or hub id, minilm (the asset), or hashing-DIM.")]
LinkerName = Annotated[str, typer.Option("--linker", help="Of names to entities: ngram, or embedding (the encoder).")]
RetrieverName = Annotated[str, typer.Option("--retriever", help="gfm, bm25, dense or ppr.")]
RankerName = Annotated[str, typer.Option("--ranker", help="idf_topk, topk, idf or simple.")]
TopEntities = Annotated[int, typer.Option(min=1, help="Entities of the two top-k rankers.")]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:N or mps.")]


def _linker(name: str, encoder: str) -> Linker:
    if name not in ("ngram", "embedding"):
        raise ValueError(f"--linker must be ngram or embedding, got {name!r}")
    return NgramLinker() if name == "ngram" else EmbeddingLinker(train.open_encoder(encoder))


def _extractor(
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


@app.command("index")
def index_documents(
    documents: Annotated[Path, typer.Argument(help="JSON {title: text}, or JSONL with title and text.")],
    out: Annotated[Path, typer.Argument(help="Index folder; documents are added to one that exists.")],
    extractor: Annotated[str, typer.Option(help="rule, spacy or openai (any OpenAI-compatible endpoint).")] = "rule",
    pipeline: Annotated[str, typer.Option(help="spaCy pipeline, by name or folder.")] = "en_core_web_sm",
    base_url: Annotated[str | None, typer.Option(help="Of the endpoint, such as http://localhost:8000/v1.")] = None,
    llm: Annotated[str | None, typer.Option(help="The endpoint's name of the model.")] = None,
    concurrency: Annotated[int, typer.Option(min=1, help="Passages at a time at the endpoint, of each actor.")] = 4,
    timeout: Annotated[float, typer.Option(min=0.001, help="Seconds that a reply of the endpoint may take.")] = 120,
    max_tokens: Annotated[int, typer.Option(min=1, help="Longest reply of the endpoint.")] = 4096,
    ray: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="Extract on Ray: local, auto or HOST:PORT of a cluster.")
    ] = None,
    ray_actors: Annotated[int, typer.Option(min=1, help="Extractors at work on Ray.")] = 2,
    equivalents: Annotated[bool, typer.Option(help="Join entities of nearly the same name.")] = True,
    linker: LinkerName = "ngram",
    encoder: EncoderName = "hashing-768",
    similarity_threshold: Annotated[
        float | None, typer.Option(help="Smallest norm_score of an equivalent entity, 0.8 for a new index.")
    ] = None,
    normalizer: Annotated[
        str | None, typer.Option(help="unicode (of a new index), or ascii as the released weights saw it.")
    ] = None,
    compat: Annotated[str | None, typer.Option(help="v1 builds the graph as the official release 1.0.0.")] = None,
    report: Annotated[bool, typer.Option("--report", help="Print what extraction gave for each document.")] = False,
) -> None:
    """Extract triples from documents into an index; an interrupted run resumes where it stopped."""
    asked = {"similarity_threshold": similarity_threshold, "normalizer": normalizer, "compat": compat}
    settings: dict[str, Any] = {name: value for name, value in asked.items() if value is not None}
    make = _extractor(
        extractor, pipeline, base_url, llm, concurrency=concurrency, timeout=timeout, max_tokens=max_tokens
    )
    made = make()  # with Ray, too: what cannot be made here is told before anything is started
    if ray is not None:
        made = _on_ray(make, ray, ray_actors)
    found, cache = read_documents(documents), _cache(out, extractor, {"spacy": pipeline, "openai": llm}.get(extractor))
    chosen = _linker(linker, encoder) if equivalents else None
    if (out / "index.json").is_file():
        index = KGIndex.load(out)
        _check_settings(index, settings, out)
        # in memory only until all is extracted: what failed is tried again
        index.remove_documents(title for title in index.report()["failed_documents"] if title in found)
        index.add_documents(found, made, chosen, cache=cache)
    else:
        index = KGIndex.from_documents(found, made, chosen, cache=cache, **settings)
    index.save(out)
    cache.unlink(missing_ok=True)  # the index holds it all
    _tell(index, report)


def _cache(out: Path, extractor: str, model: str | None) -> Path:
    """Where an interrupted run's extractions wait; another extractor has another file."""
    name = extractor if model is None else f"{extractor}-{model}"
    return out.with_name(f"{out.name}.{re.sub(r'[^A-Za-z0-9_.-]+', '_', name)}.extractions.jsonl")


def _check_settings(index: KGIndex, asked: dict[str, Any], folder: Path) -> None:
    """ValueError for settings that an index which exists does not have: they hold for all of its documents."""
    for name, value in asked.items():
        own = getattr(index.settings, name)
        if value != own:
            option = f"--{name.replace('_', '-')}"
            raise ValueError(f"{folder} was made with {name}={own!r}: {option} {value} is for a new index only")


def _tell(index: KGIndex, whole: bool) -> None:
    report = index.report()
    if not whole:
        report.pop("per_document")
    typer.echo(json.dumps(report, indent=2, ensure_ascii=False))


@app.command("import-triples")
def import_triples(
    triples: Annotated[
        Path, typer.Argument(help="kg.txt of the official code, .csv or .tsv with quoting, or an official data folder.")
    ],
    out: Annotated[Path, typer.Argument(help="Index folder to write.")],
    document_entities: Annotated[
        Path | None, typer.Option(help="JSON {title: [entities]}, as document2entities.json.")
    ] = None,
    documents: Annotated[Path | None, typer.Option(help="JSON or JSONL with the texts of the documents.")] = None,
    lenient: Annotated[bool, typer.Option("--lenient", help="Skip malformed lines and count them.")] = False,
) -> None:
    """Make an index of a graph that exists already."""
    if triples.is_dir():
        index = read_official_tree(triples, strict=not lenient)
    elif document_entities is None:
        raise ValueError("--document-entities is needed with a file of triples")
    else:
        texts = None if documents is None else read_documents(documents)
        index = KGIndex.from_triples(read_kg(triples, strict=not lenient), read_json(document_entities), texts)
    index.save(out)
    _tell(index, whole=False)


@app.command("remove")
def remove_documents(index: Index, titles: Annotated[list[str], typer.Argument(help="Titles of documents.")]) -> None:
    """Take documents out of an index, with what only they have in the graph."""
    found = KGIndex.load(index)
    found.remove_documents(titles)
    found.save(index)
    _tell(found, whole=False)


@app.command("report")
def report_index(index: Index) -> None:
    """Print what an index holds, and what extraction gave for each document."""
    _tell(KGIndex.load(index), whole=True)


def _gfm(
    index: KGIndex, model: Path | None, encoder: str, linker: str, ranker: str, top: int, device: str
) -> GFMRetriever:
    if model is None:
        raise ValueError("--model is needed: a folder of `gfm-rag finetune` or of the official weights")
    network = GNNRetriever.from_pretrained(model, device=device)
    return GFMRetriever(
        index, network, train.open_encoder(encoder, str(resolve_device(device))), _linker(linker, encoder),
        EntityMatcher(index.entities), cast("Ranker", ranker), top,
    )  # fmt: skip


def _retriever(name: str, index: KGIndex, encoder: str, linker: str, **of_gfm: Any) -> Retriever:
    if name == "gfm":
        return _gfm(index, encoder=encoder, linker=linker, **of_gfm)
    if name == "bm25":
        return BM25Retriever(index)
    if name == "dense":
        return DenseRetriever(index, train.open_encoder(encoder))
    if name == "ppr":
        return PageRankRetriever(index, _linker(linker, encoder), EntityMatcher(index.entities))
    raise ValueError(f"--retriever must be gfm, bm25, dense or ppr, got {name!r}")


@app.command("ask")
def ask(
    index: Index,
    question: Annotated[str, typer.Argument(help="In words.")],
    model: Model = None,
    encoder: EncoderName = "hashing-768",
    retriever: RetrieverName = "gfm",
    linker: LinkerName = "ngram",
    ranker: RankerName = "idf_topk",
    top_k_entities: TopEntities = 20,
    top_k: Annotated[int, typer.Option(min=1, help="Documents.")] = 5,
    explain: Annotated[bool, typer.Option("--explain", help="Print the paths to the best entity.")] = False,
    plot: Annotated[Path | None, typer.Option(help="With --explain: draw the paths into this file.")] = None,
    device: Device = "cpu",
) -> None:
    """Print the best documents for a question as JSON, and with --explain the paths that led there."""
    if (explain or plot) and retriever != "gfm":
        raise ValueError(f"--explain needs --retriever gfm, got {retriever!r}")
    found = _retriever(
        retriever, KGIndex.load(index), encoder, linker, model=model, ranker=ranker, top=top_k_entities, device=device
    )
    documents = [document._asdict() for document in found.retrieve(question, top_k)]
    result: dict[str, Any] = {"question": question, "documents": documents}
    if isinstance(found, GFMRetriever):
        scores = found.entity_scores(question)
        best = found.index.entities[int(scores.argmax())]
        result |= {"question_entities": found.question_entities(question), "best_entity": best}
        if explain or plot:
            result["paths"] = _paths(found, question, best, 5, plot)
    typer.echo(json.dumps(result, indent=2, ensure_ascii=False))


def _paths(found: GFMRetriever, question: str, target: str, count: int, plot: Path | None) -> list[dict[str, Any]]:
    paths = [(path.weight, found.path_triples(path)) for path in found.explain(question, target, count)]
    if plot is not None:
        draw_paths(plot, paths, f"{question}  →  {target}")
    return [{"weight": weight, "path": path_text(hops)} for weight, hops in paths]


@app.command("explain")
def explain_entity(
    index: Index,
    question: Annotated[str, typer.Argument(help="In words.")],
    target: Annotated[str, typer.Argument(help="The entity to which the paths lead.")],
    model: Model = None,
    encoder: EncoderName = "hashing-768",
    linker: LinkerName = "ngram",
    count: Annotated[int, typer.Option(min=1, help="Paths.")] = 5,
    plot: Annotated[Path | None, typer.Option(help="Draw the paths into this file.")] = None,
    device: Device = "cpu",
) -> None:
    """Print the paths from the question's entities that the score of an entity owes most to."""
    found = _gfm(KGIndex.load(index), model, encoder, linker, "idf_topk", 20, device)
    for row in _paths(found, question, target, count, plot):
        typer.echo(f"{row['weight']:.4g}  {row['path']}")


@app.command("evaluate")
def evaluate(
    index: Index,
    questions: Annotated[Path, typer.Argument(help="JSON list or JSONL with question and supporting_facts.")],
    model: Model = None,
    encoder: EncoderName = "hashing-768",
    retriever: RetrieverName = "gfm",
    linker: LinkerName = "ngram",
    ranker: RankerName = "idf_topk",
    top_k_entities: TopEntities = 20,
    device: Device = "cpu",
) -> None:
    """Print recall@1, 2, 5 and 10 of the supporting documents as JSON."""
    items = list(read_records(questions))
    found = _retriever(
        retriever, KGIndex.load(index), encoder, linker, model=model, ranker=ranker, top=top_k_entities, device=device
    )
    typer.echo(json.dumps({"questions": len(items), **retrieval_recall(found, items)}, indent=2))


@app.command("convert")
def convert(
    checkpoint: Annotated[Path, typer.Argument(help="Model folder, official or ours.")],
    out: Annotated[Path, typer.Argument(help="Folder to write.")],
    official: Annotated[bool, typer.Option("--official", help="Write config.json and model.pth.")] = False,
) -> None:
    """Turn an official model folder into ours, a pre-trained model into a retriever, or ours into the official."""
    config = read_json(checkpoint / "config.json") if (checkpoint / "config.json").is_file() else {}
    if config.get("kind") == QueryGNN.kind:
        model = retriever_from(QueryGNN.from_pretrained(checkpoint))
    else:
        model = GNNRetriever.from_pretrained(checkpoint)
    model.save_pretrained(out, official=official)
    typer.echo(f"{out}: {sum(parameter.numel() for parameter in model.parameters()):,} parameters, {model.config}")


_FREE = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}


@app.command("pretrain", context_settings=_FREE)
def pretrain(context: typer.Context) -> None:
    """Stage 1: --index ... --output_dir ... (--help lists all options)."""
    train.run("pretrain", context.args)


@app.command("finetune", context_settings=_FREE)
def finetune(context: typer.Context) -> None:
    """Stage 2: --index ... --questions ... --output_dir ... (--help lists all options)."""
    train.run("finetune", context.args)


def main() -> NoReturn:
    """The console command."""
    cli.run(app, sys.argv[1:])
