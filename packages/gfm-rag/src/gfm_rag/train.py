"""The training script of both stages: `gfm-rag pretrain`, `gfm-rag finetune`, or `torchrun ... -m gfm_rag.train STAGE`.

Options are those of the stage and of transformers' TrainingArguments, as flags or in one YAML or JSON file. Copy this
file to change how a stage is trained.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from gfm_rag.config import GFMConfig
from gfm_rag.encoders import Encoder
from gfm_rag.encoders.hashing import HashingEncoder
from gfm_rag.encoders.sentence import SentenceEncoder
from gfm_rag.entity_matcher import EntityMatcher
from gfm_rag.gnn_retriever import GNNRetriever
from gfm_rag.graph_data import without_import_notices
from gfm_rag.kg_index import KGIndex
from gfm_rag.linkers import NgramLinker
from gfm_rag.multihop import read_records
from gfm_rag.official_trees import question_of_v2
from gfm_rag.prepared_graphs import PreparedGraphs, scratch_folder
from gfm_rag.query_gnn import QueryGNN, retriever_from
from gfm_rag.questions import prepare_questions
from gfm_rag.stages import finetune, pretrain
from gfm_rag.training_data import QuestionGraph, TripleGraph
from nips_common.artifacts import read_json
from nips_common.cli import user_errors
from nips_common.runtime import require, seed_everything

log = logging.getLogger("gfm_rag.train")

# Of the Trainer: AdamW at a constant rate without clipping, as in the official code [code].
_TRAINER = {
    "learning_rate": 5e-4,
    "weight_decay": 0.01,
    "lr_scheduler_type": "constant",
    "max_grad_norm": 0.0,
    "seed": 1024,
    "report_to": "none",
    "remove_unused_columns": False,
    "eval_strategy": "epoch",
    "save_strategy": "epoch",
    "save_total_limit": 2,
    "load_best_model_at_end": True,
    "logging_steps": 10,
}
PRESETS: dict[str, dict[str, dict[str, Any]]] = {
    "paper": {
        "pretrain": {"per_device_train_batch_size": 4, "max_steps": 30_000, "num_negatives": 128},
        "finetune": {"per_device_train_batch_size": 4, "num_train_epochs": 5},
    },
    "official-config": {
        "pretrain": {"per_device_train_batch_size": 8, "max_steps": 30_000, "num_negatives": 256},
        "finetune": {"per_device_train_batch_size": 8, "num_train_epochs": 20},
    },
}


@dataclasses.dataclass
class StageArguments:
    """What both stages ask for."""

    index: list[str] = dataclasses.field(metadata={"help": "Index folders to train on, one or more."})
    encoder: str = dataclasses.field(
        default="hashing-768", metadata={"help": "Sentence encoder: a folder or hub id, 'minilm', or hashing-DIM."}
    )
    init: str | None = dataclasses.field(
        default=None, metadata={"help": "Model folder to begin with; finetune also takes one of pretrain."}
    )
    hidden_size: int = dataclasses.field(default=512, metadata={"help": "Size of the states of a new model."})
    num_layers: int = dataclasses.field(default=6, metadata={"help": "Layers of a new model."})
    graphs_in_memory: int = dataclasses.field(
        default=4,
        metadata={"help": "With more indexes than these, graphs go to files in output_dir and are read when needed."},
    )
    dry_run: bool = dataclasses.field(
        default=False, metadata={"help": "Check everything and say what would be trained; write nothing."}
    )
    resume: bool = dataclasses.field(
        default=False, metadata={"help": "Go on from the newest checkpoint of output_dir."}
    )


@dataclasses.dataclass
class PretrainArguments(StageArguments):
    """Stage 1, knowledge-graph completion."""

    num_negatives: int = dataclasses.field(
        default=128, metadata={"help": "Corrupted triples for each true one; 0 = all entities that make it false."}
    )
    temperature: float = dataclasses.field(default=1.0, metadata={"help": "Of the adversarial weights of negatives."})
    remove_one_hop: bool = dataclasses.field(
        default=False, metadata={"help": "Take every edge between the pairs of a batch out of the graph."}
    )
    validation_share: float = dataclasses.field(default=0.05, metadata={"help": "Share of triples held back."})
    fast_test: int = dataclasses.field(
        default=500, metadata={"help": "Validate on so many of them, drawn at random, for each index; 0 = on all."}
    )


@dataclasses.dataclass
class FinetuneArguments(StageArguments):
    """Stage 2, retrieval: questions with supporting documents."""

    questions: list[str] = dataclasses.field(
        default_factory=list, metadata={"help": "A QA file (JSON list or JSONL) for each index, in the same order."}
    )
    validation: list[str] = dataclasses.field(
        default_factory=list, metadata={"help": "A QA file to validate on for each index; none = the last tenth."}
    )
    alpha: float = dataclasses.field(default=0.3, metadata={"help": "Weight of the binary cross-entropy."})
    temperature: float = dataclasses.field(default=0.2, metadata={"help": "Of its adversarial weights."})
    document_loss: float = dataclasses.field(default=0.0, metadata={"help": "Weight of the losses on documents."})


_STAGES: dict[str, type[StageArguments]] = {"pretrain": PretrainArguments, "finetune": FinetuneArguments}


def open_encoder(name: str, device: str = "cpu") -> Encoder:
    """The encoder that a command line names: hashing-DIM, minilm (the asset), a folder or a hub id."""
    if name.startswith("hashing-") and name.removeprefix("hashing-").isdigit():
        return HashingEncoder(int(name.removeprefix("hashing-")))
    if name == "minilm":
        return SentenceEncoder.minilm(device=device)
    return SentenceEncoder(name, device=device)


def parse(stage: str, argv: Sequence[str]) -> tuple[Any, Any]:
    """The stage's arguments and transformers' from flags (or one .yaml or .json file), with the preset's defaults.

    Raises:
        ValueError: an unknown stage or preset, or wrong flags.
    """
    if stage not in _STAGES:
        raise ValueError(f"the stage must be one of {', '.join(_STAGES)}, got {stage!r}")
    transformers = require("transformers", "gfm-rag[train]")
    require("accelerate", "gfm-rag[train]")
    flags = list(argv)
    if len(flags) == 1 and flags[0].endswith((".yaml", ".yml", ".json")):
        flags = _flags_of_file(Path(flags[0]))
    flags, preset = _take(flags, "--preset", "paper")
    if preset not in PRESETS:
        raise ValueError(f"--preset must be one of {', '.join(PRESETS)}, got {preset!r}")
    with without_import_notices():  # transformers imports its parts when they are named
        kinds = (_STAGES[stage], transformers.TrainingArguments)
    parser = transformers.HfArgumentParser(kinds, prog=f"gfm-rag {stage}", description=__doc__)
    metric = "mrr" if stage == "pretrain" else "document_mrr"
    parser.set_defaults(**_TRAINER, metric_for_best_model=metric, **PRESETS[preset][stage])
    parser.error = _refuse  # argparse itself would print all options, hundreds of lines
    found: tuple[Any, Any] = parser.parse_args_into_dataclasses(args=flags)
    return found


def _refuse(message: str) -> NoReturn:
    raise ValueError(f"{message} (--help lists all options)")


def _take(flags: list[str], name: str, default: str) -> tuple[list[str], str]:
    if name not in flags:
        return flags, default
    at = flags.index(name)
    if at + 1 == len(flags):
        raise ValueError(f"{name} needs a value")
    return flags[:at] + flags[at + 2 :], flags[at + 1]


def _flags_of_file(path: Path) -> list[str]:
    content: Any
    if path.suffix == ".json":
        content = read_json(path)
    else:
        yaml = require("yaml", "pyyaml")
        try:
            content = yaml.safe_load(path.read_text("utf-8"))
        except yaml.YAMLError as error:
            raise ValueError(f"{path}: not YAML: {error}") from error
        if not isinstance(content, dict):
            raise ValueError(f"{path}: expected options with values, got {type(content).__name__}")
    flags: list[str] = []
    for key, value in content.items():
        if value is None:  # as if it were not there
            continue
        values = value if isinstance(value, list) else [value]
        flags += [f"--{key}", *(json.dumps(v) if isinstance(v, dict) else str(v) for v in values)]
    return flags


def run(stage: str, argv: Sequence[str]) -> dict[str, float]:
    """Trains, validates and writes the model into `output_dir`; returns the metrics.

    Raises:
        ValueError: what does not fit, before any training.
    """
    stage_args, args = parse(stage, argv)
    _check(stage_args)
    encoder = open_encoder(stage_args.encoder)
    seed_everything(args.seed)
    model: Any = (_initial_query_network if stage == "pretrain" else _initial_retriever)(stage_args, encoder)
    _check_width(model, encoder)
    with contextlib.ExitStack() as stack:
        folder = None
        if len(stage_args.index) > stage_args.graphs_in_memory and not stage_args.dry_run:
            folder = stack.enter_context(scratch_folder(Path(args.output_dir), args.process_index))
        train, valid, nodes = _prepare(stage_args, args.seed, encoder, folder)
        print(json.dumps(_plan(stage, stage_args, args, model, train.sizes, nodes), indent=2))
        if stage_args.dry_run:
            return {}
        function: Any = pretrain if stage == "pretrain" else finetune
        options = _options(stage_args)
        metrics: dict[str, float] = function(
            model, train.pool(), args, valid.pool(), resume=stage_args.resume, **options
        )
    # the folder is swapped for one with the model, in which no other process may be at work by then
    require("accelerate", "gfm-rag[train]").PartialState().wait_for_everyone()
    if args.process_index == 0:
        model.save_pretrained(args.output_dir)
        print(json.dumps({key: round(value, 6) for key, value in metrics.items()}))
    return metrics


def _check(options: Any) -> None:
    """ValueError for what can be told before anything is read or written."""
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
        "encoder": options.encoder,
    }


def _config(options: StageArguments, encoder: Encoder) -> GFMConfig:
    return GFMConfig(options.hidden_size, (options.hidden_size,) * options.num_layers, encoder.dim)


def _check_width(model: Any, encoder: Encoder) -> None:
    if model.config.text_dim != encoder.dim:
        raise ValueError(
            f"the encoder gives {encoder.dim} dimensions, the model wants text_dim={model.config.text_dim}"
        )


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
    items = list(read_records(options.questions[number]))
    if options.validation:
        held = list(read_records(options.validation[number]))
    else:
        cut = max(1, len(items) // 10)
        items, held = items[:-cut], items[-cut:]
    return _question_graph(index, items, encoder), _question_graph(index, held, encoder)


def _question_graph(index: KGIndex, items: list[dict[str, Any]], encoder: Encoder) -> QuestionGraph:
    """Questions that name their entities already (official files do) are taken as they are."""
    asked = [question_of_v2(item) for item in items]
    named = [item for item in asked if {"question_entities", "supporting_entities"} <= item.keys()]
    open_ones = [item for item in asked if not {"question_entities", "supporting_entities"} <= item.keys()]
    linked = prepare_questions(index, open_ones, EntityMatcher(index.entities), NgramLinker())
    return QuestionGraph.from_index(index, [*named, *linked], encoder)


def _initial_query_network(options: PretrainArguments, encoder: Encoder) -> QueryGNN:
    return QueryGNN.from_pretrained(options.init) if options.init else QueryGNN(_config(options, encoder))


def _initial_retriever(options: FinetuneArguments, encoder: Encoder) -> GNNRetriever:
    if options.init is None:
        return GNNRetriever(_config(options, encoder))
    config = Path(options.init) / "config.json"
    if config.is_file() and json.loads(config.read_text("utf-8")).get("kind") == QueryGNN.kind:
        return retriever_from(QueryGNN.from_pretrained(options.init))
    return GNNRetriever.from_pretrained(options.init)


def main(argv: Sequence[str] | None = None) -> None:
    """The program `python -m gfm_rag.train STAGE ...`."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    logging.basicConfig(level=os.environ.get("LOGLEVEL", "INFO"), format="%(levelname)s %(name)s: %(message)s")
    with user_errors("gfm_rag.train"):
        run(arguments[0] if arguments else "", arguments[1:])


if __name__ == "__main__":
    main()
