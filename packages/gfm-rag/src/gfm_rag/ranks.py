"""Ranks of known answers among all entities, and what is averaged over them: MRR and hits@k."""

from __future__ import annotations

from statistics import fmean

from torch import Tensor


def filtered_ranks(scores: Tensor, target: Tensor, candidates: Tensor) -> Tensor:
    """Rank of each row's target: 1 + the number of candidates that score at least as high; ties count against it.

    Args:
        scores: (batch, N).
        target: (batch,) entity ids.
        candidates: (batch, N) True where an entity competes; the target itself never does.

    Returns:
        (batch,) int64.

    Raises:
        ValueError: sizes that do not fit, a target that is no entity, or scores that are NaN.
    """
    _check_scores(scores, candidates, "candidates")
    if target.shape != scores.shape[:1] or not bool(((target >= 0) & (target < scores.shape[1])).all()):
        raise ValueError(f"target must hold {len(scores)} ids from 0 to {scores.shape[1] - 1}, got {target.tolist()}")
    own = scores.gather(1, target.unsqueeze(1))
    ahead = (scores >= own) & candidates.bool()
    return 1 + ahead.scatter(1, target.unsqueeze(1), False).sum(1)


def target_ranks(scores: Tensor, target_mask: Tensor, filtered: bool = True) -> list[Tensor]:
    """1-based ranks of each row's targets, in ascending entity id.

    Args:
        scores: (batch, N).
        target_mask: (batch, N), nonzero at the targets.
        filtered: leave out the other targets that are ranked above.

    Returns:
        A tensor for each row; of equal scores the lower id is ranked first.

    Raises:
        ValueError: sizes that do not fit, or scores that are NaN.
    """
    _check_scores(scores, target_mask, "target_mask")
    position = scores.argsort(dim=1, descending=True, stable=True).argsort(dim=1) + 1
    ranks = []
    for row, mask in zip(position, target_mask, strict=True):
        found = row[mask.nonzero().flatten()]
        if filtered:
            found = found - found.argsort().argsort()  # as many as are ranked above
        ranks.append(found)
    return ranks


def _check_scores(scores: Tensor, mask: Tensor, name: str) -> None:
    if scores.dim() != 2 or mask.shape != scores.shape:
        raise ValueError(
            f"scores and {name} must both be (batch, entities), got {tuple(scores.shape)} and {tuple(mask.shape)}"
        )
    if bool(scores.isnan().any()):  # it is neither above nor below anything, and would come first
        raise ValueError("scores hold NaN, which has no rank")


def _average(values: list[Tensor] | Tensor) -> float:
    if isinstance(values, Tensor):
        if values.numel() == 0:
            raise ValueError("there is no rank to average")
        return float(values.double().mean())
    means = [float(row.double().mean()) for row in values if row.numel()]
    if not means:
        raise ValueError("there is no rank to average")
    return fmean(means)


def mrr(ranks: Tensor | list[Tensor]) -> float:
    """Mean reciprocal rank.

    Args:
        ranks: a tensor is averaged; a list is averaged within each question, then over questions that have a target.

    Raises:
        ValueError: no rank at all.
    """
    return _average(1 / ranks.double() if isinstance(ranks, Tensor) else [1 / row.double() for row in ranks])


def hits_at_k(ranks: Tensor | list[Tensor], k: int) -> float:
    """Share of ranks of at most `k`, averaged as by `mrr`.

    Raises:
        ValueError: no rank at all.
    """
    return _average(ranks <= k if isinstance(ranks, Tensor) else [row <= k for row in ranks])
