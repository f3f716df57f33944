"""From entity scores to document scores (GFM-RAG, Eq. 14 to 16)."""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor

Ranker = Literal["simple", "idf", "topk", "idf_topk"]


def inverse_frequency(entity_to_document: Tensor) -> Tensor:
    """1 / (number of documents that contain the entity), 0 for none; also the default weights of start entities.

    Args:
        entity_to_document: (N, D) 0/1 matrix M, dense or sparse COO.

    Returns:
        (N,) float32 unless the matrix is of another floating type.
    """
    matrix = entity_to_document
    if not matrix.is_floating_point():
        matrix = matrix.float()
    frequency = matrix.sum(1).to_dense() if matrix.is_sparse else matrix.sum(1)
    return torch.where(frequency > 0, 1 / frequency, torch.zeros_like(frequency))


def check_ranker(ranker: str, top_k: int) -> None:
    """ValueError for an unknown ranker or a `top_k` below 1."""
    if ranker not in get_args(Ranker):
        raise ValueError(f"ranker must be one of {', '.join(get_args(Ranker))}, got {ranker!r}")
    if top_k < 1:
        raise ValueError(f"top_k must be at least 1 entity, got {top_k}")


def rank_documents(
    entity_logits: Tensor, entity_to_document: Tensor, ranker: Ranker = "idf_topk", top_k: int = 20
) -> Tensor:
    """Document scores F M, where F weighs the entities.

    "idf_topk" (the paper): F_e = 1/f_e for the `top_k` entities of highest logit, else 0; "topk": 1 for them; "idf":
    logit / f_e of all; "simple": the logits. f_e is the number of documents of e, and an entity of none counts 0 in the
    two idf rankers. Of tied logits the lower entity id is taken first.

    Args:
        entity_logits: (batch, N), not sigmoids.
        entity_to_document: (N, D) 0/1 matrix M, dense or sparse COO.
        ranker: one of the four.
        top_k: number of entities of the two top-k rankers, at most all.

    Returns:
        (batch, D), float32 at least.

    Raises:
        ValueError: an unknown ranker, a `top_k` below 1, sizes that do not fit, or logits that are NaN.
    """
    check_ranker(ranker, top_k)
    if entity_logits.dim() != 2 or entity_logits.shape[1] != entity_to_document.shape[0]:
        raise ValueError(
            f"entity_logits must be (batch, N) with N = {entity_to_document.shape[0]}, the rows of the matrix, "
            f"got {tuple(entity_logits.shape)}"
        )
    if bool(entity_logits.isnan().any()):
        raise ValueError("entity_logits hold NaN, which has no rank")
    # half precision counts no further than 2048 documents (bfloat16: 256)
    weights = entity_logits.to(torch.promote_types(entity_logits.dtype, torch.float32))
    matrix = entity_to_document.to(weights.dtype)
    if ranker in ("topk", "idf_topk"):
        best = weights.argsort(dim=1, descending=True, stable=True)[:, :top_k]
        weights = torch.zeros_like(weights).scatter_(1, best, 1.0)
    if ranker in ("idf", "idf_topk"):
        weights = weights * inverse_frequency(matrix)
    scores: Tensor = torch.sparse.mm(matrix.t(), weights.t()).t() if matrix.is_sparse else weights @ matrix
    return scores
