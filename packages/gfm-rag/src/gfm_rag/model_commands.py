"""The commands that use a model: ask, explain, evaluate, convert."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, NamedTuple, cast

import typer

from gfm_rag.answers import Style, answer_text, evaluate_answers
from gfm_rag.baselines import BM25Retriever, DenseRetriever, PageRankRetriever
from gfm_rag.chat import ChatEndpoint
from gfm_rag.cli_options import (
    BaseUrl,
    ChatName,
    Device,
    EncoderName,
    Index,
    LinkerName,
    Model,
    Overwrite,
    check_linker,
    make_linker,
)  # fmt: skip
from gfm_rag.encoders import open_encoder
from gfm_rag.encoders.named import chosen_source
from gfm_rag.entity_matcher import EntityMatcher
from gfm_rag.evaluation import answer_rows, coverage, retrieval_recall
from gfm_rag.gnn_retriever import GNNRetriever
from gfm_rag.ircot import ANSWER_PROMPT, ircot
from gfm_rag.kg_index import KGIndex
from gfm_rag.multihop import read_questions, read_records
from gfm_rag.official_trees import question_of_v2
from gfm_rag.output_folder import check_output_folder
from gfm_rag.path_figure import check_figure, draw_paths, path_text
from gfm_rag.query_gnn import QueryGNN, retriever_from
from gfm_rag.ranking import Ranker, check_ranker
from gfm_rag.retrieved import Retriever, check_question
from gfm_rag.retriever import GFMRetriever
from nips_common.artifacts import read_json
from nips_common.runtime import resolve_device

RetrieverName = Annotated[str, typer.Option("--retriever", help="gfm, bm25, dense or ppr.")]
RankerName = Annotated[str, typer.Option("--ranker", help="idf_topk, topk, idf or simple.")]
TopEntities = Annotated[int, typer.Option(min=1, help="Entities of the two top-k rankers.")]
Plot = Annotated[Path | None, typer.Option(help="Draw the paths into this .png, .pdf or .svg file.")]
Paths = Annotated[int, typer.Option("--count", min=1, help="Paths at most.")]


class _Choice(NamedTuple):
    """What the options say about the retriever."""

    model: str | None
    encoder: str | None
    linker: str
    ranker: str = "idf_topk"
    top: int = 20
    device: str = "cpu"


def _gfm(index: KGIndex, choice: _Choice) -> GFMRetriever:
    if choice.model is None:
        raise ValueError("--model is needed: a folder of `gfm-rag finetune` or of the official weights")
    network = GNNRetriever.from_pretrained(choice.model, device=choice.device)
    source = chosen_source(choice.encoder, choice.model, network.encoder)
    encoder = open_encoder(source, str(resolve_device(choice.device)))
    linker, ner = make_linker(choice.linker, encoder), EntityMatcher(index.entities)
    return GFMRetriever(index, network, encoder, linker, ner, cast("Ranker", choice.ranker), choice.top)


def _retriever(name: str, folder: Path, choice: _Choice) -> tuple[Retriever, KGIndex]:
    made: dict[str, Callable[[KGIndex], Retriever]] = {
        "gfm": lambda index: _gfm(index, choice),
        "bm25": BM25Retriever,
        "dense": lambda index: DenseRetriever(index, open_encoder(chosen_source(choice.encoder, None, None))),
        "ppr": lambda index: PageRankRetriever(
            index, make_linker(choice.linker, chosen_source(choice.encoder, None, None)), EntityMatcher(index.entities)
        ),
    }
    if name not in made:
        raise ValueError(f"--retriever must be gfm, bm25, dense or ppr, got {name!r}")
    check_linker(choice.linker)
    check_ranker(choice.ranker, choice.top)
    index = KGIndex.load(folder)
    return made[name](index), index


def _chat(base_url: str | None, llm: str | None) -> ChatEndpoint | None:
    if (base_url is None) != (llm is None):
        raise ValueError("--llm and --base-url go together (the key comes from OPENAI_API_KEY)")
    return None if base_url is None or llm is None else ChatEndpoint(base_url, llm)


def ask(
    index: Index,
    question: Annotated[str, typer.Argument(help="In words.")],
    model: Model = None,
    encoder: EncoderName = None,
    retriever: RetrieverName = "gfm",
    linker: LinkerName = "ngram",
    ranker: RankerName = "idf_topk",
    top_k_entities: TopEntities = 20,
    top_k: Annotated[int, typer.Option(min=1, help="Documents.")] = 5,
    explain: Annotated[bool, typer.Option("--explain", help="Print the paths to the best entity found.")] = False,
    plot: Annotated[Path | None, typer.Option(help="Explain, and draw the paths into this .png, .pdf or .svg.")] = None,
    base_url: BaseUrl = None,
    llm: ChatName = None,
    steps: Annotated[
        int | None, typer.Option(min=1, help="With --llm: thoughts, each of which is retrieved for; 2 if not given.")
    ] = None,
    device: Device = "cpu",
) -> None:
    """Print the best documents for a question as JSON; with --explain the paths that led there, with --llm an answer.

    `best_entity` is the best one that is not the question's own, `explained_entity` the best of those that a path
    leads to. `linked` is "names" if the question names entities of the index, else "whole question": then the start
    is only the entity nearest to its words.
    """
    check_question(question, top_k)
    explain = explain or plot is not None
    if steps is not None and llm is None:
        raise ValueError("--steps needs --llm, the model whose thoughts are retrieved for")
    if explain and retriever != "gfm":
        raise ValueError(f"--explain and --plot need --retriever gfm, got {retriever!r}")
    if plot is not None:
        check_figure(plot)
    chat = _chat(base_url, llm)
    found, _ = _retriever(retriever, index, _Choice(model, encoder, linker, ranker, top_k_entities, device))
    result: dict[str, Any] = {"question": question, **_documents(found, question, top_k, chat, steps or 2)}
    paths: list[_Words] = []
    if isinstance(found, GFMRetriever):
        entities, paths = _entities(found, question, explain)
        result |= entities
    typer.echo(json.dumps(result, indent=2, ensure_ascii=False))
    if plot is not None:
        draw_paths(plot, paths, f"{question}  →  {result['explained_entity']}")


def _documents(found: Retriever, question: str, top_k: int, chat: ChatEndpoint | None, steps: int) -> dict[str, Any]:
    """Documents, and the answer of a language model with the thoughts in between."""
    if chat is None:
        return {"documents": [document._asdict() for document in found.retrieve(question, top_k)]}
    thought = ircot(found, question, chat, steps, top_k)
    response = chat(ANSWER_PROMPT.messages(question, thought.documents))
    documents = [document._asdict() for document in thought.documents]
    return {"answer": answer_text(response), "thoughts": thought.thoughts, "documents": documents}


_Words = tuple[float, list[tuple[str, str, str, bool]]]  # importance and hops of a path
_TRIED = 10  # entities, best first, until a path leads to one


def _entities(found: GFMRetriever, question: str, explain: bool) -> tuple[dict[str, Any], list[_Words]]:
    """Where the question starts, the best entity that is found from there, and the paths to it."""
    starts = found.question_entities(question)
    order = found.entity_scores(question).argsort(descending=True, stable=True).tolist()
    others = [name for name in (found.index.entities[i] for i in order) if name not in starts]
    linked = "names" if found.names_entities(question) else "whole question"
    told: dict[str, Any] = {
        "question_entities": starts, "linked": linked, "best_entity": others[0] if others else None
    }  # fmt: skip
    if not explain:
        return told, []
    paths, target = [], None
    for target in others[:_TRIED]:
        paths = _paths(found, question, target, 5)
        if paths:
            break
    return told | {"explained_entity": target if paths else None, "paths": _in_words(paths)}, paths


def _paths(found: GFMRetriever, question: str, target: str, count: int) -> list[_Words]:
    return [(path.weight, found.path_triples(path)) for path in found.explain(question, target, count)]


def _in_words(paths: list[_Words]) -> list[dict[str, Any]]:
    return [{"weight": weight, "path": path_text(hops)} for weight, hops in paths]


def explain_entity(
    index: Index,
    question: Annotated[str, typer.Argument(help="In words.")],
    target: Annotated[str, typer.Argument(help="The entity to which the paths lead.")],
    model: Model = None,
    encoder: EncoderName = None,
    linker: LinkerName = "ngram",
    count: Paths = 5,
    plot: Plot = None,
    device: Device = "cpu",
) -> None:
    """Print the paths from the question's entities that the score of an entity owes most to."""
    check_question(question, count)
    check_linker(linker)
    if plot is not None:
        check_figure(plot)
    found = _gfm(KGIndex.load(index), _Choice(model, encoder, linker, device=device))
    paths = _paths(found, question, target, count)
    if not paths:
        starts, hops = ", ".join(map(repr, found.question_entities(question))), len(found.model.config.hidden_dims)
        raise ValueError(f"no path of at most {hops} hops leads from {starts} to {target!r}")
    for row in _in_words(paths):
        typer.echo(f"{row['weight']:.4g}  {row['path']}")
    if plot is not None:
        draw_paths(plot, paths, f"{question}  →  {target}")


def evaluate(
    index: Index,
    questions: Annotated[
        Path,
        typer.Argument(exists=True, dir_okay=False, help="JSON list or JSONL with question and supporting_facts."),
    ],
    model: Model = None,
    encoder: EncoderName = None,
    retriever: RetrieverName = "gfm",
    linker: LinkerName = "ngram",
    ranker: RankerName = "idf_topk",
    top_k_entities: TopEntities = 20,
    predictions: Annotated[
        Path | None,
        typer.Option(
            exists=True, dir_okay=False, help="JSON list or JSONL of id or question, and response: print EM and F1 too."
        ),
    ] = None,
    style: Annotated[str, typer.Option(help="Of EM and F1: hotpotqa, 2wiki or musique.")] = "hotpotqa",
    device: Device = "cpu",
) -> None:
    """Print recall@1, 2, 5 and 10 of the supporting documents as JSON, and how many of them the index does not have."""
    items = [question_of_v2(item) for item in read_questions(questions)]
    answers: dict[str, float] = {}
    if predictions is not None:
        answers = evaluate_answers(answer_rows(items, read_records(predictions)), cast("Style", style))
    found, loaded = _retriever(retriever, index, _Choice(model, encoder, linker, ranker, top_k_entities, device))
    told = coverage(items, set(loaded.documents))
    typer.echo(json.dumps({**told, **retrieval_recall(found, items), **answers}, indent=2))


def convert(
    checkpoint: Annotated[Path, typer.Argument(exists=True, file_okay=False, help="Model folder, official or ours.")],
    out: Annotated[Path, typer.Argument(help="Folder to write.")],
    official: Annotated[bool, typer.Option("--official", help="Write config.json and model.pth.")] = False,
    overwrite: Overwrite = False,
) -> None:
    """Turn an official model folder into ours, a pre-trained model into a retriever, or ours into the official."""
    check_output_folder(out, ("config.json",), overwrite)
    config = read_json(checkpoint / "config.json") if (checkpoint / "config.json").is_file() else {}
    if config.get("kind") == QueryGNN.kind:
        model = retriever_from(QueryGNN.from_pretrained(checkpoint))
    else:
        model = GNNRetriever.from_pretrained(checkpoint)
    model.save_pretrained(out, official=official)
    (out / ("model.safetensors" if official else "model.pth")).unlink(missing_ok=True)  # of a model that was replaced
    typer.echo(f"{out}: {sum(parameter.numel() for parameter in model.parameters()):,} parameters, {model.config}")
