"""Training without checkpoints and printed lines, as the experiment needs it."""

from __future__ import annotations

import contextlib
import io
import tempfile
from collections.abc import Callable
from typing import Any

from gfm_rag.graph_data import without_import_notices


def train_quietly(
    train: Callable[[Any], object], *, batch_size: int, learning_rate: float, seed: int, **length: Any
) -> None:
    """Trains at a constant rate with AdamW on the CPU; nothing is written or printed.

    Args:
        train: a stage of training, given transformers' arguments.
        batch_size: rows a step.
        learning_rate: of AdamW.
        seed: of batches.
        length: `max_steps` or `num_train_epochs`.
    """
    with without_import_notices():
        from transformers import TrainingArguments

    silent: dict[str, Any] = {
        "save_strategy": "no", "logging_strategy": "no", "report_to": "none", "disable_tqdm": True, "use_cpu": True
    }  # fmt: skip
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        args = TrainingArguments(
            folder, per_device_train_batch_size=batch_size, learning_rate=learning_rate, seed=seed,
            lr_scheduler_type="constant", max_grad_norm=0.0, weight_decay=0.01, **silent, **length,
        )  # fmt: skip
        train(args)
