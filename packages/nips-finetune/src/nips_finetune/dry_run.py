"""What `--dry_run` says, without weights: parameters, steps and an estimate of the memory."""

from __future__ import annotations

from typing import Any

import torch

from nips_finetune.count import count_parameters
from nips_finetune.job import Job, adapt
from nips_finetune.memory import estimate_memory
from nips_finetune.pretrained import model_on_meta


def plan(job: Job) -> dict[str, Any]:
    """What `--dry-run` says: parameters, steps and a memory estimate, without loading weights."""
    half = torch.bfloat16 if job.training.bf16 else torch.float16 if job.training.fp16 else None
    base_dtype = getattr(torch, job.arguments.dtype)
    adapted = adapt(job, model_on_meta(job.task.auto_class, job.config, half or base_dtype))
    counts = count_parameters(adapted)
    adapted = adapted.to(half or base_dtype)  # there is no autocast on meta
    memory = estimate_memory(adapted, _meta_batch(job, half or base_dtype), job.training.gradient_checkpointing)
    if half is not None and base_dtype != half:  # autocast: weights stay in float32
        extra = memory["weights_bytes"]
        memory |= {"weights_bytes": 2 * extra, "total_gib": round(memory["total_gib"] + extra / 2**30, 3)}
    del counts["modules"]
    return {"parameters": counts, **job.steps(), "memory": memory}


def _meta_batch(job: Job, dtype: torch.dtype) -> dict[str, torch.Tensor]:
    """A batch of the largest size: real images, or texts of max_length."""
    size = job.training.per_device_train_batch_size
    if not job.task.reads_text:
        batch = job.collator([job.train_rows[0]] * size)
        return {
            name: value.to("meta", dtype if value.is_floating_point() else value.dtype) for name, value in batch.items()
        }
    ids = torch.zeros(size, job.max_length, dtype=torch.long, device="meta")
    labels = ids[:, 0] if job.task.classifies else ids
    return {"input_ids": ids, "labels": labels.to(dtype) if job.arguments.regression else labels}
