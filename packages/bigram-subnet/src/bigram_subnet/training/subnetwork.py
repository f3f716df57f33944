"""Training one subnetwork, with another order of the data when the loss curve is unstable (paper A.2)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from torch import Tensor

from bigram_subnet.ablation import check_ids
from bigram_subnet.config import SparsifyConfig
from bigram_subnet.mask import SubnetworkMask
from bigram_subnet.sparsifier import ContinuousSparsifier
from bigram_subnet.stopping import loss_is_stable
from bigram_subnet.targets import NgramTarget
from bigram_subnet.training.log import TrainLog
from bigram_subnet.training.rows import ShuffledRows, check_rows
from bigram_subnet.training.trainer import MaskTrainer, Target, training_arguments
from nips_common.artifacts import read_json

if TYPE_CHECKING:
    from transformers import PreTrainedModel

log = logging.getLogger(__name__)
ATTEMPT = "attempt-"


def train_subnetwork(
    model: PreTrainedModel, target: Target, data: Any, config: SparsifyConfig | None = None
) -> tuple[SubnetworkMask, TrainLog]:
    """Finds the subnetwork whose predictions come closest to a target's [paper 3, A.2].

    Args:
        model: a causal language model, on the device where it is to be trained. It is frozen and put into eval mode;
            its weights stay as they are.
        target: (batch, sequence) ids -> (batch, sequence, V) probabilities, such as `NgramTarget`, `SelfTarget`.
        data: LongTensor (sequences, length) or a data set of such rows; read in an order that the seed fixes, and over
            again if it is shorter than ``max_steps * batch_size``.
        config: hyperparameters; default: the paper's.

    Returns:
        The hard mask and the log of the last attempt; ``log.stable`` says whether its loss curve can be trusted.

    Raises:
        ValueError: a model that cannot be masked, data that do not fit, or a target of another vocabulary.

    Example:
        >>> import torch
        >>> from transformers import GPT2Config, GPT2LMHeadModel
        >>> from bigram_subnet import BigramCounts, NgramTarget, SparsifyConfig, train_subnetwork
        >>> model = GPT2LMHeadModel(GPT2Config(vocab_size=5, n_positions=8, n_embd=8, n_layer=1, n_head=2))
        >>> data = torch.arange(40).view(5, 8) % 5
        >>> target = NgramTarget(BigramCounts.from_sequences(data, vocab_size=5))
        >>> mask, log = train_subnetwork(model, target, data, SparsifyConfig(batch_size=4, max_steps=3))
        >>> mask.total, log.train_steps
        (768, 3)
    """
    with TemporaryDirectory() as folder:
        return run_attempts(model, target, data, config or SparsifyConfig(), Path(folder))


def run_attempts(
    model: PreTrainedModel,
    target: Target,
    data: Any,
    config: SparsifyConfig,
    folder: Path,
    resume: bool = False,
    watch: Callable[[MaskTrainer], None] | None = None,
    **arguments: Any,
) -> tuple[SubnetworkMask, TrainLog]:
    """:func:`train_subnetwork` with a folder for checkpoints.

    Args:
        model: as there.
        target: as there.
        data: as there.
        config: as there.
        folder: of checkpoints, ``attempt-K/checkpoint-STEP``.
        resume: go on from the newest checkpoint in the folder, if there is one.
        watch: is given each attempt's trainer before it starts, to add callbacks.
        arguments: for transformers' TrainingArguments, such as ``save_strategy="steps"``.
    """
    check_rows(data, config.batch_size)
    # of a data set the first row, whose length all must have
    check_ids(model, data if isinstance(data, Tensor) else ShuffledRows(data, 0, 1)[0]["input_ids"][None])
    check_target(model, target, data)
    first, checkpoint = newest_checkpoint(folder) if resume else (0, None)
    for attempt in range(first, config.attempts):
        place = training_arguments(folder / f"{ATTEMPT}{attempt}", config, model.device, **arguments)
        trainer = MaskTrainer(ContinuousSparsifier(model), target, config, place, data, config.seed + attempt)
        if watch is not None:
            watch(trainer)
        trainer.run(checkpoint)
        checkpoint = None
        stable = loss_is_stable(trainer.losses)
        if stable:
            break
        left = config.attempts - attempt - 1
        log.warning("attempt %d: the loss curve is unstable; %d attempts left", attempt + 1, left)
    mask = trainer.sparsifier.hard_mask()
    if not mask.kept:
        log.warning("the subnetwork is empty: lambda %g leaves no weight", config.l0_lambda)
    return mask, _log(trainer, mask, attempt, stable)


def check_target(model: PreTrainedModel, target: Any, data: Any = None) -> None:
    """ValueError if a target's vocabulary is larger than the model's, or its counts do not know an id of a tensor."""
    wanted, head = getattr(target, "vocab_size", None), model.get_output_embeddings()
    if wanted is not None and head is not None and wanted > head.weight.shape[0]:
        raise ValueError(
            f"the target has a vocabulary of {wanted}, the model's head one of {head.weight.shape[0]}: "
            "they belong to different tokenizers"
        )
    if isinstance(target, NgramTarget) and isinstance(data, Tensor):
        target.counts.check_ids(data)


def newest_checkpoint(folder: Path) -> tuple[int, Path | None]:
    """The last attempt in a folder and its newest whole checkpoint; (0, None) if there is none."""
    attempts = {int(path.name.removeprefix(ATTEMPT)): path for path in folder.glob(f"{ATTEMPT}[0-9]*")}
    for attempt in sorted(attempts, reverse=True):
        found = [path for path in attempts[attempt].glob("checkpoint-[0-9]*") if _is_whole(path)]
        if found:
            return attempt, max(found, key=lambda path: int(path.name.removeprefix("checkpoint-")))
    return max(attempts, default=0), None


def _is_whole(checkpoint: Path) -> bool:
    """Whether a checkpoint was written to its end: the Trainer's state is the last of its files."""
    try:
        read_json(checkpoint / "trainer_state.json")
    except (FileNotFoundError, ValueError):
        return False
    return True


def _log(trainer: MaskTrainer, mask: SubnetworkMask, attempt: int, stable: bool) -> TrainLog:
    config = trainer.sparsify
    return TrainLog(
        outpath=None,
        model_dir=mask.base_model,
        checkpoint=None,
        train_inputs=None,
        train_steps=len(trainer.losses) * config.grad_accumulation,
        max_steps=config.max_steps,
        grad_acc_steps=config.grad_accumulation,
        learning_rate=config.learning_rate,
        batch_size=config.batch_size,
        temp_increase=config.temperature_factor,
        l0_lambda=config.l0_lambda,
        mask_size=mask.kept,
        target_layers=[name.removesuffix(".weight") for name in mask],
        xent_loss_per_step=list(trainer.losses),
        proportion_kept=mask.proportion_kept,
        stop_reason=trainer.stop_reason,
        stable=stable,
        attempt=attempt + 1,
        seed=config.seed + attempt,
        temperature=trainer.sparsifier.temperature,
    )
