"""The README.md of a trained adapter: what it is, how it was trained, how to load it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from huggingface_hub import ModelCardData

from nips_common.artifacts import atomic_file
from nips_finetune.job import Job

_PIPELINES = {
    "causal_lm": ("text-generation", "AutoPeftModelForCausalLM"),
    "sequence_classification": ("text-classification", "AutoPeftModelForSequenceClassification"),
    "image_classification": ("image-classification", "AutoPeftModel"),
}

MEASURED = (
    *("train_loss", "eval_loss", "eval_perplexity"),
    *("eval_accuracy", "eval_macro_f1", "eval_matthews_correlation", "eval_pearson"),
)


def write_model_card(path: Path, job: Job, report: Mapping[str, Any]) -> None:
    """Write the card in one step.

    Args:
        path: The file.
        job: What was trained on what.
        report: The metrics.
    """
    method, model = job.method, job.arguments.model
    pipeline, auto_class = _PIPELINES[job.task.name]
    # a local base model has no place on a hub, and its path tells about a machine
    local = Path(model).exists()
    about = ModelCardData(
        base_model=None if local else model,
        library_name="peft",
        pipeline_tag=pipeline,
        tags=list(dict.fromkeys([method.title.lower(), method.name, "peft"])),
    )
    settings = {name: value for name, value in asdict(job.adapter).items() if value is not None}
    numbers = {key: value for key, value in report.items() if key in MEASURED and value is not None}
    base = f"`{Path(model).name}` (a local folder)" if local else f"`{model}`"
    parameters = report["parameters"]
    parts = [
        f"---\n{about.to_yaml()}\n---",
        f"# {method.title} adapter of {base}",
        f"An adapter by the method {method.title} ({method.citation}) for {job.task.name.replace('_', ' ')}, trained\n"
        f"with `{method.command}`: {parameters['adapter']:,} parameters of the adapter, {parameters['head']:,} of the "
        f"head, {report['steps']:,} steps.",
        _labels(job),
        "## Load it",
        f"```python\n{_imports(method.import_name, auto_class)}\n\n"
        f"model = {auto_class}.from_pretrained({_arguments(job)})\n```",
        job.adapter.card_note(),
        f"## Training\n\n{_table('setting', settings)}",
        f"## Measured\n\n{_table('quantity', numbers)}" if numbers else "",
    ]
    with atomic_file(path) as temporary:
        temporary.write_text("\n\n".join(filter(None, parts)) + "\n", "utf-8")


def _imports(name: str, auto_class: str) -> str:
    first = f"import {name}  # lets peft know the method; needed before the folder is read\n" if name != "peft" else ""
    return f"{first}from peft import {auto_class}"


def _arguments(job: Job) -> str:
    """The folder, and what the base model must be told, so that it gets the head and the labels that were trained."""
    folder = '"path/of/this/folder"'
    if not job.task.classifies:
        return folder
    told = f"id2label={job.config.id2label!r},\n    label2id={job.config.label2id!r}"
    if job.arguments.regression:
        told = 'num_labels=1,\n    problem_type="regression"'
    return f"\n    {folder},\n    {told},\n    ignore_mismatched_sizes=True,\n"


def _labels(job: Job) -> str:
    names = job.config.id2label.values() if job.task.classifies and not job.arguments.regression else ()
    return f"Labels: {', '.join(names)}." if names else ""


def _table(head: str, rows: Mapping[str, Any]) -> str:
    return "\n".join([f"| {head} | value |", "|---|---|", *(f"| {name} | {value} |" for name, value in rows.items())])
