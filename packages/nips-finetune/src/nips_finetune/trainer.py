"""transformers' Trainer with another learning rate for the head, and logs that leave standard output alone."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import (
    PrinterCallback,
    ProgressCallback,
    Trainer,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
)

from nips_finetune.tasks import is_head

log = logging.getLogger(__name__)


class FinetuneTrainer(Trainer):
    """The Trainer; modules trained in full (peft's ``modules_to_save``) get ``args.head_learning_rate``."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.remove_callback(PrinterCallback)
        if self.pop_callback(ProgressCallback) is not None:
            self.add_callback(_Bar())
        self.add_callback(_LogToLogger())

    def _save(self, output_dir: str | None = None, state_dict: dict[str, Any] | None = None) -> None:
        """As the Trainer, without the pickle of its arguments, which nothing reads."""
        super()._save(output_dir, state_dict=state_dict)
        Path(output_dir or self.args.output_dir, "training_args.bin").unlink(missing_ok=True)

    def create_model_card(self, *args: Any, **kwargs: Any) -> None:
        """Keep a card that is there: the training script writes one with more in it."""
        if not Path(self.args.output_dir, "README.md").is_file():
            super().create_model_card(*args, **kwargs)

    def restore(self, checkpoint: Path) -> None:
        """Take over what a checkpoint of the last step holds, where there is nothing left to train."""
        self._load_from_checkpoint(str(checkpoint))
        self.state = TrainerState.load_from_json(str(checkpoint / "trainer_state.json"))
        if self.args.load_best_model_at_end and self.state.best_model_checkpoint is not None:
            self._load_best_model()

    def average_over_accumulation(self) -> None:
        """Take the mean of accumulated batches; right where each row has one label, as not all heads take a count."""
        self.model_accepts_loss_kwargs = False

    def create_optimizer(self, model: nn.Module | None = None) -> torch.optim.Optimizer:
        """The optimizer that ``args`` name, with the parameters of the head in groups of their own."""
        rate = getattr(self.args, "head_learning_rate", None)
        made: torch.optim.Optimizer
        if rate is None:
            made = super().create_optimizer(*(() if model is None else (model,)))
            return made
        whole = self.model if model is None else model
        decayed = set(self.get_decay_parameter_names(whole))
        groups: dict[tuple[bool, bool], list[nn.Parameter]] = {}
        for name, parameter in whole.named_parameters():
            if parameter.requires_grad:
                groups.setdefault((is_head(name), name in decayed), []).append(parameter)
        optimizer_class, settings = self.get_optimizer_cls_and_kwargs(self.args, whole)
        if settings.keys() & {"params", "model", "optimizer_dict"}:
            raise ValueError(
                f"--head_learning_rate does not work with --optim {self.args.optim}, which makes its own groups"
            )
        made = optimizer_class(
            [
                {
                    "params": parameters,
                    "weight_decay": self.args.weight_decay if decay else 0.0,
                    "lr": rate if head else self.args.learning_rate,
                }
                for (head, decay), parameters in groups.items()
            ],
            **settings,
        )
        self.optimizer = made
        return made


class _Bar(ProgressCallback):
    """The progress bar on stderr, without the losses that it would print to standard output."""

    def on_log(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Nothing."""


class _LogToLogger(TrainerCallback):
    """Losses as lines of the log."""

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Log them on the main process."""
        if state.is_world_process_zero and logs:
            shown = {key: round(value, 6) if isinstance(value, float) else value for key, value in logs.items()}
            log.info("step %d of %d: %s", state.global_step, state.max_steps, shown)
