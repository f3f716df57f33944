"""A trained adapter on its base model, with data for it: what merging and measuring start from."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from peft import PeftConfig, PeftModel
from torch import Tensor, nn

from nips_common.artifacts import read_json
from nips_finetune.examples import Columns, make_examples
from nips_finetune.method import AdapterMethod
from nips_finetune.pretrained import load_config, load_image_processor, load_model, load_tokenizer, longest_text
from nips_finetune.records import read_records
from nips_finetune.run_folder import LABELLED_CONFIG, RECORD
from nips_finetune.tasks import IGNORED, LONGEST_TEXT, TASKS, Batch, Task, find_task, make_collator


@dataclass(frozen=True)
class SavedAdapter:
    """A folder of peft with an adapter of a method, read but not loaded.

    Args:
        folder: The folder.
        config: Its settings.
        base: The base model: a folder or a hub id.
        task: The task.
        record: What the training script wrote about it; empty for other adapters.
    """

    folder: Path
    config: PeftConfig
    base: str
    task: Task
    record: dict[str, Any]

    @classmethod
    def read(
        cls, method: AdapterMethod, folder: Path, base: str | None = None, task: str | None = None
    ) -> SavedAdapter:
        """Read the folder.

        Args:
            method: The method that it must be of.
            folder: The folder.
            base: The base model, where it is no longer at the place that the folder names.
            task: The task, where the folder does not say it.

        Raises:
            ValueError: No adapter, one of another method, an unknown task.
            FileNotFoundError: No such folder.
        """
        if not (folder / "adapter_config.json").is_file():
            raise FileNotFoundError(f"{folder}: no adapter there (adapter_config.json is missing)")
        try:
            config = PeftConfig.from_pretrained(str(folder))
        except (TypeError, KeyError, ValueError) as error:
            raise ValueError(f"{folder / 'adapter_config.json'}: {error}") from error
        if not isinstance(config, method.config_type):
            found = str(getattr(config.peft_type, "value", config.peft_type))
            raise ValueError(f"{folder} holds an adapter of the method {found}, expected {method.title}")
        record = read_json(folder / RECORD) if (folder / RECORD).is_file() else {}
        source = base or config.base_model_name_or_path
        if not source:
            raise ValueError(f"{folder} does not name its base model; give it by --base")
        by_type = {entry.peft_type: name for name, entry in TASKS.items() if entry.peft_type is not None}
        name = task or record.get("task") or by_type.get(str(config.task_type))
        if name is None:
            raise ValueError(f"{folder} does not name its task; give it by --task: {', '.join(TASKS)}")
        return cls(folder, config, source, find_task(name), record)

    def load(self, device: torch.device, dtype: torch.dtype, **changes: Any) -> nn.Module:
        """The base model with the adapter, in evaluation mode.

        Args:
            device: Where to.
            dtype: Of the weights.
            changes: Settings of the config to load it with, such as ``merge_policy="static"``.
        """
        own = self.folder / LABELLED_CONFIG
        config = load_config(str(own if own.is_file() else self.base))
        model = load_model(self.task.auto_class, self.base, config, dtype, new_head="expected")
        try:
            adapted = PeftModel.from_pretrained(model, str(self.folder), config=replace(self.config, **changes))
        except (RuntimeError, OSError, ValueError) as error:
            text = " ".join(str(error).split())[:300]
            raise ValueError(f"{self.folder} does not fit its base model {self.base}: {text}") from error
        loaded: nn.Module = adapted.to(device, dtype).eval()
        return loaded

    def load_processor(self) -> Any:
        """The tokenizer or image processor, of the adapter's folder if it has one."""
        if self.task.reads_text:
            own = (self.folder / "tokenizer_config.json").is_file()
            return load_tokenizer(str(self.folder if own else self.base))
        own = (self.folder / "preprocessor_config.json").is_file()
        return load_image_processor(str(self.folder if own else self.base))

    def columns(self, **names: str | None) -> Columns:
        """The columns to read, without the label: those that were trained on, unless other names are given."""
        trained = {role: name for role, name in self.record.get("columns", {}).items() if role != "label"}
        wanted = trained | {role: name for role, name in names.items() if name is not None}
        return replace(self.task.columns(**wanted), label=None)

    def batches(
        self, data: str, columns: Columns, split: str = "train", most: int | None = None, batch_size: int | None = None
    ) -> Batches:
        """Data for the model.

        Args:
            data: As :func:`nips_finetune.read_records` takes it.
            columns: As :meth:`columns` gives them.
            split: The split.
            most: Use only the first so many rows.
            batch_size: Rows at once; None: one text, as padding would count, or 16 images.
        """
        rows = read_records(data, split)
        rows = rows if most is None else rows.select(range(min(most, len(rows))))
        examples = make_examples(rows, columns, data)
        processor = self.load_processor()
        longest = 0
        if self.task.reads_text:
            limit = longest_text(load_config(self.base), processor) or LONGEST_TEXT
            longest = self.record.get("max_length") or min(limit, LONGEST_TEXT)
        collate = make_collator(self.task, processor, longest)
        return Batches(examples, collate, batch_size or (1 if self.task.reads_text else 16))


@dataclass(frozen=True)
class Batches:
    """Batches without labels, which can be gone through several times."""

    examples: Any
    collate: Any
    size: int

    def __len__(self) -> int:
        return int(-(-len(self.examples) // self.size))

    def __iter__(self) -> Iterator[Batch]:
        for start in range(0, len(self.examples), self.size):
            stop = min(start + self.size, len(self.examples))
            batch = self.collate([self.examples[index] for index in range(start, stop)])
            yield {name: value for name, value in batch.items() if name != "labels"}


@dataclass(frozen=True)
class Outcome:
    """What a model makes of data: logits of a classifier, or the loss of a language model on its inputs."""

    logits: Tensor | None = None
    loss: float | None = None

    @classmethod
    @torch.no_grad()
    def of(cls, model: nn.Module, batches: Batches, task: Task) -> Outcome:
        """Run the model over all batches."""
        device = next(model.parameters()).device
        outputs: list[Tensor] = []
        total, tokens = 0.0, 0
        for batch in batches:
            placed = {name: value.to(device) for name, value in batch.items()}
            if task.classifies:
                outputs.append(model(**placed).logits.float().cpu())
                continue
            labels = placed["input_ids"].masked_fill(placed["attention_mask"] == 0, IGNORED)
            count = int((labels[:, 1:] != IGNORED).sum())
            total += float(model(**placed, labels=labels).loss) * count if count else 0.0
            tokens += count
        return cls(logits=torch.cat(outputs)) if task.classifies else cls(loss=total / max(tokens, 1))

    def change_to(self, after: Outcome) -> dict[str, float]:
        """How another outcome on the same data differs, as JSON values."""
        if self.logits is None or after.logits is None:
            return {"loss_before": float(self.loss or 0), "loss_after": float(after.loss or 0)}
        size = float(self.logits.norm())
        change = {"relative_output_change": float((after.logits - self.logits).norm()) / size if size else 0.0}
        if self.logits.shape[-1] > 1:
            change["same_class"] = float((after.logits.argmax(-1) == self.logits.argmax(-1)).float().mean())
        return change
