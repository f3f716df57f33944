"""The training script of both stages: `gfm-rag pretrain`, `gfm-rag finetune`, or `torchrun ... -m gfm_rag.train STAGE`.

Options are those of the stage and of transformers' TrainingArguments, see `train_arguments`. Copy this file to change
how a stage is trained.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gfm_rag.config import GFMConfig
from gfm_rag.encoders import Encoder, open_encoder
from gfm_rag.encoders.named import chosen_source
from gfm_rag.entity_matcher import EntityMatcher
from gfm_rag.gnn_retriever import GNNRetriever
from gfm_rag.kg_index import KGIndex
from gfm_rag.linkers import NgramLinker
from gfm_rag.multihop import read_questions
from gfm_rag.official_trees import question_of_v2
from gfm_rag.prepared_graphs import PreparedGraphs, scratch_folder
from gfm_rag.query_gnn import QueryGNN, retriever_from
from gfm_rag.questions import prepare_questions
from gfm_rag.stages import finetune, pretrain
from gfm_rag.train_arguments import FinetuneArguments, PretrainArguments, StageArguments, parse
from gfm_rag.training_data import QuestionGraph, TripleGraph
from gfm_rag.training_folder import check_training_folder, interruption_told, remove_checkpoints
from nips_common.artifacts import read_json, recover
from nips_common.cli import user_errors
from nips_common.runtime import require, seed_everything

log = logging.getLogger("gfm_rag.train")


def run(stage: str, argv: Sequence[str]) -> dict[str, float]:
    """Trains, validates and writes the model into `output_dir`; returns the metrics.

    Raises:
        ValueError: what does not fit, before any training.
    """
    stage_args, args = parse(stage, argv)
    _check(stage_args)
    output = Path(args.output_dir)
    if args.process_index == 0:  # another process may look when this one is at work already
        check_training_folder(output, stage_args.resume, stage_args.overwrite)
    model, encoder = _model_and_encoder(stage, stage_args, args.seed)
    with contextlib.ExitStack() as stack:
        stack.enter_context(interruption_told(output))
        folder = None
        if len(stage_args.index) > stage_args.graphs_in_memory and not stage_args.dry_run:
            folder = stack.enter_context(scratch_folder(output, args.process_index))
        train, valid, nodes = _prepare(stage_args, args.seed, encoder, folder)
        print(json.dumps(_plan(stage, stage_args, args, model, train.sizes, nodes), indent=2))
        if stage_args.dry_run:
            return {}
        if args.process_index == 0 and stage_args.overwrite:
            remove_checkpoints(output)
        function: Any = pretrain if stage == "pretrain" else finetune
        metrics: dict[str, float] = function(
            model, train.pool(), args, valid.pool(), resume=stage_args.resume, **_options(stage_args)
        )
    # the folder is swapped for one with the model, in which no other process may be at work by then
    require("accelerate", "gfm-rag[train]").PartialState().wait_for_everyone()
    if args.process_index == 0:
        model.save_pretrained(args.output_dir)
        print(json.dumps({key: round(value, 6) for key, value in metrics.items()}))
    return metrics


def _check(options: Any) -> None:
    """ValueError or FileNotFoundError for what can be told before anything is read or written."""
    for folder in options.index:
        recover(folder)
        if not Path(folder).is_dir():
            raise FileNotFoundError(f"--index {folder}: no such index folder")
    smallest = {"graphs_in_memory": 1, "num_negatives": 0, "fast_test": 0, "temperature": 0, "document_loss": 0}
    for name, least in smallest.items():
        if not getattr(options, name, least) >= least:
            raise ValueError(f"{name} must be at least {least}, got {getattr(options, name)!r}")
    if isinstance(options, PretrainArguments):
        if not 0 < options.validation_share < 1:
            raise ValueError(f"validation_share must lie strictly between 0 and 1, got {options.validation_share!r}")
        return
    if not 0 <= options.alpha <= 1:
        raise ValueError(f"alpha must be between 0 and 1, got {options.alpha!r}")
    for name in ("questions", "validation"):
        files, count = getattr(options, name), len(options.index)
        if len(files) != count and (files or name == "questions"):
            raise ValueError(f"--{name} must name one file for each of the {count} indexes, got {len(files)}")
        for file in files:
            if not Path(file).is_file():
                raise FileNotFoundError(f"--{name} {file}: no such file")


def _options(options: Any) -> dict[str, Any]:
    """Those of `pretrain` or `finetune`."""
    if isinstance(options, PretrainArguments):
        chosen = {name: getattr(options, name) for name in ("num_negatives", "temperature", "remove_one_hop")}
        return {**chosen, "num_negatives": options.num_negatives or None}
    return {name: getattr(options, name) for name in ("alpha", "temperature", "document_loss")}


def _prepare(
    options: Any, seed: int, encoder: Encoder, folder: Path | None
) -> tuple[PreparedGraphs, PreparedGraphs, int]:
    """Graphs to train and to validate on, made from one index folder after the other, and nodes of the largest."""
    train, valid = (
        PreparedGraphs(None if folder is None else folder / name, options.graphs_in_memory)
        for name in ("train", "valid")
    )
    nodes = 0
    for number in range(len(options.index)):
        split = _split_triples if isinstance(options, PretrainArguments) else _split_questions
        parts = split(options, number, seed, encoder)
        nodes = max(nodes, int(parts[0].graph.num_nodes))
        train.add(parts[0], keep=not options.dry_run)
        valid.add(parts[1], keep=not options.dry_run)
        del parts  # before the next index is read
    return train, valid, nodes


def _plan(stage: str, options: Any, args: Any, model: Any, sizes: list[int], nodes: int) -> dict[str, Any]:
    """What is trained, in numbers; the memory is that of weights, gradients, AdamW and the saved states of a batch."""
    parameters = sum(parameter.numel() for parameter in model.parameters())
    batch, processes = args.per_device_train_batch_size, max(args.world_size, 1)
    accumulation = args.gradient_accumulation_steps
    per_epoch = sum(-(-size // batch) for size in sizes)
    steps = (
        args.max_steps if args.max_steps > 0 else -(-per_epoch // (processes * accumulation)) * args.num_train_epochs
    )
    states = 5 * len(model.config.hidden_dims) * batch * nodes * model.config.input_dim * 4
    return {
        "stage": stage,
        "parameters": parameters,
        "graphs": len(sizes),
        "rows": sum(sizes),
        "processes": processes,
        "steps": int(steps),
        "memory_mib": round((16 * parameters + states) / 2**20),
        "encoder": model.encoder.source,
    }


def _model_and_encoder(stage: str, options: StageArguments, seed: int) -> tuple[QueryGNN | GNNRetriever, Encoder]:
    """The network to train, which records its encoder: that of the options, or else the one of `init`."""
    model: QueryGNN | GNNRetriever | None = None
    if options.init is not None:
        model = QueryGNN.from_pretrained(options.init) if stage == "pretrain" else _initial_retriever(options.init)
    source = chosen_source(options.encoder, options.init, None if model is None else model.encoder)
    encoder = open_encoder(source)
    seed_everything(seed)
    if model is None:
        config = GFMConfig(options.hidden_size, (options.hidden_size,) * options.num_layers, encoder.dim)
        model = QueryGNN(config) if stage == "pretrain" else GNNRetriever(config)
    model.record_encoder(encoder)
    return model, encoder


def _split_triples(
    options: PretrainArguments, number: int, seed: int, encoder: Encoder
) -> tuple[TripleGraph, TripleGraph]:
    """An index's triples to train on, and others to validate on; both know all of them as true."""
    import torch

    whole = TripleGraph.of(KGIndex.load(options.index[number]).graph(encoder))
    held = max(1, round(options.validation_share * len(whole)))
    if held >= len(whole):
        raise ValueError(
            f"{options.index[number]}: a graph of {len(whole)} triples is too small to hold {held} of them back for "
            "validation"
        )
    order = torch.randperm(len(whole), generator=torch.Generator().manual_seed(seed))
    kept = order[held:].sort().values
    graph = whole.graph.clone("num_nodes")
    edges = torch.cat([kept, kept + len(whole)])
    graph.edge_index, graph.edge_type = whole.graph.edge_index[:, edges], whole.graph.edge_type[edges]
    train = TripleGraph(graph, whole.triples[kept], whole.graph)
    judged = min(held, options.fast_test or held)
    return train, TripleGraph(graph, whole.triples[order[:judged]], whole.graph)


def _split_questions(
    options: FinetuneArguments, number: int, seed: int, encoder: Encoder
) -> tuple[QuestionGraph, QuestionGraph]:
    """An index's questions to train on, and those to validate on: of a file of their own, or the last tenth."""
    index = KGIndex.load(options.index[number])
    items = read_questions(options.questions[number])
    if options.validation:
        held = read_questions(options.validation[number])
    else:
        cut = max(1, len(items) // 10)
        if len(items) <= cut:
            raise ValueError(
                f"{options.questions[number]}: too few questions ({len(items)}) to hold some back for validation; name "
                "other ones with --validation"
            )
        items, held = items[:-cut], items[-cut:]
    return _question_graph(index, items, encoder), _question_graph(index, held, encoder)


def _question_graph(index: KGIndex, items: list[dict[str, Any]], encoder: Encoder) -> QuestionGraph:
    """Questions that name their entities already (official files do) are taken as they are."""
    asked = [question_of_v2(item) for item in items]
    named = [item for item in asked if {"question_entities", "supporting_entities"} <= item.keys()]
    open_ones = [item for item in asked if not {"question_entities", "supporting_entities"} <= item.keys()]
    linked = prepare_questions(index, open_ones, EntityMatcher(index.entities), NgramLinker())
    return QuestionGraph.from_index(index, [*named, *linked], encoder)


def _initial_retriever(folder: str) -> GNNRetriever:
    config = Path(folder) / "config.json"
    if config.is_file() and read_json(config).get("kind") == QueryGNN.kind:
        return retriever_from(QueryGNN.from_pretrained(folder))
    return GNNRetriever.from_pretrained(folder)


def main(argv: Sequence[str] | None = None) -> None:
    """The program `python -m gfm_rag.train STAGE ...`."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    logging.basicConfig(level=os.environ.get("LOGLEVEL", "INFO"), format="%(levelname)s %(name)s: %(message)s")
    with user_errors("gfm_rag.train"):
        run(arguments[0] if arguments else "", arguments[1:])


if __name__ == "__main__":
    main()
