"""The three tasks: which model class, which columns, how a batch is made, what is measured."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from nips_finetune.examples import Columns, Example

Batch = dict[str, Tensor]
Collator = Callable[[Sequence[Example]], Batch]
IGNORED = -100  # the label that takes no part in a loss
LONGEST_TEXT = 512  # in tokens, unless the user or the model says less


@dataclass(frozen=True)
class Task:
    """A task.

    Args:
        name: What the command line calls it.
        auto_class: The class of transformers that has its head.
        peft_type: What peft calls it; None where peft has no name for it.
        roles: The columns it uses.
        needed: Those it cannot do without.
    """

    name: str
    auto_class: str
    peft_type: str | None
    roles: tuple[str, ...]
    needed: tuple[str, ...]

    @property
    def classifies(self) -> bool:
        """Whether there is a head to train, with labels."""
        return "label" in self.needed

    @property
    def reads_text(self) -> bool:
        """Whether its input is text."""
        return "text" in self.needed

    def columns(self, **names: str | None) -> Columns:
        """The columns of this task from all names given; ValueError for one that it does not use."""
        for role, name in names.items():
            if name is not None and role not in self.roles:
                raise ValueError(
                    f"--{role}_column does not belong to the task {self.name}, which uses "
                    + ", ".join(f"--{role}_column" for role in self.roles)
                )
        defaults = {role: role for role in self.needed}
        return Columns(**(defaults | {role: name for role, name in names.items() if name is not None}))


TASKS = {
    task.name: task
    for task in (
        Task("causal_lm", "AutoModelForCausalLM", "CAUSAL_LM", ("text", "prompt"), ("text",)),
        Task(
            "sequence_classification",
            "AutoModelForSequenceClassification",
            "SEQ_CLS",
            ("text", "text_pair", "label"),
            ("text", "label"),
        ),
        Task("image_classification", "AutoModelForImageClassification", None, ("image", "label"), ("image", "label")),
    )
}


def find_task(name: str) -> Task:
    """A task by its name; ValueError naming all."""
    if name not in TASKS:
        raise ValueError(f"task must be one of {', '.join(TASKS)}, got {name!r}")
    return TASKS[name]


def head_modules(model: nn.Module) -> list[str]:
    """The modules beside the pre-trained body that have weights: the head of a classifier."""
    body = getattr(model, "base_model_prefix", "")
    return [name for name, child in model.named_children() if name != body and any(True for _ in child.parameters())]


def is_head(name: str) -> bool:
    """Whether a parameter of a peft model belongs to a module trained in full."""
    return ".modules_to_save." in name


def make_collator(task: Task, processor: Any, max_length: int, multiple_of: int | None = None) -> Collator:
    """What makes a batch of examples, with ``labels``.

    Args:
        task: The task.
        processor: Its tokenizer or image processor.
        max_length: Texts are cut after so many tokens.
        multiple_of: Pad texts to a multiple of this.
    """
    if task.name == "causal_lm":
        return LanguageCollator(processor, max_length, multiple_of)
    return (TextCollator if task.reads_text else ImageCollator)(processor, max_length, multiple_of)


@dataclass(frozen=True)
class LanguageCollator:
    """Texts to continue: each ends with the end-of-text token, and a prompt takes no part in the loss.

    Of what is too long the prompt loses its beginning (after its first token) before the text loses its end.
    """

    tokenizer: Any
    max_length: int
    multiple_of: int | None = None

    def __call__(self, examples: Sequence[Example]) -> Batch:
        """``input_ids``, ``attention_mask`` and ``labels``, all ``(batch, length)``."""
        pairs = [self._encode(example) for example in examples]
        longest, multiple = max(len(ids) for ids, _ in pairs), self.multiple_of or 1
        width = -(-longest // multiple) * multiple
        inputs = torch.full((len(pairs), width), self.tokenizer.pad_token_id)
        labels, mask = torch.full_like(inputs, IGNORED), torch.zeros_like(inputs)
        for row, (ids, start) in enumerate(pairs):
            inputs[row, : len(ids)] = torch.tensor(ids)
            labels[row, start : len(ids)] = torch.tensor(ids[start:])
            mask[row, : len(ids)] = 1
        return {"input_ids": inputs, "attention_mask": mask, "labels": labels}

    def _encode(self, example: Example) -> tuple[list[int], int]:
        """The tokens, and where those with a loss begin."""
        end = [] if self.tokenizer.eos_token_id is None else [self.tokenizer.eos_token_id]
        prompt = example.get("prompt")
        ids = list(self.tokenizer(prompt if prompt is not None else example["text"])["input_ids"])
        if end and ids[-1:] == end:  # some tokenizers add it themselves
            ids.pop()
        start = 0
        if prompt is not None:
            start = len(ids)
            ids += self.tokenizer(example["text"], add_special_tokens=False)["input_ids"]
        ids += end
        dropped = min(max(len(ids) - self.max_length, 0), max(start - 1, 0))
        ids = [*ids[:1], *ids[1 + dropped :]][: self.max_length]
        return ids, start - dropped


@dataclass(frozen=True)
class TextCollator:
    """Texts, or pairs of texts, to classify."""

    tokenizer: Any
    max_length: int
    multiple_of: int | None = None

    def __call__(self, examples: Sequence[Example]) -> Batch:
        """What the tokenizer gives, ``(batch, length)``, and ``labels`` ``(batch,)`` of rows that have them."""
        pairs = [example["text_pair"] for example in examples] if "text_pair" in examples[0] else None
        encoded = self.tokenizer(
            [example["text"] for example in examples],
            pairs,
            truncation=True,
            max_length=self.max_length,
            padding=True,
            pad_to_multiple_of=self.multiple_of,
            return_tensors="pt",
        )
        return {**encoded, **_labels(examples)}


@dataclass(frozen=True)
class ImageCollator:
    """Pictures to classify."""

    processor: Any
    max_length: int = 0  # of texts; here so that all collators are made alike
    multiple_of: int | None = None

    def __call__(self, examples: Sequence[Example]) -> Batch:
        """``pixel_values`` ``(batch, channels, height, width)``, and ``labels`` ``(batch,)``."""
        pixels = self.processor(images=[example["image"] for example in examples], return_tensors="pt")["pixel_values"]
        return {"pixel_values": pixels, **_labels(examples)}


def _labels(examples: Sequence[Example]) -> Batch:
    if "label" not in examples[0]:  # rows to run a trained model on
        return {}
    values = [example["label"] for example in examples]
    return {"labels": torch.tensor(values, dtype=torch.float32 if isinstance(values[0], float) else torch.long)}


def measure(logits: np.ndarray[Any, Any], labels: np.ndarray[Any, Any], regression: bool) -> dict[str, float]:
    """Accuracy, macro-averaged F1 and Matthews correlation of a classification; Pearson correlation of a regression.

    Args:
        logits: ``(n, classes)``, or ``(n, 1)`` for a regression.
        labels: ``(n,)``.
        regression: Whether they are numbers.
    """
    if regression:
        return {"pearson": _correlation(logits.reshape(-1).astype(float), labels.astype(float))}
    classes = logits.shape[-1]
    table = np.zeros((classes, classes))  # (truth, answer)
    np.add.at(table, (labels.astype(int), logits.argmax(-1)), 1)
    truth, answers, right = table.sum(1), table.sum(0), table.diagonal()
    present = truth + answers > 0
    f1 = 2 * right[present] / (truth + answers)[present]
    total = table.sum()
    spread = np.sqrt((total**2 - (answers**2).sum()) * (total**2 - (truth**2).sum()))
    covariance = right.sum() * total - (truth * answers).sum()
    return {
        "accuracy": float(right.sum() / total),
        "macro_f1": float(f1.mean()),
        "matthews_correlation": float(covariance / spread) if spread > 0 else 0.0,
    }


def _correlation(first: np.ndarray[Any, Any], second: np.ndarray[Any, Any]) -> float:
    first, second = first - first.mean(), second - second.mean()
    norm = float(np.linalg.norm(first) * np.linalg.norm(second))
    return float(first @ second) / norm if norm > 0 else 0.0
