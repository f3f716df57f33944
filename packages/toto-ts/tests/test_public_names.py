"""The public names: a change here is a change for users."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from pathlib import Path

import toto_ts


def test_the_public_names_are_these() -> None:
    assert toto_ts.__all__ == [
        "CausalMaskedTimeseries",
        "CausalPatchStdMeanScaler",
        "CausalStdMeanScaler",
        "CompositeLoss",
        "FinetuneConfig",
        "FinetuneResult",
        "Forecast",
        "MaskedTimeseries",
        "StdMeanScaler",
        "Toto",
        "TotoConfig",
        "TotoForecaster",
        "TotoOutput",
        "TotoPredictor",
        "WarmupStableDecay",
        "apply_xpos",
        "finetune",
        "general_robust_loss",
        "left_pad",
        "left_pad_ids",
        "next_patch_loss",
        "nll",
        "replace_extreme_values",
        "shift_exogenous",
        "xpos_tables",
    ]
    assert set(toto_ts.__all__) < set(dir(toto_ts))
    assert all(inspect.getdoc(getattr(toto_ts, name)) for name in toto_ts.__all__)


def parameters(function: object) -> list[str]:
    return [name for name in inspect.signature(function).parameters if name != "self"]  # type: ignore[arg-type]


def test_the_signatures_are_these() -> None:
    forecaster = toto_ts.TotoForecaster
    assert parameters(toto_ts.Toto.from_pretrained) == ["path_or_id", "map_location", "dtype", "strict"]
    assert parameters(toto_ts.Toto.save_pretrained) == ["folder", "fused_names"]
    assert parameters(toto_ts.Toto.forward) == [
        "series", "padding_mask", "id_mask", "kv_cache", "prefix_length", "num_exogenous",
    ]  # fmt: skip
    assert parameters(forecaster) == ["model", "fill", "xpos_center"]
    assert parameters(forecaster.forecast) == [
        "inputs", "horizon", "num_samples", "samples_per_batch", "quantile_levels", "future_exogenous", "use_kv_cache",
        "seed", "shift_exogenous",
    ]  # fmt: skip
    assert parameters(forecaster.forecast_df) == [
        "df", "horizon", "id_column", "timestamp_column", "target_columns", "exogenous_columns", "future_df",
        "quantile_levels", "num_samples", "seed", "freq",
    ]  # fmt: skip
    assert parameters(toto_ts.TotoPredictor) == [
        "forecaster", "prediction_length", "context_length", "num_samples", "samples_per_batch", "batch_size",
        "use_kv_cache", "missing", "seed",
    ]  # fmt: skip
    assert parameters(toto_ts.StdMeanScaler) == ["minimum_scale"]
    options = ["minimum_scale", "use_bessel_correction", "stabilize_with_global", "scale_factor_exponent"]
    assert parameters(toto_ts.CausalStdMeanScaler) == options
    assert parameters(toto_ts.CausalPatchStdMeanScaler) == ["patch_size", *options]
    assert parameters(toto_ts.StdMeanScaler.__call__) == ["data", "padding_mask", "weights", "prefix_length"]
    assert parameters(toto_ts.CompositeLoss) == ["lambda_nll", "delta", "alpha"]
    assert parameters(toto_ts.next_patch_loss) == [
        "output", "targets", "target_padding_mask", "loss", "num_exogenous",
    ]  # fmt: skip
    assert parameters(toto_ts.WarmupStableDecay) == [
        "optimizer", "warmup_steps", "stable_steps", "decay_steps", "min_lr", "base_lr",
    ]  # fmt: skip


def test_containers_have_these_fields() -> None:
    fields = ["series", "padding_mask", "id_mask", "timestamp_seconds", "time_interval_seconds"]
    assert toto_ts.MaskedTimeseries._fields == (*fields, "num_exogenous_variables")
    assert toto_ts.CausalMaskedTimeseries._fields == (
        *fields,
        "num_exogenous_variables",
        "input_slice",
        "target_slice",
    )
    assert toto_ts.TotoOutput._fields == ("distribution", "loc", "scale")


def test_importing_the_package_imports_neither_pandas_nor_gluonts() -> None:
    code = (
        "import sys, toto_ts; sys.exit(any(name in sys.modules for name in ('pandas', 'gluonts', 'huggingface_hub')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_an_unknown_name_is_an_attribute_error() -> None:
    assert not hasattr(toto_ts, "TotoPredictors")


def test_the_version_is_the_newest_of_the_changelog() -> None:
    changelog = Path(__file__).parents[1].joinpath("CHANGELOG.md").read_text(encoding="utf-8")
    assert re.findall(r"^## (\S+)", changelog, flags=re.MULTILINE)[0] == toto_ts.__version__
