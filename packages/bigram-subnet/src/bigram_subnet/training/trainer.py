"""The Trainer of a mask: the loss, the temperature's schedule, the stop rule, and checkpoints of the scores alone."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any, get_args

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from transformers import PrinterCallback, Trainer, TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from bigram_subnet.config import SparsifyConfig
from bigram_subnet.loss import distribution_cross_entropy
from bigram_subnet.sparsifier import ContinuousSparsifier
from bigram_subnet.stopping import is_empty, should_stop
from bigram_subnet.targets import NgramTarget, SelfTarget
from bigram_subnet.training.log import StopReason
from bigram_subnet.training.rows import ShuffledRows, rows_digest
from nips_common.artifacts import check_tensors

Target = Callable[[Tensor], Tensor]
STATE_FILE = "sparsifier.safetensors"


class MaskTrainer(Trainer):
    """Trains the scores of a sparsifier; everything else is transformers' Trainer.

    Args:
        sparsifier: whose scores are trained.
        target: (batch, sequence) ids -> (batch, sequence, vocabulary) probabilities.
        config: hyperparameters.
        args: of the Trainer, from :func:`training_arguments`.
        data: (sequences, length) token ids or a data set of such rows.
        seed: of the order of the data.
    """

    def __init__(
        self,
        sparsifier: ContinuousSparsifier,
        target: Target,
        config: SparsifyConfig,
        args: TrainingArguments,
        data: Any,
        seed: int,
    ) -> None:
        scores = list(sparsifier.scores)
        optimizer = torch.optim.AdamW(
            scores, lr=config.learning_rate, weight_decay=config.weight_decay, fused=_can_be_fused(scores)
        )
        rows = ShuffledRows(data, seed, config.optimizer_steps * config.grad_accumulation * config.batch_size)
        super().__init__(
            model=sparsifier,
            args=args,
            train_dataset=rows,
            data_collator=_collate,
            optimizers=(optimizer, torch.optim.lr_scheduler.LambdaLR(optimizer, _constant)),
        )
        self.model_accepts_loss_kwargs = False  # so that the Trainer divides by the accumulated micro-batches
        self.sparsifier = sparsifier
        self.target = target
        self.sparsify = config
        self.losses: list[float] = []
        self.stop_reason: StopReason = "max_steps"
        self._xents: list[Tensor] = []
        self._data = data
        self.remove_callback(PrinterCallback)  # a library prints nothing
        self.add_callback(_Schedule(self))

    def _get_train_sampler(self, train_dataset: Any = None) -> torch.utils.data.Sampler[int]:
        return torch.utils.data.SequentialSampler(self.train_dataset)  # the rows come shuffled

    def compute_loss(
        self, model: nn.Module, inputs: dict[str, Any], return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        """Cross-entropy to the target plus lambda times the mean soft mask (paper, equation 1)."""
        ids = inputs["input_ids"]
        wanted = self.target(ids)  # first: it names ids that it does not know, and no graph is held meanwhile
        outputs = model(ids)
        xent = distribution_cross_entropy(outputs.logits, wanted)
        self._xents.append(xent.detach())
        loss = xent + self.sparsify.l0_lambda * self.sparsifier.mean_mask()
        return (loss, outputs) if return_outputs else loss

    def after_step(self) -> bool:
        """Records the step's loss, then stops (True) or raises the temperature (False)."""
        mean = self.accelerator.reduce(torch.stack(self._xents).mean(), reduction="mean")
        self._xents.clear()
        self.losses.append(float(mean))
        stop_fraction = self.sparsify.stop_fraction
        if stop_fraction > 0:
            counts = self.sparsifier.mask_counts()
            if should_stop(counts, stop_fraction):
                self.stop_reason = "decided"
            elif is_empty(counts):
                self.stop_reason = "empty subnetwork"
        if self.stop_reason != "max_steps":
            return True
        self.sparsifier.temperature *= self.sparsify.temperature_factor
        return False

    def run(self, checkpoint: Path | None = None) -> None:
        """Trains, from a checkpoint on if one is given.

        Raises:
            ValueError: a checkpoint that is damaged, of another model, or of a run with other settings, target or data.
        """
        if checkpoint is not None:
            self._load_from_checkpoint(str(checkpoint))
            if self.stop_reason != "max_steps":
                return  # it was saved at the very step that ended the run; the Trainer would make one more
        self.train(resume_from_checkpoint=None if checkpoint is None else str(checkpoint))

    def _save(self, output_dir: str | None = None, state_dict: Any = None) -> None:
        """Saves the scores, the temperature and the losses; the model is frozen and needs no copy."""
        folder = Path(output_dir if output_dir is not None else str(self.args.output_dir))
        folder.mkdir(parents=True, exist_ok=True)
        tensors = {name: score.detach().cpu().contiguous() for name, score in self.sparsifier.mask_scores.items()}
        tensors["temperature"] = torch.tensor([self.sparsifier.temperature], dtype=torch.float64)
        tensors["losses"] = torch.tensor(self.losses, dtype=torch.float64)
        tensors["stopped"] = torch.tensor([get_args(StopReason).index(self.stop_reason)])
        save_file(tensors, folder / STATE_FILE, {"settings": json.dumps(self.settings)})

    @cached_property
    def settings(self) -> dict[str, Any]:
        """What a resumed run must share with the interrupted one: all that its next steps depend on.

        The number of steps, the stop rule and the attempts may change: they do not change the steps.
        """
        fields = dataclasses.asdict(self.sparsify)
        free = ("max_steps", "stop_fraction", "attempts")
        known = isinstance(self.target, NgramTarget | SelfTarget)
        return {name: value for name, value in fields.items() if name not in free} | {
            "target": repr(self.target) if known else type(self.target).__qualname__,
            "data": rows_digest(self._data),
            "dtype": str(self.sparsifier.model.dtype),
        }

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: nn.Module | None = None) -> None:
        file = Path(resume_from_checkpoint) / STATE_FILE
        if not file.is_file():
            raise ValueError(f"{resume_from_checkpoint}: not a checkpoint of a mask, {STATE_FILE} is missing")
        try:
            with safe_open(file, "pt") as opened:
                before = json.loads((opened.metadata() or {}).get("settings", "{}"))
                tensors = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118 - it is no dict
        except (SafetensorError, ValueError) as error:
            raise ValueError(f"{file}: truncated or damaged ({error})") from None
        scores = self.sparsifier.mask_scores
        expected = {name: tuple(score.shape) for name, score in scores.items()}
        losses = tensors.get("losses", torch.empty(0))
        check_tensors(
            tensors, {**expected, "temperature": (1,), "losses": tuple(losses.shape), "stopped": (1,)}, str(file)
        )
        changed = [
            f"{name} was {before.get(name)!r}, is {value!r}"
            for name, value in self.settings.items()
            if before.get(name) != value
        ]
        if changed:
            raise ValueError(f"{file}: a run is resumed with the settings it was started with: {'; '.join(changed)}")
        with torch.no_grad():
            for name, score in scores.items():
                score.copy_(tensors[name])
        self.sparsifier.temperature = float(tensors["temperature"])
        self.losses = losses.tolist()
        self.stop_reason = get_args(StopReason)[int(tensors["stopped"])]


class _Schedule(TrainerCallback):
    """Calls the trainer between an optimiser step and the next forward."""

    def __init__(self, trainer: MaskTrainer) -> None:
        self._trainer = trainer

    def on_optimizer_step(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> TrainerControl:
        if self._trainer.after_step():
            control.should_training_stop = True
        return control


def _collate(rows: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    lengths = {len(row["input_ids"]) for row in rows}
    if len(lengths) != 1:
        raise ValueError(f"all sequences must have one length, got {sorted(lengths)}")
    return {"input_ids": torch.stack([row["input_ids"] for row in rows])}


def _constant(step: int) -> float:
    return 1.0


def _can_be_fused(scores: list[nn.Parameter]) -> bool:
    return all(score.device.type in ("cpu", "cuda") for score in scores)


def training_arguments(
    folder: str | Path, config: SparsifyConfig, device: torch.device, **more: Any
) -> TrainingArguments:
    """The Trainer's arguments for a mask: constant rate, no clipping, no reports, one process's share of a micro-batch.

    Args:
        folder: for checkpoints.
        config: hyperparameters; ``batch_size`` is that of all processes together.
        device: where the model is.
        more: further arguments, such as ``save_steps``.

    Raises:
        ValueError: a micro-batch that does not divide among the processes.
    """
    defaults: dict[str, Any] = {
        "save_strategy": "no",
        "logging_strategy": "no",
        "disable_tqdm": True,
        "report_to": "none",
        "max_grad_norm": 0.0,
        "remove_unused_columns": False,
        "dataloader_pin_memory": device.type == "cuda",
        "use_cpu": device.type == "cpu",
        "seed": config.seed,
        "max_steps": config.optimizer_steps,
        "gradient_accumulation_steps": config.grad_accumulation,
        "ddp_find_unused_parameters": False,
    }
    args = TrainingArguments(str(folder), **(defaults | more))
    if config.batch_size % args.world_size:
        raise ValueError(f"batch_size={config.batch_size} must be a multiple of the {args.world_size} processes")
    args.per_device_train_batch_size = config.batch_size // args.world_size
    args._n_gpu = min(args.n_gpu, 1)  # several GPUs work under torchrun, not as nn.DataParallel
    return args
