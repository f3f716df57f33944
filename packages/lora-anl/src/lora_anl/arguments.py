"""AuroRA's settings as flags, and the method as the training script of nips-finetune takes it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from lora_anl.config import AuroraConfig
from nips_finetune import AdapterArguments, AdapterMethod, Task

_MERGING = {
    "dynamic": (
        'The update is nonlinear in its input (`forward_mode="dynamic"`) and cannot be merged into the base weights '
        "without\nchanging the model; see `lora-anl merge --help` and `lora-anl gap --help`."
    ),
    "static": 'The update is linear in its input (`forward_mode="static"`) and merges exactly: `lora-anl merge`.',
}


@dataclass
class AuroraArguments(AdapterArguments):
    """The adapter; :class:`lora_anl.AuroraConfig` explains the settings."""

    r: int = field(default=2, metadata={"help": "compressed rank"})
    aurora_alpha: float = field(default=4.0, metadata={"help": "the update is scaled by aurora_alpha / r"})
    aurora_dropout: float = field(default=0.0, metadata={"help": "dropout on the adapter's input"})
    activation: Literal["tanh", "leaky_relu", "sigmoid", "relu"] = field(
        default="tanh", metadata={"help": "activation of the fixed part"}
    )
    use_fixed: bool = field(default=True, metadata={"help": "keep the fixed part"})
    use_spline: bool = field(default=True, metadata={"help": "keep the spline"})
    grid_size: int = field(default=5, metadata={"help": "intervals of the spline's grid"})
    spline_order: int = field(default=3, metadata={"help": "degree of the spline"})
    grid_range: list[float] = field(
        default_factory=lambda: [-1.0, 1.0], metadata={"help": "where the grid begins and ends"}
    )
    spline_mode: Literal["pooled", "per_channel"] = field(
        default="pooled", metadata={"help": "as the paper prints it, or a spline a coordinate"}
    )
    spline_init_scale: float = field(default=0.1, metadata={"help": "spline weights start uniform in +- this"})
    forward_mode: Literal["dynamic", "static"] = field(
        default="dynamic", metadata={"help": "static can be merged exactly"}
    )

    def make_config(self, task: Task, head: Sequence[str] = ()) -> AuroraConfig:
        """The config for a task whose head has these modules; ValueError for a setting out of range."""
        settings = self.settings(task, head)
        return AuroraConfig(**(settings | {"grid_range": tuple(self.grid_range)}))

    def card_note(self) -> str:
        """Whether an adapter with these settings can be merged."""
        return _MERGING[self.forward_mode]


METHOD = AdapterMethod(
    name="lora-anl",
    title="AuroRA",
    import_name="lora_anl",
    citation="LoRA with an adaptive nonlinear layer, arXiv 2505.18738",
    config_type=AuroraConfig,
    adapter_arguments=AuroraArguments,
)
