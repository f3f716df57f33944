"""How probable observed points were one patch before they came: what anomaly scores are made of (not in the paper)."""

from __future__ import annotations

import torch
from torch import Tensor

from toto_ts.context import Context
from toto_ts.model import TotoBackbone
from toto_ts.output import ComposedProjection, Projections


def next_patch_log_prob(
    model: TotoBackbone, context: Context, num_exogenous: int, projection: ComposedProjection | None = None
) -> Tensor:
    """Log-density of each point in data units, log p((y - loc) / scale) - log(scale), predicted one patch earlier.

    Args:
        model: the network.
        context: series of whole patches.
        num_exogenous: how many of the last variates are exogenous.
        projection: `unembed` and heads in one map, which takes far less memory; None calls the modules.

    Returns:
        `(batch, variates, time)`; NaN in the first patch, for masked points and for exogenous variates.
    """
    patch = model.patch_size
    result = torch.full_like(context.series, torch.nan)
    if context.series.shape[-1] == patch:
        return result
    scaled, loc, scale = model.scale(context.series, context.mask, None, None)
    ids = model.patch_embed.patch_ids(context.ids)
    hidden = model.encode(scaled.masked_fill(context.centred, 0), ids, num_exogenous=num_exogenous)
    output, earlier = model.output_distribution, hidden[:, :, :-1]
    if projection is not None:
        projections = Projections.of(projection(earlier), output.num_components)
    else:
        projections = output.project(model.unembed(earlier).unflatten(-1, (patch, -1)))
    distribution = output.distribution(projections.map(lambda field: field.flatten(2, 3)).parameters())
    loc, scale = (field.expand_as(context.series)[..., :-patch] for field in (loc, scale))
    normalised = ((context.series[..., patch:] - loc) / scale).to(projections.loc.dtype)
    density = distribution.log_prob(normalised).to(result.dtype) - scale.log()
    valid = context.mask[..., patch:].clone()
    valid[:, valid.shape[1] - num_exogenous :] = False
    result[..., patch:] = torch.where(valid, density, torch.nan)
    return result
