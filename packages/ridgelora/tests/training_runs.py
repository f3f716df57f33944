"""A few steps of a Trainer on a tiny Llama; torchrun starts `training_runs.py OUT BATCH_SIZE`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch
from peft import PeftModel, get_peft_model
from transformers import TrainingArguments

from nips_common.testing.tiny_models import LLAMA, VOCABULARY
from ridgelora import RidgeLoraConfig, RidgeSquashingTrainer

STEPS = 4


def samples(count: int = 32) -> list[dict[str, torch.Tensor]]:
    tokens = torch.randint(2, VOCABULARY, (count, 9), generator=torch.Generator().manual_seed(7))
    return [{"input_ids": row, "labels": row} for row in tokens]


def model(**options: Any) -> PeftModel:
    torch.manual_seed(3)
    config = RidgeLoraConfig(r=4, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM", **options)
    return get_peft_model(LLAMA.build(), config)


def trainer(
    out: Path,
    batch_size: int = 8,
    adapted: PeftModel | None = None,
    squash: dict[str, Any] | None = None,
    **options: Any,
) -> RidgeSquashingTrainer:
    settings = {"max_steps": STEPS, "learning_rate": 0.02, "lr_scheduler_type": "constant", "report_to": "none"}
    settings |= {"use_cpu": True, "disable_tqdm": True, "logging_steps": 1, "seed": 5, "save_strategy": "no"}
    arguments = TrainingArguments(str(out), per_device_train_batch_size=batch_size, **(settings | options))
    rows = samples()
    adapted = model() if adapted is None else adapted
    return RidgeSquashingTrainer(adapted, arguments, train_dataset=rows, eval_dataset=rows[:8], **(squash or {}))


if __name__ == "__main__":
    folder, size = Path(sys.argv[1]), int(sys.argv[2])
    run = trainer(folder / "run", size, model(init_weights="gaussian"), {"beta_rs": -0.01})
    run.train()
    print(f"{run.args.world_size} processes, {run.args.parallel_mode.value}")
    if run.is_world_process_zero():
        run.model.save_pretrained(folder / "adapter")
