"""Batches of knowledge-graph completion whose negatives are all entities that make a triple false.

The paper samples K of them (`sample_negatives`). On a small graph all of them cost little more: every entity's state is
computed anyway [ours].
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from gfm_rag.kg_completion import strict_candidates

if TYPE_CHECKING:
    from torch_geometric.data import Data


class AllNegatives(NamedTuple):
    """A batch for `QueryGNN`, and what of it counts.

    Args:
        batch: (B, N, 3) triples; entity n stands in place n of a row, as the tail or as the head.
        targets: (B, N), 1 where the row's own triple stands.
        counted: (B, N) bool, that one and the false ones. The other known triples stand in the batch so that their
            edges leave the graph with the rest, as they do when all candidates are ranked; they are no negatives.
    """

    batch: Tensor
    targets: Tensor
    counted: Tensor


def all_negatives(graph: Data, triples: Tensor) -> AllNegatives:
    """Puts every entity in place of the tails of the first floor(B / 2) triples and of the heads of the others.

    Args:
        graph: all known edges, with inverse ones.
        triples: (B, 3) head, tail, relation.

    Returns:
        The batch; a row for which every entity is a known answer counts its own triple alone.
    """
    tails, heads = strict_candidates(graph, triples)
    entities = torch.arange(tails.shape[1], device=triples.device)
    half = len(triples) // 2
    batch = triples.unsqueeze(1).repeat(1, len(entities), 1)
    batch[:half, :, 1] = entities
    batch[half:, :, 0] = entities
    own = torch.cat([triples[:half, 1], triples[half:, 0]]).unsqueeze(1) == entities
    return AllNegatives(batch, own.float(), own | torch.cat([tails[:half], heads[half:]]))
