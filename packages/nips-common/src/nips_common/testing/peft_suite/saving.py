"""Saving and loading, by peft, by transformers, in a fresh process."""

# ruff: noqa: D102 - the names of the tests say what they are about
from __future__ import annotations

import copy
import json
import pickle  # noqa: TID251 - a config must survive being sent to another process
import subprocess
import sys
from pathlib import Path
from typing import Any

import peft
import pytest
import torch
import transformers
from packaging.version import Version
from peft import PeftConfig, PeftModel, inject_adapter_in_model
from peft.utils import PeftType, get_peft_model_state_dict, set_peft_model_state_dict

from nips_common.testing.peft_suite.base import (
    FILES,
    PeftSuiteBase,
    each_dtype,
    each_model,
    same,
    train,
    tuner_layers,
)
from nips_common.testing.tiny_models import LLAMA, PLAIN, ROBERTA, T5, TINY_MODELS, TinyModel


class SavingTests(PeftSuiteBase):
    """Saving and loading, by peft, by transformers, in a fresh process."""

    # saving and loading

    @each_model
    @each_dtype
    @pytest.mark.parametrize("low_cpu_mem_usage", [False, True], ids=["", "low-memory"])
    def test_a_saved_adapter_loads_to_the_same_outputs(
        self, tiny: TinyModel, dtype: torch.dtype, low_cpu_mem_usage: bool, tmp_path: Path
    ) -> None:
        model = self.adapted(tiny, dtype, modules_to_save=[tiny.head])
        train(model, tiny)
        model.save_pretrained(tmp_path)
        assert {path.name for path in tmp_path.iterdir()} - {"README.md"} == FILES
        loaded = PeftModel.from_pretrained(tiny.build(dtype), tmp_path, low_cpu_mem_usage=low_cpu_mem_usage)
        assert not any(parameter.is_meta for parameter in loaded.parameters())
        assert not any(parameter.requires_grad for parameter in loaded.parameters())
        # with low_cpu_mem_usage peft leaves the adapter in the model's dtype, else in float32
        rounded = low_cpu_mem_usage and dtype != torch.float32
        assert same(tiny.output(loaded), tiny.output(model), 0.03 if rounded else 1e-6)

    @each_model
    @each_dtype
    def test_adapters_whose_names_contain_each_other_are_kept_apart(
        self, tiny: TinyModel, dtype: torch.dtype, tmp_path: Path
    ) -> None:
        model = self.adapted(tiny, dtype, name="news")
        model.add_adapter("newspaper", self.config(tiny, **self.random))
        expected = tiny.output(model)
        model.save_pretrained(tmp_path)
        keys = {name: self.saved_keys(tmp_path / name) for name in ("news", "newspaper")}
        assert keys["news"] == keys["newspaper"]
        assert not any("news" in key for key in keys["news"])
        assert all(self.prefix in key for key in keys["news"])
        loaded = PeftModel.from_pretrained(tiny.build(dtype), tmp_path / "news")
        assert same(tiny.output(loaded), expected, 1e-6)

    @staticmethod
    def saved_keys(folder: Path) -> set[str]:
        """The keys of a saved adapter."""
        from safetensors import safe_open

        with safe_open(folder / "adapter_model.safetensors", "pt") as file:
            return set(file.keys())

    def test_a_config_survives_its_file_and_pickling(self, tmp_path: Path) -> None:
        config = self.config(LLAMA, modules_to_save=["lm_head"], exclude_modules=["k_proj"], task_type="CAUSAL_LM")
        config.save_pretrained(tmp_path)
        read = PeftConfig.from_pretrained(tmp_path)
        assert type(read) is self.config_class
        fields = config.to_dict()
        assert read.to_dict() | {"inference_mode": False} == fields | {"inference_mode": False}
        assert pickle.loads(pickle.dumps(config)).to_dict() == fields  # noqa: S301 - its own bytes
        assert copy.deepcopy(config).peft_type is PeftType(config.peft_type)

    def test_an_unknown_key_of_a_config_file_is_dropped_with_a_warning(self, tmp_path: Path) -> None:
        self.config(LLAMA).save_pretrained(tmp_path)
        path = tmp_path / "adapter_config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | {"from_the_future": 1}))
        with pytest.warns(UserWarning, match="from_the_future"):
            assert type(PeftConfig.from_pretrained(tmp_path)) is self.config_class

    @pytest.mark.parametrize("tiny", [LLAMA, ROBERTA, T5], ids=lambda tiny: tiny.name)
    @each_dtype
    def test_an_auto_class_loads_base_and_adapter(self, tiny: TinyModel, dtype: torch.dtype, tmp_path: Path) -> None:
        plain: Any = tiny.build(dtype)
        plain.save_pretrained(tmp_path / "base")
        model = self.adapted(tiny, dtype, task_type=tiny.task_type)
        model.peft_config["default"].base_model_name_or_path = str(tmp_path / "base")
        model.save_pretrained(tmp_path / "adapter")
        loaded = getattr(peft, tiny.auto_class).from_pretrained(tmp_path / "adapter", dtype=dtype)
        assert tuner_layers(loaded)
        # not the built model: rounding it to bfloat16 rounded its rotary frequencies too
        base = type(plain).from_pretrained(tmp_path / "base", dtype=dtype)
        assert same(tiny.output(loaded), tiny.output(PeftModel.from_pretrained(base, tmp_path / "adapter")), 1e-6)

    @pytest.mark.parametrize("tiny", [tiny for tiny in TINY_MODELS if tiny is not PLAIN], ids=lambda tiny: tiny.name)
    @each_dtype
    def test_transformers_loads_the_adapter_by_itself(
        self, tiny: TinyModel, dtype: torch.dtype, tmp_path: Path
    ) -> None:
        if tiny is not LLAMA and Version(transformers.__version__) < Version("5.24"):
            pytest.skip("older versions of transformers find no adapter weights for a model with a base prefix")
        model = self.adapted(tiny, dtype)
        model.save_pretrained(tmp_path)
        native: Any = tiny.build(dtype)
        native.load_adapter(str(tmp_path))
        assert tuner_layers(native)
        # transformers leaves the adapter in the model's dtype, where peft uses float32
        assert same(tiny.output(native), tiny.output(model), 1e-6 if dtype == torch.float32 else 0.05)
        for layer in tuner_layers(native):
            layer.enable_adapters(False)
        assert same(tiny.output(native), tiny.output(tiny.build(dtype)))

    @each_model
    @each_dtype
    def test_an_injected_adapter_takes_and_gives_its_weights(self, tiny: TinyModel, dtype: torch.dtype) -> None:
        model = self.adapted(tiny, dtype)
        injected = inject_adapter_in_model(self.config(tiny), tiny.build(dtype)).eval()
        result = set_peft_model_state_dict(injected, get_peft_model_state_dict(model))
        assert not result.unexpected_keys
        assert same(tiny.output(injected), tiny.output(model), 1e-6 if dtype == torch.float32 else 0.05)
        state = get_peft_model_state_dict(injected)
        assert state.keys() == {key.removeprefix("base_model.model.") for key in get_peft_model_state_dict(model)}

    @pytest.mark.slow
    def test_a_fresh_process_loads_it_once_the_method_is_imported(self, tmp_path: Path) -> None:
        model = self.adapted(PLAIN)
        model.save_pretrained(tmp_path)
        program = (
            f"import {self.plugin or 'peft'}, torch; from pathlib import Path; from peft import PeftModel; "
            "from nips_common.testing.tiny_models import PLAIN; "
            f"model = PeftModel.from_pretrained(PLAIN.build(), {str(tmp_path)!r}); "
            "print(PLAIN.output(model).tolist())"
        )
        run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)  # noqa: S603
        assert run.returncode == 0, run.stderr
        assert same(torch.tensor(json.loads(run.stdout.splitlines()[-1])), PLAIN.output(model), 1e-6)
