"""transformers' Trainer for Toto: the objective, the schedule, and validation on the last steps."""

from __future__ import annotations

import logging
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset, Sampler, SequentialSampler
from transformers import (
    PrinterCallback,
    ProgressCallback,
    Trainer,
    TrainerControl,
    TrainerState,
    TrainingArguments,
    set_seed,
)

from toto_ts.finetune import FinetuneConfig, FinetuneResult, TrainingData, prepare_data
from toto_ts.losses import CompositeLoss, next_patch_loss_terms
from toto_ts.missing import Fill, fill_missing
from toto_ts.model import Toto, TotoOutput
from toto_ts.schedule import WarmupStableDecay
from toto_ts.windows import SeriesInput, TrainingWindows, collate

log = logging.getLogger(__name__)

# What the recipe itself says; a second value would contradict the windows, the schedule or the report.
OWN_WORDS = {
    "output_dir": "output_dir",
    "max_steps": "max_steps",
    "num_train_epochs": "max_steps",
    "per_device_train_batch_size": "train_batch_size",
    "gradient_accumulation_steps": "gradient_accumulation_steps",
    "learning_rate": "learning_rate",
    "seed": "seed",
}


class NextPatch(nn.Module):
    """The model as a trainer wants it: a batch in, the sum of its losses out.

    Args:
        toto: the model.
        loss: element-wise.
        fill: of missing points.
    """

    def __init__(self, toto: Toto, loss: CompositeLoss, fill: Fill) -> None:
        super().__init__()
        self.toto = toto
        self.loss = loss
        self.fill = fill

    def forward(
        self, series: Tensor, padding_mask: Tensor, id_mask: Tensor, num_exogenous: int, labels: Tensor
    ) -> Tensor:
        """The summed loss of a batch that `collate` made; `labels` say which targets count."""
        patch = self.toto.config.patch_size
        output = self._predict(series[..., :-patch], padding_mask[..., :-patch], id_mask[..., :-patch], num_exogenous)
        total, _ = next_patch_loss_terms(output, series[..., patch:], labels != -100, loss=self.loss)
        return total

    def _predict(self, series: Tensor, mask: Tensor, ids: Tensor, num_exogenous: int) -> TotoOutput:
        filled = fill_missing(series, mask, self.fill)
        loc = self.toto.model.scaler(filled.series, mask).loc
        shown = torch.where(filled.centred, loc, filled.series)  # scales to 0
        output: TotoOutput = self.toto(shown, mask, ids, num_exogenous=num_exogenous)
        return output


class TotoTrainer(Trainer):
    """The Trainer with the loss of next patches, divided by the number of targets of a step over all processes."""

    optimizer: torch.optim.Optimizer | None
    lr_scheduler: Any

    def __init__(self, recipe: FinetuneConfig, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.recipe = recipe
        self.model_accepts_loss_kwargs = True  # the step's number of targets is then counted from `labels`
        self.remove_callback(PrinterCallback)
        if self.pop_callback(ProgressCallback) is not None:
            self.add_callback(_Bar())

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Losses as lines of the log too, on the main process."""
        super().log(logs, start_time)
        if self.is_world_process_zero():
            shown = ", ".join(f"{key} {value:.6g}" for key, value in logs.items() if isinstance(value, (int, float)))
            log.info("step %d of %d: %s", self.state.global_step, self.state.max_steps, shown)

    def _get_train_sampler(self, train_dataset: Dataset[Any] | None = None) -> Sampler[int]:
        """In order: the windows are drawn at random already."""
        return SequentialSampler(cast(TrainingWindows, self.train_dataset if train_dataset is None else train_dataset))

    def compute_loss(
        self,
        model: nn.Module,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: Tensor | int | None = None,
    ) -> Any:
        """Summed loss / targets of the step; DDP averages over processes, which the factor undoes."""
        total = model(**inputs)
        counted = num_items_in_batch if num_items_in_batch is not None else (inputs["labels"] != -100).sum()
        loss = total / (counted + torch.finfo(total.dtype).eps)
        if self.args.average_tokens_across_devices and num_items_in_batch is not None:
            loss = loss * self.accelerator.num_processes
        return (loss, {"loss": loss}) if return_outputs else loss

    def prediction_step(
        self,
        model: nn.Module,
        inputs: dict[str, Any],
        prediction_loss_only: bool,
        ignore_keys: list[str] | None = None,
    ) -> tuple[Tensor, None, None]:
        """The mean over windows of the mean loss of their last valid steps."""
        inputs = self._prepare_inputs(inputs)
        losses = []
        with torch.no_grad(), self.compute_loss_context_manager():
            for i in range(len(inputs["series"])):
                row = {k: v[i : i + 1] if isinstance(v, Tensor) else v for k, v in inputs.items()}
                row["labels"] = last_valid(row["labels"], self.recipe.val_prediction_len)
                counted = (row["labels"] != -100).sum()
                losses.append(model(**row) / (counted + torch.finfo(torch.float32).eps))
        return torch.stack(losses).mean(), None, None

    def create_optimizer(self, model: nn.Module | None = None) -> torch.optim.Optimizer:
        """AdamW on all parameters alike, as the recipe says."""
        if self.optimizer is None:
            recipe, whole = self.recipe, self.model if model is None else model
            self.optimizer = torch.optim.AdamW(
                whole.parameters(),
                lr=recipe.learning_rate,
                betas=(recipe.adam_beta1, recipe.adam_beta2),
                eps=recipe.adam_epsilon,
                weight_decay=recipe.weight_decay,
            )
        return self.optimizer

    def create_scheduler(self, num_training_steps: int, optimizer: torch.optim.Optimizer | None = None) -> Any:
        """Warm-up, stable, decay."""
        if self.lr_scheduler is None:
            recipe, chosen = self.recipe, self.optimizer if optimizer is None else optimizer
            assert chosen is not None
            self.lr_scheduler = WarmupStableDecay(
                chosen, recipe.warmup_steps, recipe.stable_steps, recipe.decay_steps, min_lr=recipe.min_lr
            )
        return self.lr_scheduler


def last_valid(labels: Tensor, count: int) -> Tensor:
    """Labels of which only the last `count` valid ones of each variate still count."""
    valid = labels != -100
    after = valid.flip(-1).cumsum(-1).flip(-1)
    return torch.where(valid & (after <= count), labels, -100)


class _Bar(ProgressCallback):
    """The progress bar on stderr, without the losses that it would print to standard output."""

    def on_log(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Nothing."""


def training_arguments(recipe: FinetuneConfig, folder: Path) -> TrainingArguments:
    """The recipe in the Trainer's words.

    Raises:
        ValueError: a name in `trainer_options` that is unknown, or that the recipe has its own word for.
    """
    further = cast(dict[str, Any], recipe.trainer_options or {})
    if own := sorted(further.keys() & OWN_WORDS.keys()):
        told = ", ".join(f"{OWN_WORDS[name]} instead of {name}" for name in own)
        raise ValueError(f"trainer_options: give {told}")
    options: dict[str, Any] = {
        "output_dir": str(folder),
        "max_steps": recipe.max_steps,
        "per_device_train_batch_size": recipe.train_batch_size,
        "per_device_eval_batch_size": recipe.val_batch_size,
        "gradient_accumulation_steps": recipe.gradient_accumulation_steps,
        "learning_rate": recipe.learning_rate,
        "max_grad_norm": recipe.max_grad_norm,
        "seed": recipe.seed,
        "eval_strategy": "steps",
        "eval_steps": min(recipe.val_interval, recipe.max_steps),
        "save_strategy": "steps",
        "save_steps": min(recipe.val_interval, recipe.max_steps),
        "save_total_limit": 2,  # the best and the last
        "load_best_model_at_end": True,
        "metric_for_best_model": "eval_loss",
        "greater_is_better": False,
        "logging_steps": recipe.logging_steps,
        "bf16": recipe.precision == "bf16",
        "fp16": recipe.precision == "fp16",
        "use_cpu": recipe.device == "cpu",
        "dataloader_num_workers": recipe.dataloader_workers,
        "remove_unused_columns": False,
        "label_names": ["labels"],
        "report_to": "none",
        "disable_tqdm": not sys.stderr.isatty(),
    }
    try:
        return TrainingArguments(**{**options, **further})
    except TypeError as error:
        raise ValueError(f"trainer_options: {error}") from error


def run_training(
    model: Toto, dataset: Sequence[SeriesInput], recipe: FinetuneConfig, *, checkpoint: Path | None = None
) -> FinetuneResult:
    """See `toto_ts.finetune`; with a checkpoint of the same run it goes on from there."""
    with tempfile.TemporaryDirectory(prefix="toto-ts-") as temporary:
        folder = Path(recipe.output_dir or temporary)
        args = training_arguments(recipe, folder)
        data = prepare_data(dataset, model.config.patch_size, recipe, args.world_size)
        _say_split(data)
        set_seed(recipe.seed)
        if data.num_exogenous:
            model.enable_variate_labels()
        trainer = TotoTrainer(
            recipe,
            model=NextPatch(model, recipe.loss, recipe.fill),
            args=args,
            train_dataset=data.train,
            eval_dataset=data.validation,
            data_collator=collate,
        )
        trainer.train(resume_from_checkpoint=None if checkpoint is None else str(checkpoint))
        best = trainer.state.best_metric
        if best is None:  # no validation fell into the run
            best = trainer.evaluate()["eval_loss"]
        model.eval()
        if recipe.output_dir is not None and args.should_save:
            model.save_pretrained(folder)
        args.distributed_state.wait_for_everyone()
        saved = None if recipe.output_dir is None else folder
        return FinetuneResult(model, float(best), list(trainer.state.log_history), saved)


def _say_split(data: TrainingData) -> None:
    split = data.split
    log.info(
        "%d series (%d too short), context %d steps, %d windows",
        len(split.series),
        split.dropped,
        split.context_length,
        len(data.train),
    )
