"""The README.md of a trained adapter: what it is, how it was trained, how to load it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from huggingface_hub import ModelCardData
from transformers import PretrainedConfig

from nips_common.artifacts import atomic_file

_PIPELINES = {
    "causal_lm": ("text-generation", "AutoPeftModelForCausalLM"),
    "sequence_classification": ("text-classification", "AutoPeftModelForSequenceClassification"),
    "image_classification": ("image-classification", "AutoPeftModel"),
}

MEASURED = (
    *("train_loss", "eval_loss", "eval_perplexity"),
    *("eval_accuracy", "eval_macro_f1", "eval_matthews_correlation", "eval_pearson"),
)
_MERGING = {
    "dynamic": (
        'The update is nonlinear in its input (`forward_mode="dynamic"`) and cannot be merged into the base weights '
        "without\nchanging the model; see `lora-anl merge --help` and `lora-anl gap --help`."
    ),
    "static": 'The update is linear in its input (`forward_mode="static"`) and merges exactly: `lora-anl merge`.',
}


def write_model_card(
    path: Path, record: Mapping[str, Any], report: Mapping[str, Any], config: PretrainedConfig
) -> None:
    """Write the card in one step.

    Args:
        path: The file.
        record: What was trained on what.
        report: The metrics.
        config: The base model's, with the labels.
    """
    pipeline, auto_class = _PIPELINES[record["task"]]
    # a local base model has no place on a hub, and its path tells about a machine
    local = Path(record["model"]).exists()
    about = ModelCardData(
        base_model=None if local else record["model"],
        library_name="peft",
        pipeline_tag=pipeline,
        tags=["aurora", "lora-anl", "peft"],
    )
    settings = {name: value for name, value in record["adapter"].items() if value is not None}
    numbers = {key: value for key, value in report.items() if key in MEASURED and value is not None}
    base = f"`{Path(record['model']).name}` (a local folder)" if local else f"`{record['model']}`"
    language = record["task"] == "causal_lm"
    head = f", num_labels={config.num_labels}, ignore_mismatched_sizes=True"
    names = "" if language or record["regression"] else f"\nLabels: {', '.join(config.id2label.values())}.\n"
    with atomic_file(path) as temporary:
        temporary.write_text(
            f"""---
{about.to_yaml()}
---

# AuroRA adapter of {base}

An AuroRA adapter (LoRA with an adaptive nonlinear layer, arXiv 2505.18738) for {
                record["task"].replace("_", " ")
            }, trained
with `lora-anl`: {report["parameters"]["adapter"]:,} parameters of the adapter, {
                report["parameters"]["head"]:,} of the head, {report["steps"]:,} steps.
{names}
## Load it

```python
import lora_anl  # lets peft know the method; needed before the folder is read
from peft import {auto_class}

model = {auto_class}.from_pretrained("path/of/this/folder"{"" if language else head})
```

{_MERGING[settings["forward_mode"]]}

## Training

{_table("setting", settings)}

## Measured

{_table("quantity", numbers)}
""",
            "utf-8",
        )


def _table(head: str, rows: Mapping[str, Any]) -> str:
    return "\n".join([f"| {head} | value |", "|---|---|", *(f"| {name} | {value} |" for name, value in rows.items())])
