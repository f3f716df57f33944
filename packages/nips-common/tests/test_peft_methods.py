"""A method from outside peft behaves like one of its own: enum member, saving, loading, a second import."""

import copy
import importlib
import json
import sys
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import ClassVar

import peft
import pytest
import torch
from peft import LoraConfig, PeftConfig, PeftModel, get_peft_model
from peft.tuners.tuners_utils import BaseTuner, BaseTunerLayer
from peft.utils import PeftType
from torch import nn

from nips_common.peft_methods import register
from nips_common.testing.bad_input import BadInput, bad_inputs


@dataclass
class GainConfig(PeftConfig):
    """Scales the outputs of linear layers, one factor an output."""

    target_modules: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.peft_type = PeftType.GAINTEST


class GainLinear(nn.Module, BaseTunerLayer):
    """A linear layer with a factor for each output."""

    adapter_layer_names = ("gaintest_factors",)

    def __init__(self, base_layer: nn.Linear, adapter_name: str) -> None:
        nn.Module.__init__(self)
        self.base_layer = base_layer
        self.gaintest_factors = nn.ParameterDict({})
        self._disable_adapters, self.merged_adapters = False, []
        self.update_layer(adapter_name)

    def update_layer(self, adapter_name: str, inference_mode: bool = False) -> None:
        self.gaintest_factors[adapter_name] = nn.Parameter(torch.ones(self.base_layer.out_features))
        self._move_adapter_to_device_of_base_layer(adapter_name)
        self.set_adapter(self.active_adapters, inference_mode=inference_mode)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result = self.base_layer(x)
        for name in [] if self.disable_adapters else self.active_adapters:
            if name in self.gaintest_factors:
                result = result * self.gaintest_factors[name]
        return result


class GainModel(BaseTuner):
    """Puts GainLinear around the targets."""

    prefix = "gaintest_"
    tuner_layer_cls = GainLinear
    target_module_mapping: ClassVar[dict[str, list[str]]] = {}

    def _create_and_replace(
        self, peft_config, adapter_name, target, target_name, parent, current_key, parameter_name=None
    ) -> None:
        if isinstance(target, GainLinear):
            target.update_layer(adapter_name)
            return
        new = GainLinear(target, adapter_name)
        if adapter_name not in self.active_adapters:
            new.requires_grad_(False)
        self._replace_module(parent, target_name, new, target)


MEMBER = register("gaintest", GainConfig, GainModel)


def _network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))


def test_the_member_is_found_in_every_way() -> None:
    assert PeftType("GAINTEST") is MEMBER
    assert PeftType["GAINTEST"] is MEMBER
    assert PeftType.GAINTEST is MEMBER
    assert MEMBER in PeftType
    assert "GAINTEST" in list(PeftType)
    assert list(PeftType)[-1] is MEMBER
    assert list(PeftType).count(MEMBER) == 1
    assert len(PeftType) == len(list(PeftType)) == len(PeftType.__members__)


def test_the_member_looks_like_the_others() -> None:
    assert isinstance(MEMBER, PeftType)
    assert (MEMBER.name, MEMBER.value) == ("GAINTEST", "GAINTEST")
    assert MEMBER == "GAINTEST"
    assert hash(MEMBER) == hash("GAINTEST")
    assert repr(MEMBER) == "<PeftType.GAINTEST: 'GAINTEST'>"
    assert str(MEMBER) == str(PeftType.LORA).replace("LORA", "GAINTEST")


def test_the_member_survives_json_copies_and_pickling() -> None:
    assert json.dumps({"peft_type": MEMBER}) == '{"peft_type": "GAINTEST"}'
    assert copy.copy(MEMBER) is MEMBER
    assert copy.deepcopy({"a": [MEMBER]})["a"][0] is MEMBER
    for protocol in range(6):
        build, arguments, *_ = MEMBER.__reduce_ex__(protocol)  # what pickle stores, without its module
        assert build(*arguments) is MEMBER


def test_the_existing_members_are_untouched() -> None:
    assert PeftType("LORA") is PeftType.LORA
    assert PeftType.LORA.value == "LORA"
    assert list(PeftType)[: len(PeftType) - 1] == [member for member in PeftType if member is not MEMBER]
    with pytest.raises(ValueError, match="NOSUCHTYPE"):
        PeftType("NOSUCHTYPE")


def test_a_saved_adapter_loads_to_the_same_outputs(tmp_path: Path) -> None:
    base, x = _network(), torch.randn(5, 4, generator=torch.Generator().manual_seed(1))
    plain = base(x)
    model = get_peft_model(base, GainConfig(target_modules=["0", "2"]))
    assert torch.equal(model(x), plain)
    trainable = [name for name, parameter in model.named_parameters() if parameter.requires_grad]
    assert len(trainable) == 2
    assert all("gaintest_" in name for name in trainable)
    optimiser = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
    model(x).square().sum().backward()
    optimiser.step()
    trained = model(x)
    assert not torch.allclose(trained, plain)

    model.save_pretrained(tmp_path)
    assert json.loads((tmp_path / "adapter_config.json").read_text())["peft_type"] == "GAINTEST"
    assert isinstance(PeftConfig.from_pretrained(tmp_path), GainConfig)
    loaded = PeftModel.from_pretrained(_network(), tmp_path)
    assert torch.equal(loaded(x), trained)
    with loaded.disable_adapter():
        assert torch.equal(loaded(x), plain)


def test_a_built_in_method_still_works_beside_it() -> None:
    model = get_peft_model(_network(), LoraConfig(target_modules=["0"]))
    assert model(torch.zeros(1, 4)).shape == (1, 3)


def test_registering_the_same_classes_again_changes_nothing() -> None:
    members = list(PeftType)
    assert register("gaintest", GainConfig, GainModel) is MEMBER
    assert list(PeftType) == members


PLUGIN = """
from dataclasses import dataclass
from peft import PeftConfig
from peft.tuners.tuners_utils import BaseTuner
from nips_common.peft_methods import register

@dataclass
class ReloadedConfig(PeftConfig):
    pass

class ReloadedModel(BaseTuner):
    prefix = "reloadtest_"

MEMBER = register("reloadtest", ReloadedConfig, ReloadedModel)
"""


def test_a_module_can_be_reloaded_and_its_new_classes_take_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "reloaded_plugin.py").write_text(PLUGIN)
    monkeypatch.syspath_prepend(tmp_path)
    plugin = importlib.import_module("reloaded_plugin")
    member, old = plugin.MEMBER, plugin.ReloadedConfig
    importlib.reload(plugin)
    assert plugin.MEMBER is member
    assert plugin.ReloadedConfig is not old
    assert peft.mapping.PEFT_TYPE_TO_CONFIG_MAPPING[member] is plugin.ReloadedConfig
    assert peft.mapping.PEFT_TYPE_TO_TUNER_MAPPING[member] is plugin.ReloadedModel
    assert peft.mapping.PEFT_TYPE_TO_PREFIX_MAPPING[member] == "reloadtest_"
    del sys.modules["reloaded_plugin"]


class _LoraLike(BaseTuner):
    prefix = "lora_"


def test_a_name_that_peft_has_itself_is_refused_with_both_versions() -> None:
    with pytest.raises(ImportError) as caught:
        register("lora", GainConfig, _LoraLike)
    message = str(caught.value)
    assert f"peft {version('peft')}" in message
    assert "peft.tuners.lora.config.LoraConfig" in message
    assert "GainConfig" in message
    assert peft.mapping.PEFT_TYPE_TO_CONFIG_MAPPING[PeftType.LORA] is LoraConfig


def test_our_own_version_is_named_too() -> None:
    ours = type("OurConfig", (GainConfig,), {"__module__": "nips_common.somewhere"})
    with pytest.raises(ImportError, match=rf"nips-common {version('nips-common')}"):
        register("lora", ours, _LoraLike)


def _model(prefix: object) -> type:
    return type("SomeModel", (BaseTuner,), {"prefix": prefix})


@bad_inputs(
    [
        BadInput("upper case", lambda: register("Some", GainConfig, _model("Some_")), ("lower case", "'Some'")),
        BadInput("underscore", lambda: register("some_", GainConfig, _model("some__")), ("prefix NAME_", "'some_'")),
        BadInput("no identifier", lambda: register("so me", GainConfig, _model("so me_")), ("'so me'",)),
        BadInput("empty", lambda: register("", GainConfig, _model("_")), ("''",)),
        BadInput("other prefix", lambda: register("some", GainConfig, _model("other_")), ("'some'", "'other_'")),
        BadInput("no prefix", lambda: register("some", GainConfig, object), ("'some'", "None")),
    ]
)
def test_a_bad_name_is_refused_before_the_enum_is_touched(case: BadInput) -> None:
    members = list(PeftType)
    case.check()
    assert list(PeftType) == members
