"""What holds for the network, whatever its weights."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.distributions import MixtureSameFamily, StudentT

from toto_ts import Toto, TotoConfig


def mean(model: Toto, *args: Any, **kwargs: Any) -> Tensor:
    with torch.no_grad():
        return model(*args, **kwargs).distribution.mean


def test_the_released_size_has_its_parameters_and_names() -> None:
    with torch.device("meta"):
        model = Toto(TotoConfig(spacewise_first=False))
    assert sum(parameter.numel() for parameter in model.parameters()) == 151_306_080
    shapes = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    expected = {
        "model.patch_embed.projection.weight": (768, 64),
        "model.patch_embed.projection.bias": (768,),
        "model.unembed.weight": (49152, 768),
        "model.unembed.bias": (49152,),
    }
    for i in range(12):
        layer = f"model.transformer.layers.{i}"
        expected |= {f"{layer}.norm1.scale": (768,), f"{layer}.norm2.scale": (768,)}
        for part, shape in {
            "attention.wQKV": (2304, 768),
            "attention.wO": (768, 768),
            "mlp.0": (6144, 768),
            "mlp.2": (768, 3072),
        }.items():
            expected |= {f"{layer}.{part}.weight": shape, f"{layer}.{part}.bias": shape[:1]}
    for head in ("df", "loc_proj", "scale_proj", "mixture_weights"):
        expected |= {f"model.output_distribution.{head}.weight": (24, 768)}
        expected |= {f"model.output_distribution.{head}.bias": (24,)}
    assert len(expected) == 132
    assert shapes == expected


def test_later_patches_have_no_influence(make_model: Any, series: Tensor) -> None:
    model = make_model()
    changed = torch.cat([series[..., :24], 3 * series[..., 24:] + 1], -1)
    before, after = model(series), model(changed)
    assert torch.equal(before.distribution.mean[..., :24], after.distribution.mean[..., :24])
    assert torch.equal(before.loc[..., :24], after.loc[..., :24])
    assert not torch.equal(before.distribution.mean[..., 24:], after.distribution.mean[..., 24:])


def test_permuting_variates_permutes_the_output(make_model: Any, series: Tensor) -> None:
    model, order = make_model(), [2, 0, 1]
    torch.testing.assert_close(mean(model, series)[:, order], mean(model, series[:, order]), rtol=1e-5, atol=1e-5)


def test_variates_see_each_other_within_a_group_and_not_at_all_beyond_it(make_model: Any, series: Tensor) -> None:
    model, changed = make_model(), series.clone()
    changed[:, 2] *= -3
    one_group = mean(model, series) - mean(model, changed)
    assert float(one_group[:, 0].abs().max()) > 0
    ids = torch.tensor([0, 0, 1]).view(1, 3, 1).expand(2, 3, 1)
    apart = mean(model, series, id_mask=ids) - mean(model, changed, id_mask=ids)
    assert float(apart[:, :2].abs().max()) == 0
    alone = mean(model, series[:, :2])
    torch.testing.assert_close(mean(model, series, id_mask=ids)[:, :2], alone, rtol=1e-5, atol=1e-5)


def test_a_shift_of_the_level_changes_nothing_in_normalised_space(make_model: Any) -> None:
    data = torch.randn(1, 2, 32, generator=torch.Generator().manual_seed(0))
    low, high = mean(make_model(), 1000 * data), mean(make_model(), 1000 * data + 5e4)
    assert float((low - high).abs().max()) <= 1e-3


def test_masked_values_stay_out_of_the_statistics_and_nan_counts_as_masked(make_model: Any, series: Tensor) -> None:
    model, mask = make_model(), torch.ones_like(series, dtype=torch.bool)
    mask[:, :, 10:13] = False
    zeroed = model(torch.where(mask, series, 0), mask)
    missing = model(torch.where(mask, series, torch.nan))
    assert torch.equal(zeroed.distribution.mean, missing.distribution.mean)
    assert torch.equal(zeroed.loc, missing.loc)


def test_the_distributions_are_torchs(make_model: Any, series: Tensor) -> None:
    mixture = make_model()(series).distribution
    assert isinstance(mixture, MixtureSameFamily)
    assert isinstance(mixture.component_distribution, StudentT)
    assert mixture.batch_shape == series.shape
    single = make_model(
        output_distribution_classes=["<class 'model.distribution.StudentTOutput'>"], output_distribution_kwargs={}
    )
    assert isinstance(single(series).distribution, StudentT)


def test_degrees_of_freedom_are_above_two_even_where_the_projection_vanishes(make_model: Any, series: Tensor) -> None:
    model = make_model()
    with torch.no_grad():
        model.model.output_distribution.df.bias.fill_(-1e4)
        model.model.output_distribution.scale_proj.bias.fill_(-1e4)
        output = model(series)
        assert float(output.distribution.component_distribution.df.min()) > 2
        assert bool(output.distribution.variance.isfinite().all())
        assert bool(output.distribution.log_prob(torch.full_like(series, 1e4)).isfinite().all())


def test_variate_labels_tell_exogenous_variates_from_targets(make_model: Any, series: Tensor) -> None:
    plain, labelled = make_model(), make_model(labels=True)
    names = set(labelled.state_dict()) - set(plain.state_dict())
    assert names == {"model.target_variate_label", "model.exogenous_variate_label"}
    assert labelled.model.target_variate_label.shape == (32,)
    assert torch.equal(mean(plain, series), mean(plain, series, num_exogenous=1))
    assert not torch.allclose(mean(labelled, series), mean(labelled, series, num_exogenous=1))
    label = labelled.model.target_variate_label
    labelled.enable_variate_labels()
    assert labelled.model.target_variate_label is label


def test_hooks_see_one_more_token_with_variate_labels(make_model: Any, series: Tensor) -> None:
    model, seen = make_model(labels=True), []
    model.model.transformer.layers[0].register_forward_hook(lambda module, inputs, output: seen.append(output.shape))
    model.model.unembed.register_forward_hook(lambda module, inputs, output: seen.append(output.shape))
    model(series)
    assert seen == [(2, 3, 6, 32), (2, 3, 5, 8 * 32)]


def test_dropout_acts_in_training_only(make_model: Any, series: Tensor) -> None:
    model = make_model(dropout=0.5)
    assert torch.equal(mean(model, series), mean(model, series))
    model.train()
    assert not torch.equal(mean(model, series), mean(model, series))


def test_a_bfloat16_model_stays_near_the_float32_one(make_model: Any, series: Tensor) -> None:
    exact, rough = make_model(), make_model().to(torch.bfloat16)
    with torch.no_grad():
        output, exactly = rough(series), exact(series)
    assert output.distribution.mean.dtype == torch.float32
    assert output.loc.dtype == torch.float32
    assert float((output.distribution.mean - exactly.distribution.mean).abs().max()) < 0.05


def test_the_flag_of_the_fused_kernels_is_accepted_with_one_line(
    make_model: Any, series: Tensor, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "toto_ts"):
        flagged = make_model(use_memory_efficient_attention=True)
    assert len(caplog.records) == 1
    assert torch.equal(mean(flagged, series), mean(make_model(), series))


def test_an_all_variates_model_needs_no_time_blocks(make_model: Any, series: Tensor) -> None:
    model = make_model(spacewise_every_n_layers=1)
    assert mean(model, series).shape == series.shape
