"""Zero-shot class weights from text: each class is the mean direction of its prompts.

W_k = normalise(mean_t normalise(enc(prompt_t(class_k)))), the ensemble that the CLIP authors' ImageNet evaluation uses
and that DOTA starts from (step 1 of the method: z = s * x W).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

import torch
from torch import Tensor
from torch.nn.functional import normalize

from dota_clip.prompts import Template, check_classnames, check_templates, fill

_MANY_BATCHES = 8  # fewer are over before a bar could be read


class TextEncoder(Protocol):
    """Anything that embeds text: the encoders of this package, or your own."""

    def encode_text(self, texts: list[str]) -> Tensor:
        """Embed n texts as `(n, D)`, normalised or not."""


@torch.no_grad()
def zero_shot_weights(
    encoder: TextEncoder,
    classnames: Sequence[str],
    templates: Sequence[Template],
    *,
    batch_size: int = 256,
    allow_duplicates: bool = False,
) -> Tensor:
    """Class weights of a zero-shot classifier.

    Args:
        encoder: has `encode_text(list of n strings) -> (n, D)`.
        classnames: K class names, in label order, as they should be read (see `prepare_classnames`).
        templates: prompts with one `{}` each, or functions of the class name such as open_clip's.
        batch_size: prompts that are encoded at once.
        allow_duplicates: accept two classes of one name, which then share their weights (ImageNet has two such pairs).

    Returns:
        Weights `(D, K)` with unit-norm columns, on the encoder's device, float32 (float64 if the encoder gives that).

    Raises:
        ValueError: no class, duplicate or empty names, no template, a template without exactly one `{}`, a batch size
            below 1, or features that are not finite (then float32 helps where float16 overflowed).
    """
    names: Sequence[str] = classnames if isinstance(classnames, str) else tuple(classnames)
    check_classnames(names, allow_duplicates=allow_duplicates)
    templates = check_templates(templates)
    if batch_size < 1:
        raise ValueError(f"batch_size must be at least 1, got {batch_size}")
    # Whole classes go together, so that the mean over templates is a plain reshape and only (classes, D) is kept.
    classes_at_once = max(1, batch_size // len(templates))
    chunks = [names[i : i + classes_at_once] for i in range(0, len(names), classes_at_once)]
    columns = []
    for chunk in _with_progress(chunks):
        prompts = [fill(template, name) for name in chunk for template in templates]
        features = torch.cat(
            [_encoded(encoder, prompts[i : i + batch_size]) for i in range(0, len(prompts), batch_size)]
        )
        columns.append(normalize(features.unflatten(0, (len(chunk), len(templates))).mean(dim=1), dim=-1))
    return torch.cat(columns).T.contiguous()


def _encoded(encoder: TextEncoder, prompts: list[str]) -> Tensor:
    features = encoder.encode_text(prompts)
    if not isinstance(features, Tensor) or features.shape[:1] != (len(prompts),) or features.ndim != 2:
        found = tuple(features.shape) if isinstance(features, Tensor) else type(features).__name__
        raise ValueError(f"encode_text must give a tensor ({len(prompts)}, D) for {len(prompts)} texts, got {found}")
    if features.dtype != torch.float64:
        features = features.float()
    if not bool(torch.isfinite(features).all()):
        broken = int((~torch.isfinite(features).all(dim=-1)).nonzero()[0])
        raise ValueError(f"the text encoder gave non-finite features for {prompts[broken]!r}; try dtype float32")
    return normalize(features, dim=-1)


def _with_progress(chunks: list[Sequence[str]]) -> Iterable[Sequence[str]]:
    if len(chunks) < _MANY_BATCHES:
        return chunks
    from nips_common.cli import progress

    return progress(chunks, "class prompts", total=len(chunks))
