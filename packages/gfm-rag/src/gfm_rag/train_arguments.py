"""The options of both stages: flags, or a YAML or JSON file with the same names and flags that override it."""

from __future__ import annotations

import argparse
import dataclasses
import difflib
import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

from gfm_rag.encoders.named import DEFAULT, FORMS
from gfm_rag.graph_data import without_import_notices
from nips_common.runtime import require

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
    config: str | None = dataclasses.field(
        default=None,
        metadata={"help": "YAML or JSON file with any of these names; it may also come first. Flags override it."},
    )
    preset: str = dataclasses.field(
        default="paper",
        metadata={"help": "Batch size, epochs, negatives: paper, or official-config (the official code's files)."},
    )
    encoder: str | None = dataclasses.field(
        default=None, metadata={"help": f"{FORMS}; default: that of --init, else {DEFAULT}."}
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
    overwrite: bool = dataclasses.field(
        default=False, metadata={"help": "Train anew into an output_dir that holds a model or checkpoints already."}
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


_ENDINGS = (".yaml", ".yml", ".json")


def parse(stage: str, argv: Sequence[str]) -> tuple[Any, Any]:
    """The stage's arguments and transformers' TrainingArguments, with the defaults of the stage and the preset.

    Args:
        stage: pretrain or finetune.
        argv: `--name value` in any order. A .yaml, .yml or .json file of the same names may come first or by
            `--config`; flags override it.

    Raises:
        ValueError: an unknown stage, preset or name, a value of another kind, or a file that cannot be read.
        FileNotFoundError: there is no such file.
    """
    if stage not in _STAGES:
        raise ValueError(f"the stage must be one of {', '.join(_STAGES)}, got {stage!r}")
    transformers = require("transformers", "gfm-rag[train]")
    require("accelerate", "gfm-rag[train]")
    with without_import_notices():  # transformers imports its parts when they are named
        kinds = (_STAGES[stage], transformers.TrainingArguments)
    known = [field.name for kind in kinds for field in dataclasses.fields(kind) if field.init]
    flags = _with_file(list(argv), known)
    parser = transformers.HfArgumentParser(
        kinds,
        prog=f"gfm-rag {stage}",
        usage=f"gfm-rag {stage} [CONFIG.yaml] {_USAGES[stage]} --output_dir FOLDER [--NAME VALUE ...]",
        description=f"{_STAGES[stage].__doc__} The first options are the stage's, the others those of transformers' "
        "TrainingArguments. Every name may stand in a YAML or JSON file, given first or by --config.",
        allow_abbrev=False,
    )
    parser.error = _refuse  # argparse itself would print all options, hundreds of lines
    _set_defaults(parser, stage, flags)
    *found, rest = parser.parse_args_into_dataclasses(flags, return_remaining_strings=True, look_for_args_file=False)
    if rest:
        name = rest[0].partition("=")[0].lstrip("-").replace("-", "_")
        raise ValueError(f"unknown arguments: {' '.join(rest)}{_suggestion(name, known, '--')}")
    stage_arguments, training = found
    return stage_arguments, training


_USAGES = {"pretrain": "--index INDEX ...", "finetune": "--index INDEX ... --questions QA.json ..."}


def _refuse(message: str) -> NoReturn:
    raise ValueError(f"{message} (--help lists all options)")


def _suggestion(name: str, known: Iterable[str], prefix: str = "") -> str:
    near = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {prefix}{near[0]}?" if near else " (--help lists all options)"


def _set_defaults(parser: Any, stage: str, flags: list[str]) -> None:
    """Ours instead of the Trainer's; validation follows the checkpoints if only these are asked for, and reversed."""
    preset = _value_of("--preset", flags) or "paper"
    if preset not in PRESETS:
        raise ValueError(f"--preset must be one of {', '.join(PRESETS)}, got {preset!r}")
    metric = "mrr" if stage == "pretrain" else "document_mrr"
    parser.set_defaults(**_TRAINER, metric_for_best_model=metric, **PRESETS[preset][stage])
    next(action for action in parser._actions if action.dest == "output_dir").required = True
    names = {flag.partition("=")[0].lstrip("-").replace("-", "_") for flag in flags if flag.startswith("--")}
    if {"help"} & names or "-h" in flags:
        return
    asked = parser.parse_known_args(flags)[0]
    for kind, other in (("save", "eval"), ("eval", "save")):
        strategy = getattr(asked, f"{kind}_strategy")
        if f"{kind}_strategy" in names and f"{other}_strategy" not in names:
            if strategy in ("epoch", "steps"):
                parser.set_defaults(**{f"{other}_strategy": strategy})
            if strategy == "steps" and f"{other}_steps" not in names:
                parser.set_defaults(**{f"{other}_steps": getattr(asked, f"{kind}_steps")})
        if strategy == "no" and "load_best_model_at_end" not in names:
            parser.set_defaults(load_best_model_at_end=False)
    _check_bf16(asked)


def _check_bf16(asked: argparse.Namespace) -> None:
    from transformers.utils import is_torch_bf16_gpu_available

    if (asked.bf16 or asked.bf16_full_eval) and not asked.use_cpu and not is_torch_bf16_gpu_available():
        raise ValueError("--bf16 needs a GPU that knows bfloat16, and none is found; with --use_cpu the CPU takes it")


def _value_of(name: str, flags: Sequence[str]) -> str | None:
    """The last value of an option, before all others are read."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.error = _refuse  # type: ignore[method-assign]
    parser.add_argument(name, dest="value")
    found: str | None = parser.parse_known_args(list(flags))[0].value
    return found


def _with_file(flags: list[str], known: Sequence[str]) -> list[str]:
    """Flags with those of a file before them."""
    if flags and not flags[0].startswith("-") and flags[0].lower().endswith(_ENDINGS):
        flags = ["--config", *flags]
    file = _value_of("--config", flags)
    return flags if file is None else [*_flags_of_file(Path(file), known), *flags]


def _flags_of_file(path: Path, known: Sequence[str]) -> Iterator[str]:
    """The entries of a file as flags, so that both are checked alike."""
    if path.suffix.lower() not in _ENDINGS:
        raise ValueError(f"{path}: a file of options must be one of {', '.join(_ENDINGS)}")
    for key, value in _entries(path).items():
        name = str(key).replace("-", "_")
        if name not in known or name == "config":
            raise ValueError(f"{path}: unknown name {key!r}{_suggestion(name, known)}")
        if isinstance(value, list):
            yield from (f"--{name}", *map(str, value))
        elif value is not None:  # an empty entry is as if it were not there
            yield f"--{name}={json.dumps(value) if isinstance(value, dict) else value}"


def _entries(path: Path) -> dict[Any, Any]:
    try:
        text = path.read_text("utf-8")
    except FileNotFoundError:
        raise FileNotFoundError(f"{path}: no such file of options") from None
    if path.suffix.lower() == ".json":
        try:
            found = json.loads(text)
        except ValueError as error:
            raise ValueError(f"{path}: not valid JSON: {error}") from error
        words = found
    else:
        yaml = require("yaml", "gfm-rag[train]")
        try:
            found = yaml.safe_load(text)
            words = yaml.load(text, yaml.BaseLoader)
        except yaml.YAMLError as error:
            raise ValueError(f"{path}: not YAML: {' '.join(str(error).split())}") from error
    if not isinstance(found, dict):
        raise ValueError(f"{path}: expected names with values, got {type(found).__name__}")
    read = zip(found.values(), words.values(), strict=True)
    plain = [value if value is None or isinstance(value, dict) else word for value, word in read]
    return dict(zip(words, plain, strict=True))
