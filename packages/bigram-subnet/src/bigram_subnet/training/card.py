"""The model card of a folder of masks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from bigram_subnet.training.arguments import lambda_folder
from bigram_subnet.training.log import TrainLog
from nips_common.artifacts import atomic_file

_CARD = """\
---
base_model: {model}
library_name: bigram-subnet
tags: [interpretability, subnetwork]
---

# Subnetworks of {model}

Masks over the frozen weights of `{model}`, found by continuous sparsification towards {target}
(Bigram Subnetworks, arXiv 2504.15471). Embeddings, norms, biases and the head are always kept.

| lambda | kept | share | r with the n-gram surprisal | steps | ended | loss curve |
|---|---|---|---|---|---|---|
{rows}

```python
from bigram_subnet import SubnetworkMask, apply_mask

mask = SubnetworkMask.load("{example}", model)
circuit = apply_mask(model, mask)
```
"""


def write_card(folder: Path, logs: Sequence[TrainLog], target: str) -> None:
    """Writes `README.md` into the folder, atomically.

    Args:
        folder: of the masks.
        logs: one a mask.
        target: in words.
    """
    rows = [
        f"| {log.l0_lambda:g} | {log.mask_size:,} | {log.proportion_kept:.3%} | "
        f"{'not measured' if log.ngram_corr_dropinf is None else format(log.ngram_corr_dropinf, '.3f')} | "
        f"{log.train_steps} | {log.stop_reason} | {'stable' if log.stable else 'unstable'} |"
        for log in logs
    ]
    text = _CARD.format(
        model=logs[0].model_dir,
        target=target,
        rows="\n".join(rows),
        example=f"{lambda_folder(logs[0].l0_lambda)}/mask.safetensors",
    )
    with atomic_file(folder / "README.md") as temporary:
        temporary.write_text(text, encoding="utf-8")
