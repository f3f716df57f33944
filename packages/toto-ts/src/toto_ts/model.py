"""The Toto model: scaler, patch embedding, transformer, unembedding and output distribution."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.distributions import Distribution
from torch.nn.functional import normalize

from toto_ts.checkpoint import load_checkpoint, save_checkpoint
from toto_ts.config import TotoConfig
from toto_ts.kv_cache import KVCache
from toto_ts.output import MixtureOfStudentTsOutput, OutputDistribution, StudentTOutput
from toto_ts.scalers import SCALER_CLASSES, CausalPatchStdMeanScaler, Scaled, Scaler
from toto_ts.transformer import Transformer

log = logging.getLogger(__name__)


class TotoOutput(NamedTuple):
    """What the model says of each time step one patch later.

    Attributes:
        distribution: `MixtureSameFamily(Categorical, StudentT)` or `StudentT` of batch shape `(batch, variates, time)`
            in normalised space; position t is about time t + P.
        loc: `(batch, variates, time)`, or `(batch, variates, 1)` for the non-causal scaler, in data units.
        scale: like loc; the mean in data units is `distribution.mean * scale + loc`.
    """

    distribution: Distribution
    loc: Tensor
    scale: Tensor


class PatchEmbedding(nn.Module):
    """Non-overlapping patches of P steps, each projected to D; all variates share the projection.

    Args:
        patch_size: P.
        embed_dim: D.
    """

    def __init__(self, patch_size: int, embed_dim: int) -> None:
        super().__init__()
        self.patch_size = patch_size
        self.projection = nn.Linear(patch_size, embed_dim)

    def forward(self, scaled: Tensor) -> Tensor:
        """`(batch, variates, time)` -> `(batch, variates, patches, D)`."""
        return cast(Tensor, self.projection(scaled.unflatten(-1, (-1, self.patch_size))))

    def patch_ids(self, id_mask: Tensor) -> Tensor:
        """The group of each patch, `(batch, variates, patches)`.

        Raises:
            ValueError: a patch spans two groups.
        """
        patches = id_mask.unflatten(-1, (-1, self.patch_size))
        first, last = patches.amin(-1), patches.amax(-1)
        if not torch.equal(first, last):
            batch, variate, patch = (int(i) for i in (first != last).nonzero()[0])
            raise ValueError(
                f"a patch may not span two groups: id_mask changes within patch {patch} of variate {variate}, "
                f"batch entry {batch}"
            )
        return cast(Tensor, first)


def make_scaler(config: TotoConfig) -> Scaler:
    """The config's scaler; only the patch scaler takes arguments from it, as in the official model."""
    if config.scaler_name == "CausalPatchStdMeanScaler":
        return CausalPatchStdMeanScaler(
            config.patch_size,
            stabilize_with_global=config.stabilize_with_global,
            scale_factor_exponent=config.scale_factor_exponent,
        )
    return SCALER_CLASSES[config.scaler_name]()


def make_output(config: TotoConfig) -> OutputDistribution:
    """The config's output distribution."""
    if config.output_name == "StudentTOutput":
        return StudentTOutput(config.embed_dim)
    return MixtureOfStudentTsOutput(config.embed_dim, config.num_components)


class TotoBackbone(nn.Module):
    """The network without its settings and files; parameters have the published names below ``model.``.

    Args:
        config: architecture.
    """

    target_variate_label: nn.Parameter | None
    exogenous_variate_label: nn.Parameter | None

    def __init__(self, config: TotoConfig) -> None:
        super().__init__()
        self.patch_size = config.patch_size
        self.scaler = make_scaler(config)
        self.patch_embed = PatchEmbedding(config.patch_size, config.embed_dim)
        self.transformer = Transformer(config)
        self.unembed = nn.Linear(config.embed_dim, config.patch_size * config.embed_dim)
        self.output_distribution = make_output(config)
        self.register_parameter("target_variate_label", None)
        self.register_parameter("exogenous_variate_label", None)

    def encode(
        self,
        scaled: Tensor,
        ids: Tensor,
        cache: KVCache | None = None,
        *,
        num_exogenous: int = 0,
        keep_last: bool = False,
    ) -> Tensor:
        """Features of patches.

        Args:
            scaled: `(batch, variates, time)` normalised values.
            ids: `(batch, variates, patches)` group of each patch.
            cache: see :class:`KVCache`.
            num_exogenous: how many of the last variates are exogenous; matters with variate labels only.
            keep_last: only the last patch, computed with what it needs.

        Returns:
            `(batch, variates, patches or 1, D)`.
        """
        x = self.patch_embed(scaled.to(self.patch_embed.projection.weight.dtype))
        labelled = self.target_variate_label is not None and (cache is None or cache.length == 0)
        if labelled:
            x = torch.cat([self._labels(x, num_exogenous), x], 2)
            ids = torch.cat([ids[:, :, :1], ids], 2)
        x = cast(Tensor, self.transformer(x, ids, cache, keep_last=keep_last))
        return x[:, :, 1:] if labelled and not keep_last else x

    def _labels(self, x: Tensor, num_exogenous: int) -> Tensor:
        """The unit-norm label of each variate as a token of its own, `(batch, variates, 1, D)`."""
        assert self.target_variate_label is not None
        assert self.exogenous_variate_label is not None
        batch, variates, _, width = x.shape
        labels = torch.stack([self.target_variate_label, self.exogenous_variate_label])
        kinds = (torch.arange(variates, device=x.device) >= variates - num_exogenous).long()
        unit = normalize(labels, dim=-1)
        return unit[kinds].view(1, variates, 1, width).expand(batch, -1, -1, -1)

    def scale(self, series: Tensor, padding_mask: Tensor, prefix_length: int | None, cache: KVCache | None) -> Scaled:
        """Normalise new steps, going on from the cache's statistics if there are any."""
        if cache is not None and cache.scaler_state is not None:
            result, cache.scaler_state = self.scaler.extend(cache.scaler_state, series, padding_mask)
            return result
        result, state = self.scaler.start(series, padding_mask, prefix_length=prefix_length)
        if cache is not None:
            cache.scaler_state = state
        return result

    def forward(
        self,
        series: Tensor,
        padding_mask: Tensor,
        id_mask: Tensor,
        kv_cache: KVCache | None = None,
        prefix_length: int | None = None,
        num_exogenous: int = 0,
    ) -> TotoOutput:
        """As :meth:`Toto.forward`, on arguments that are complete."""
        scaled, loc, scale = self.scale(series, padding_mask, prefix_length, kv_cache)
        ids = self.patch_embed.patch_ids(id_mask)
        hidden = self.encode(scaled, ids, kv_cache, num_exogenous=num_exogenous)
        features = self.unembed(hidden).unflatten(-1, (self.patch_size, -1)).flatten(2, 3)
        return TotoOutput(self.output_distribution(features), loc, scale)


class Toto(nn.Module):
    """A Toto model (arXiv 2505.14766).

    Args:
        config: architecture; weights are random (torch's defaults).

    Attributes:
        config: architecture.
        model: the network; ``state_dict()`` has exactly the published names.
    """

    def __init__(self, config: TotoConfig) -> None:
        super().__init__()
        if not isinstance(config, TotoConfig):
            raise ValueError(f"config must be a TotoConfig, got {type(config).__name__}")
        self.config = config
        self.model = TotoBackbone(config)
        if config.use_memory_efficient_attention:
            log.info(
                "use_memory_efficient_attention has no effect: attention is torch's own scaled_dot_product_attention"
            )

    def enable_variate_labels(self) -> None:
        """Add the labels that tell exogenous variates from targets (standard normal); nothing if they exist."""
        backbone = self.model
        if backbone.target_variate_label is not None:
            return
        like = backbone.patch_embed.projection.bias
        for name in ("target_variate_label", "exogenous_variate_label"):
            setattr(backbone, name, nn.Parameter(torch.randn_like(like)))

    def forward(
        self,
        series: Tensor,
        padding_mask: Tensor | None = None,
        id_mask: Tensor | None = None,
        *,
        kv_cache: KVCache | None = None,
        prefix_length: int | None = None,
        num_exogenous: int = 0,
    ) -> TotoOutput:
        """Predict, at each time step, the distribution of the value one patch later.

        Masked positions stay out of the statistics, but the network sees the value they hold; NaN counts as masked and
        is seen as 0. `TotoForecaster` offers better fills.

        Args:
            series: `(batch, variates, time)`, time a multiple of P. With a cache that was used before: the new patch.
            padding_mask: bool of the same shape, True = valid; default all.
            id_mask: `(batch, variates, time or 1)` groups; default one group.
            kv_cache: remembers keys, values and running statistics between calls.
            prefix_length: steps of context that global scaler statistics may use.
            num_exogenous: how many of the last variates are exogenous; matters with variate labels only.

        Returns:
            Distributions in normalised space with their loc and scale.

        Raises:
            ValueError: a shape that does not fit, a time axis that is no multiple of P, a patch that spans two groups.
        """
        if kv_cache is not None and kv_cache.length and series.shape[-1] != self.config.patch_size:
            raise ValueError(
                f"a cache that holds the context takes one patch a call, {self.config.patch_size} steps, "
                f"got {series.shape[-1]}"
            )
        series, padding_mask, id_mask = self._complete(series, padding_mask, id_mask, num_exogenous)
        return cast(TotoOutput, self.model(series, padding_mask, id_mask, kv_cache, prefix_length, num_exogenous))

    def _complete(
        self, series: Tensor, padding_mask: Tensor | None, id_mask: Tensor | None, num_exogenous: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        if series.ndim != 3 or 0 in series.shape or not series.is_floating_point():
            raise ValueError(
                "series must be floating-point values (batch, variates, time), "
                f"got {series.dtype} {tuple(series.shape)}"
            )
        shape, patch = series.shape, self.config.patch_size
        if shape[-1] % patch:
            raise ValueError(f"time must be a multiple of patch_size={patch} (see left_pad), got {shape[-1]}")
        if padding_mask is None:
            padding_mask = torch.ones_like(series, dtype=torch.bool)
        if padding_mask.shape != shape:
            raise ValueError(
                f"padding_mask must have the series' shape {tuple(shape)}, got {tuple(padding_mask.shape)}"
            )
        if id_mask is None:
            id_mask = torch.zeros((*shape[:2], 1), dtype=torch.long, device=series.device)
        if id_mask.shape not in (shape, (*shape[:2], 1)):
            raise ValueError(
                f"id_mask must be {tuple(shape)} or {(*shape[:2], 1)}, as the series is, got {tuple(id_mask.shape)}"
            )
        if not 0 <= num_exogenous < shape[1]:
            raise ValueError(
                f"num_exogenous must be between 0 and {shape[1] - 1} of {shape[1]} variates, got {num_exogenous}"
            )
        missing = series.isnan()
        return series.masked_fill(missing, 0), padding_mask.bool() & ~missing, id_mask.expand(shape)

    @classmethod
    def from_pretrained(
        cls,
        path_or_id: str | Path,
        *,
        map_location: str | torch.device = "cpu",
        dtype: torch.dtype | None = None,
        strict: bool = True,
    ) -> Toto:
        """Load ``config.json`` and ``model.safetensors`` of a folder or a hub id, plain or fused feed-forward names.

        Args:
            path_or_id: local folder, else an id such as ``Datadog/Toto-Open-Base-1.0`` (needs the extra ``hub``).
            map_location: device of the model.
            dtype: of the weights; default as stored.
            strict: refuse missing, unknown and wrongly shaped tensors; otherwise they are logged, and missing ones are
                random.

        Returns:
            The model in evaluation mode, with variate labels if the file holds them.

        Raises:
            ValueError: a damaged file, a config that is refused, or (strict) tensors that do not fit, all named.
            FileNotFoundError: no such folder, and no hub to ask.
        """
        return load_checkpoint(cls, path_or_id, map_location, dtype, strict)

    def save_pretrained(self, folder: str | Path, fused_names: bool = False) -> None:
        """Write ``config.json`` and ``model.safetensors`` atomically, with the keys and names that are published.

        Args:
            folder: made if it does not exist; files that are none of the two stay.
            fused_names: use the feed-forward names ``mlp.0.w12`` and ``mlp.0.w3`` of the xformers build.
        """
        save_checkpoint(self, folder, fused_names)
