"""What the suite is told of a method, and how it makes its models."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest
import torch
from peft import PeftConfig, PeftModel, get_peft_model
from peft.tuners.tuners_utils import BaseTuner, BaseTunerLayer
from torch import Tensor, nn

from nips_common.testing.tiny_models import TINY_MODELS, TinyModel

BEFORE_0_21 = not hasattr(BaseTuner, "_get_learnable_bias_state_dict")
DTYPES = (torch.float32, torch.bfloat16)
FILES = {"adapter_config.json", "adapter_model.safetensors"}

each_dtype = pytest.mark.parametrize("dtype", [pytest.param(dtype, id=str(dtype)[6:]) for dtype in DTYPES])
each_model = pytest.mark.parametrize("tiny", [pytest.param(tiny, id=tiny.name) for tiny in TINY_MODELS])
each_layered_model = pytest.mark.parametrize(
    "tiny", [pytest.param(tiny, id=tiny.name) for tiny in TINY_MODELS if tiny.layers_pattern]
)


def same(actual: Tensor, expected: Tensor, tolerance: float = 0.0) -> bool:
    """Whether two outputs differ by at most ``tolerance`` times the largest expected value."""
    difference = (actual.double() - expected.double()).abs().max()
    return actual.dtype == expected.dtype and bool(difference <= tolerance * expected.double().abs().max())


def tuner_layers(model: nn.Module) -> list[Any]:
    """The adapted layers of a model."""
    return [module for module in model.modules() if isinstance(module, BaseTunerLayer)]


def train(model: nn.Module, tiny: TinyModel, steps: int = 1, learning_rate: float = 0.02) -> None:
    """Take steps of Adam on the mean square of the output, whatever its scale; gradients of the last one stay."""
    optimiser = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=learning_rate)
    for _ in range(steps):
        optimiser.zero_grad()
        tiny.logits(model).float().square().mean().backward()
        optimiser.step()


class PeftSuiteBase:
    """What the tests are told of a method; see :mod:`nips_common.testing.peft_suite`.

    Attributes:
        config_class: The method's config.
        prefix: The prefix of its parameters.
        plugin: The module whose import registers the method; empty for a method of peft's own.
        options: What to make every config with.
        merging: Options with which an adapter merges exactly.
        random: Options with which an adapter starts at random weights instead of changing nothing.
        bias_only: The value of ``bias`` for the biases of the adapted layers alone; empty if it has none.
        still_at_first: Ends of parameter names whose gradient is exactly 0 before the first step.
        start_tolerance: How far a new adapter may be from changing nothing, relative to the largest output: rounding.
        strength: The standard deviation of the weights that most tests draw.
        merge_tolerance: How much merging may change an output, by dtype, relative to the largest.
        unmerge_tolerance: How far from the old weights unmerging may end, by dtype, relative to the largest.
    """

    config_class: ClassVar[type[PeftConfig]]
    prefix: ClassVar[str]
    plugin: ClassVar[str] = ""
    options: ClassVar[dict[str, Any]] = {}
    merging: ClassVar[dict[str, Any]] = {}
    random: ClassVar[dict[str, Any]] = {"init_weights": False}
    bias_only: ClassVar[str] = ""
    still_at_first: ClassVar[tuple[str, ...]] = ()
    start_tolerance: ClassVar[float] = 0.0
    strength: ClassVar[float] = 0.2
    merge_tolerance: ClassVar[dict[torch.dtype, float]] = {torch.float32: 1e-4, torch.bfloat16: 0.03}
    unmerge_tolerance: ClassVar[dict[torch.dtype, float]] = {torch.float32: 1e-6, torch.bfloat16: 0.05}

    def config(self, tiny: TinyModel, **options: Any) -> PeftConfig:
        """A config for a model."""
        return self.config_class(**{"target_modules": list(tiny.target_modules), **self.options, **options})

    def adapted(
        self, tiny: TinyModel, dtype: torch.dtype = torch.float32, name: str = "default", **options: Any
    ) -> PeftModel:
        """A model with an adapter that changes it, in evaluation mode."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(1)
            model = get_peft_model(tiny.build(dtype), self.config(tiny, **self.random, **options), adapter_name=name)
        self.strengthen(model)
        return model.eval()

    def strengthen(self, model: nn.Module, seed: int = 2) -> None:
        """Make the adapters' effect large; a method whose weights must not be any number overrides this."""
        generator = torch.Generator().manual_seed(seed)
        for name, parameter in model.named_parameters():
            if self.prefix in name:
                noise = torch.randn(parameter.shape, generator=generator)
                parameter.data = (self.strength * noise).to(parameter)
